// The program around its subcommands: parsing, help, usage errors.
#pragma once

#include <span>

#include "cli/command.h"

namespace segue::cli {

// Parses the arguments, runs the subcommand that was named and returns the exit status. No
// exception leaves it.
int RunProgram(int argc, const char* const* argv, std::span<const RegisterCommand> list);

}  // namespace segue::cli
