#include "cli/usage.h"

#include <algorithm>
#include <numeric>

#include "cli/console.h"

namespace segue::cli {
namespace {

// Levenshtein's distance: insertions, deletions and replacements of a byte.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The subcommand on the command line (its own subcommand, if that was named too), or the program.
const CLI::App& Chosen(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : Chosen(*chosen.front());
}

// "segue plan attention"
std::string FullName(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return app.get_name() + (chosen.empty() ? "" : " " + FullName(*chosen.front()));
}

std::string Unexpected(const CLI::App& app) {
  const CLI::App& chosen = Chosen(app);
  const std::vector<std::string> rest = chosen.remaining();
  if (rest.empty()) return "";
  const std::string word = rest.front().substr(0, rest.front().find('='));
  std::vector<std::string> names;
  std::string kind = "argument";
  if (word.starts_with('-')) {
    kind = "option";
    names = OptionNames(chosen);
  } else if (!chosen.get_subcommands({}).empty()) {
    kind = "command";
    for (const CLI::App* sub : chosen.get_subcommands({})) names.push_back(sub->get_name());
  }
  const std::string nearest = Nearest(word, names);
  return "unknown " + kind + " '" + OneLine(rest.front()) + "'" +
         (nearest.empty() ? "" : ", did you mean '" + nearest + "'?");
}

}  // namespace

std::vector<std::string> ReversedArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const bool empty_value = text.size() > 3 && text.starts_with("--") && text.ends_with('=') &&
                             text.find('=') + 1 == text.size();
    if (empty_value) {
      arguments.push_back(text.substr(0, text.size() - 1));
      arguments.emplace_back();
    } else {
      arguments.push_back(text);
    }
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error) {
  const std::string name = FullName(app);
  std::string message = Unexpected(app);
  if (message.empty()) message = OneLine(error.what());
  if (message.ends_with('.')) message.pop_back();
  return name + ": " + message + " (see '" + name + " --help')";
}

std::string Nearest(const std::string& word, const std::vector<std::string>& names) {
  std::string nearest;
  size_t best = word.size() / 3 + 1;
  for (const std::string& name : names) {
    const size_t distance = EditDistance(word, name);
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace segue::cli
