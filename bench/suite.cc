#include "bench/suite.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace segue::bench {
namespace {

Error SuiteError(const std::string& argument, const std::string& got, const std::string& wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "read benchmark suite",
          .argument = argument,
          .got = got,
          .wanted = wanted};
}

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  size_t begin = line.find_first_not_of(" \t\r");
  while (begin != std::string_view::npos) {
    const size_t end = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(" \t\r", end);
  }
  return words;
}

Result<Case> ParseCase(const std::vector<std::string_view>& words, int number) {
  const std::string where = "line " + std::to_string(number);
  if (words.size() < 2) {
    return SuiteError(where, std::string(words[0]), "<driver> <case> key=value ...");
  }
  Case parsed{.driver = std::string(words[0]), .name = std::string(words[1]), .values = {}};
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return SuiteError(where, std::string(words[i]), "key=value");
    }
    parsed.values[std::string(words[i].substr(0, equals))] = words[i].substr(equals + 1);
  }
  return parsed;
}

std::string DriverNames() {
  std::string names;
  for (const auto& [name, driver] : Drivers()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

Result<int64_t> Case::Integer(const std::string& key) const {
  const auto found = values.find(key);
  if (found == values.end()) return SuiteError("case " + name, "no " + key, key + "=<number>");
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return SuiteError("case " + name + ": " + key, text, "a whole number");
  }
  return value;
}

std::string Case::Text(const std::string& key, const std::string& fallback) const {
  const auto found = values.find(key);
  return found == values.end() ? fallback : found->second;
}

Result<std::vector<Case>> ParseSuite(std::string_view text) {
  std::vector<Case> cases;
  int number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<std::string_view> words = Words(line);
    if (words.empty()) continue;
    SEGUE_ASSIGN_OR_RETURN(Case parsed, ParseCase(words, number));
    cases.push_back(std::move(parsed));
  }
  return cases;
}

Result<Report> RunSuite(const std::vector<Case>& cases, const SuiteOptions& options,
                        const std::function<void(const Row&)>& on_row) {
  Report report{.device = ProcessorName(options.threads),
                .driver = "",
                .cuda = "",
                .commit = options.commit,
                .date = Today(),
                .rows = {}};
  for (const Case& one : cases) {
    if (one.name.find(options.only) == std::string::npos) continue;
    const auto driver = Drivers().find(one.driver);
    if (driver == Drivers().end()) {
      return SuiteError("case " + one.name, one.driver, "one of the drivers: " + DriverNames());
    }
    SEGUE_ASSIGN_OR_RETURN(const std::vector<Row> rows, driver->second(one, options));
    for (const Row& row : rows) {
      on_row(row);
      report.rows.push_back(row);
    }
  }
  if (report.rows.empty()) {
    return SuiteError("--only", options.only, "part of the name of a case of the suite");
  }
  return report;
}

}  // namespace segue::bench
