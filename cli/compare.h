// `segue compare`: how far two tensor files or two pictures are apart.
#pragma once

#include "cli/command.h"

namespace segue::cli {

Command RegisterCompare(CLI::App& parent);

}  // namespace segue::cli
