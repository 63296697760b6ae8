// How a subcommand joins the command line: one file cli/<name>.{h,cc} with a Register function,
// and one line in the list of main.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

namespace segue::cli {

struct Command {
  CLI::App* app = nullptr;   // the subcommand, its options declared
  std::function<int()> run;  // called when it was chosen, after parsing; returns the exit status
};

using RegisterCommand = Command (*)(CLI::App& parent);

// An option with a value, kept as text: the command reads it with parse.h, so that every error has
// one form. `value` must outlive `app`'s parsing.
CLI::Option* AddTextOption(CLI::App& app, const std::string& name,
                           std::optional<std::string>& value, const std::string& type,
                           const std::string& help);

}  // namespace segue::cli
