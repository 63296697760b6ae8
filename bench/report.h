// Rows of a benchmark, as a table for people and as the JSON of docs/measurements/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace segue::bench {

// A field that was not measured is absent, and null in the JSON.
struct Row {
  std::string case_name;
  std::string variant;  // ours, e.g. the kernel that ran
  std::string mode;     // "hot" or "burst"
  std::optional<double> median_us;
  std::optional<double> min_us;
  std::optional<double> max_us;
  std::optional<double> rate;  // ours, in `unit`
  std::string unit;            // e.g. "GFLOP/s", "s", "MiB"
  std::string peer;
  std::string peer_version;
  std::optional<double> peer_median_us;
  std::optional<double> ratio;  // peer time over ours; a cost: ours over its base
  std::optional<double> sm_clock_mhz;
  std::optional<double> power_w;
  std::optional<double> temp_c;
  std::string note;  // for people who watch the run; not in the reports
};

// Fills the timing fields of a row; `work` is the operations (or bytes) of one call and
// `unit_scale` what one unit of `rate` is a second, e.g. 1e9 for GFLOP/s.
void SetTimes(const Comparison& comparison, double work, double unit_scale, Row* row);

struct Report {
  std::string device;  // processor or GPU, with the threads used
  std::string driver;  // empty on the CPU
  std::string cuda;    // empty on the CPU
  std::string commit;
  std::string date;  // YYYY-MM-DD
  std::vector<Row> rows;
  std::vector<std::string> failures;  // of cases, where the run went on
};

std::string ReportTable(const Report& report);
std::string ReportJson(const Report& report);

// The processor's name and the threads in use, e.g. "Intel(R) Xeon(R) Processor, 2 threads".
std::string ProcessorName(int threads);
// Today, UTC.
std::string Today();

}  // namespace segue::bench
