#include "bench/measure.h"

#include <algorithm>
#include <chrono>

namespace segue::bench {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Calls `run` until `seconds` have passed, at least once; appends each call's time.
Status RunBlock(const Contender& contender, double seconds, std::vector<double>* samples_us) {
  const Clock::time_point block = Clock::now();
  do {
    const Clock::time_point start = Clock::now();
    SEGUE_RETURN_IF_ERROR(contender.run());
    if (samples_us != nullptr) samples_us->push_back(MicrosecondsSince(start));
  } while (MicrosecondsSince(block) < seconds * 1e6);
  return {};
}

}  // namespace

Times Summarize(std::vector<double> samples_us) {
  std::sort(samples_us.begin(), samples_us.end());
  const size_t count = samples_us.size();
  const double median = count % 2 == 1 ? samples_us[count / 2]
                                       : (samples_us[count / 2 - 1] + samples_us[count / 2]) / 2;
  return {.median_us = median,
          .min_us = samples_us.front(),
          .max_us = samples_us.back(),
          .samples = static_cast<int64_t>(count)};
}

Result<Comparison> Measure(const Contender& ours, const Contender& peer,
                           const MeasureOptions& options) {
  std::vector<double> our_samples;
  std::vector<double> peer_samples;
  SEGUE_RETURN_IF_ERROR(RunBlock(ours, options.warmup_s, nullptr));
  SEGUE_RETURN_IF_ERROR(RunBlock(ours, options.block_s, &our_samples));
  if (peer.run) {
    // The peer warms up too: its first call allocates and spins up its threads.
    SEGUE_RETURN_IF_ERROR(RunBlock(peer, options.warmup_s / 4, nullptr));
    SEGUE_RETURN_IF_ERROR(RunBlock(peer, options.block_s, &peer_samples));
    SEGUE_RETURN_IF_ERROR(RunBlock(peer, options.block_s, &peer_samples));
  }
  SEGUE_RETURN_IF_ERROR(RunBlock(ours, options.block_s, &our_samples));
  Comparison comparison{.ours = Summarize(std::move(our_samples)), .peer = {}};
  if (!peer_samples.empty()) comparison.peer = Summarize(std::move(peer_samples));
  return comparison;
}

}  // namespace segue::bench
