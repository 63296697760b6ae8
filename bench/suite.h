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
  // Run the cases whose name contains one of these, separated by commas; empty: all.
  std::string only;
  // Go on after a case that failed: its error is in Report::failures.
  bool keep_going = false;
  std::string commit;       // of the build, for the report
  std::string peer_python;  // interpreter that has diffusers, for the peer of `generate`
};

// A driver verifies and times one case; it may give several rows.
using Driver = std::function<Result<std::vector<Row>>(const Case&, const SuiteOptions&)>;

// The drivers by the name suites use.
const std::map<std::string, Driver>& Drivers();

// Runs the cases in order. `on_row` sees each row as it is measured. Drivers whose name begins with
// gpu_ make it a report of the GPU. Errors: an unknown driver (it names those there are), no case
// selected, no GPU for those that need one, a driver's own unless keep_going.
Result<Report> RunSuite(const std::vector<Case>& cases, const SuiteOptions& options,
                        const std::function<void(const Row&)>& on_row);

// The suite files built into the program, by name ("cpu").
const std::map<std::string, std::string_view>& BuiltInSuites();

}  // namespace segue::bench
