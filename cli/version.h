// Which build this is.
#pragma once

#include <string>

namespace segue::cli {

const char* VersionNumber();  // "0.1.0"
const char* VersionCommit();  // abbreviated, "-dirty" with local changes, "unknown" outside git

// What `segue --version` prints: version, commit, compiler, CUDA or not, the processor's features.
std::string VersionText();

}  // namespace segue::cli
