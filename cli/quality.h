// `segue quality`: what the gates of a quality tier cost, judged picture by picture.
#pragma once

#include "cli/command.h"

namespace segue::cli {

Command RegisterQuality(CLI::App& parent);

}  // namespace segue::cli
