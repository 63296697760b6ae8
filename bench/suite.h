// Suites are text files: a case a line, `<driver> <case> key=value ...`; '#' starts a comment.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/report.h"
#include "kernels/cpu_isa.h"
#include "segue/status.h"

namespace segue::bench {

struct Case {
  std::string driver;
  std::string name;
  std::map<std::string, std::string> values;

  // The integer value of a key. Errors: absent, not a whole number.
  Result<int64_t> Integer(const std::string& key) const;
  // The value of a key, or `fallback`.
  std::string Text(const std::string& key, const std::string& fallback) const;
};

// Errors name the line.
Result<std::vector<Case>> ParseSuite(std::string_view text);

struct SuiteOptions {
  int threads = 2;
  kernels::CpuIsa widest_isa = kernels::CpuIsa::kAvx512;  // kAvx2 holds the peer to AVX2 as well
  MeasureOptions measure;
  std::string only;         // run the cases whose name contains this; empty: all
  std::string commit;       // of the build, for the report
  std::string peer_python;  // interpreter that has diffusers, for the peer of `generate`
};

// A driver verifies and times one case; it may give several rows.
using Driver = std::function<Result<std::vector<Row>>(const Case&, const SuiteOptions&)>;

// The drivers by the name suites use.
const std::map<std::string, Driver>& Drivers();

// Runs the cases in order. `on_row` sees each row as it is measured. Errors: an unknown driver (it
// names those there are), no case selected, a driver's own.
Result<Report> RunSuite(const std::vector<Case>& cases, const SuiteOptions& options,
                        const std::function<void(const Row&)>& on_row);

// The suite files built into the program, by name ("cpu").
const std::map<std::string, std::string_view>& BuiltInSuites();

}  // namespace segue::bench
