// `segue plan`: how work would be divided, without doing any.
#pragma once

#include "cli/command.h"

namespace segue::cli {

Command RegisterPlan(CLI::App& parent);

}  // namespace segue::cli
