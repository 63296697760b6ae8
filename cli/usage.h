// Errors of the command line itself, before any subcommand runs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace segue::cli {

// The arguments in the order CLI11 wants them (last first). "--prompt=" gives an empty value, as
// "--prompt ''" does; CLI11 by itself would take the next argument for it.
std::vector<std::string> ReversedArguments(int argc, const char* const* argv);

// One line: what was wrong, what was meant ("did you mean '--steps'?"), where help is.
std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error);

// The name of `names` that is nearest to `word` (edit distance at most a third of its length).
// Empty: none is near.
std::string Nearest(const std::string& word, const std::vector<std::string>& names);

}  // namespace segue::cli
