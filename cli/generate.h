// `segue generate`: pictures from a prompt.
#pragma once

#include "cli/command.h"

namespace segue::cli {

Command RegisterGenerate(CLI::App& parent);

}  // namespace segue::cli
