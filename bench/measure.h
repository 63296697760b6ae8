// How a thing is timed beside its peer: alternating blocks of one run, medians.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "segue/status.h"

namespace segue::bench {

// One contender. `run` does the whole measured work once, synchronously.
struct Contender {
  std::string name;
  std::string version;
  std::function<Status()> run;
};

struct Times {
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
  int64_t samples = 0;
};

struct MeasureOptions {
  double warmup_s = 1.0;  // of back-to-back calls before the first sample
  double block_s = 0.5;   // length of each of the four blocks
};

struct Comparison {
  Times ours;
  Times peer;  // samples == 0 without a peer
};

// Runs ours / peer / peer / ours back to back, each block at least block_s long and at least one
// call, and takes medians over each contender's two blocks. `peer.run` may be empty. Errors: the
// first error of either contender.
Result<Comparison> Measure(const Contender& ours, const Contender& peer,
                           const MeasureOptions& options);

// Median, minimum and maximum of samples in microseconds. Precondition: not empty.
Times Summarize(std::vector<double> samples_us);

}  // namespace segue::bench
