// `segue verify`: whether a checkpoint is sound, every weight included.
#pragma once

#include "cli/command.h"

namespace segue::cli {

Command RegisterVerify(CLI::App& parent);

}  // namespace segue::cli
