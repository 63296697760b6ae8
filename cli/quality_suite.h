// The pictures that gates are judged by: a text file, a picture a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "segue/request.h"
#include "segue/status.h"

namespace segue::cli {

// Requests of a suite's lines: seed, size, steps, guidance and, to the end of the line, the prompt.
// Empty lines and those that begin with # are skipped. Errors name the line: a field that is
// missing or no number, text that is not UTF-8; fewer pictures than a verdict takes
// (kLeastPictures). `name` is the file's, for errors.
Result<std::vector<Request>> ParseQualitySuite(const std::string& name, const std::string& text);

}  // namespace segue::cli
