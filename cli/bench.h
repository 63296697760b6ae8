// `segue bench`.
#pragma once

#include "cli/command.h"

namespace segue::cli {

Command RegisterBench(CLI::App& parent);

}  // namespace segue::cli
