#include "bench/suite.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "bench/gpu.h"

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

// Whether `name` contains one of the parts of `only`.
bool IsSelected(const std::string& name, std::string_view only) {
  while (true) {
    const size_t comma = only.find(',');
    if (name.find(only.substr(0, comma)) != std::string::npos) return true;
    if (comma == std::string_view::npos) return false;
    only.remove_prefix(comma + 1);
  }
}

Result<std::vector<const Case*>> Select(const std::vector<Case>& cases, const std::string& only) {
  std::vector<const Case*> selected;
  for (const Case& one : cases) {
    if (!IsSelected(one.name, only)) continue;
    if (!Drivers().contains(one.driver)) {
      return SuiteError("case " + one.name, one.driver, "one of the drivers: " + DriverNames());
    }
    selected.push_back(&one);
  }
  if (!selected.empty()) return selected;
  return SuiteError("--only", only, "part of the name of a case of the suite");
}

Result<Report> StartReport(const std::vector<const Case*>& cases, const SuiteOptions& options) {
  Report report{.device = ProcessorName(options.threads),
                .driver = "",
                .cuda = "",
                .commit = options.commit,
                .date = Today(),
                .rows = {},
                .failures = {}};
  const bool on_gpu = std::any_of(cases.begin(), cases.end(), [](const Case* one) {
    return one->driver.rfind("gpu_", 0) == 0;
  });
  if (!on_gpu) return report;
  SEGUE_ASSIGN_OR_RETURN(const GpuIdentity gpu, IdentifyGpu());
  report.device = gpu.name;
  report.driver = gpu.driver;
  report.cuda = gpu.cuda;
  return report;
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
  SEGUE_ASSIGN_OR_RETURN(const std::vector<const Case*> selected, Select(cases, options.only));
  SEGUE_ASSIGN_OR_RETURN(Report report, StartReport(selected, options));
  for (const Case* one : selected) {
    const Result<std::vector<Row>> rows = Drivers().at(one->driver)(*one, options);
    if (!rows.ok() && !options.keep_going) return rows.error();
    if (!rows.ok()) {
      report.failures.push_back(one->name + ": " + rows.error().Message());
      continue;
    }
    for (const Row& row : *rows) {
      on_row(row);
      report.rows.push_back(row);
    }
  }
  return report;
}

}  // namespace segue::bench
