#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <vector>

#include "cli/console.h"
#include "cli/usage.h"
#include "cli/version.h"

namespace segue::cli {
namespace {

constexpr char kDescription[] =
    "Segue makes pictures from prompts with multimodal diffusion transformers.\n";
constexpr char kFooter[] = R"(Try:
  segue generate --model models/emoji --prompt "red apple" --output apple.png
  segue generate --help

Exit statuses, JSON and all details: docs/cli.md)";

int ParseAndRun(int argc, const char* const* argv, std::span<const RegisterCommand> list) {
  CLI::App app(kDescription, "segue");
  app.set_version_flag("--version", VersionText(), "Print version, commit and processor features");
  app.require_subcommand(1);
  app.footer(kFooter);
  app.get_formatter()->column_width(28);
  std::vector<Command> commands;
  for (const RegisterCommand join : list) commands.push_back(join(app));
  try {
    app.parse(ReversedArguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    const Status status = Print(app.help());  // of the subcommand, if one was named
    return status.ok() ? kExitOk : Fail("", status.error());
  } catch (const CLI::CallForVersion&) {
    const Status status = Print(VersionText());
    return status.ok() ? kExitOk : Fail("", status.error());
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s\n", UsageMessage(app, error).c_str());
    return kExitUsage;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return kExitUsage;
}

}  // namespace

int RunProgram(int argc, const char* const* argv, std::span<const RegisterCommand> list) {
  // A file that may not grow is an error with a name, not the end of the process. (A closed pipe
  // ends it as it ends others: `segue inspect ... | head` is nobody's error.)
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return ParseAndRun(argc, argv, list);
  } catch (const std::bad_alloc&) {
    return Fail("", Error{.code = ErrorCode::kOutOfMemory,
                          .operation = "run",
                          .got = "a failed allocation",
                          .wanted = "more memory"});
  } catch (const std::exception& error) {
    return Fail("", Error{.code = ErrorCode::kInternal, .operation = "run", .got = error.what()});
  }
}

}  // namespace segue::cli
