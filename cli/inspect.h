// `segue inspect`: what a checkpoint holds and what it needs.
#pragma once

#include "cli/command.h"

namespace segue::cli {

Command RegisterInspect(CLI::App& parent);

}  // namespace segue::cli
