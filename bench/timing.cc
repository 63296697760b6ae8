#include "bench/timing.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace segue::bench {
namespace {

double Seconds(const std::function<void()>& run, int64_t calls) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) run();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count() / static_cast<double>(calls);
}

double Median(std::vector<double> samples) {
  if (samples.empty()) return 0.0;
  std::sort(samples.begin(), samples.end());
  const size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2.0;
}

// Calls that take about `sample_s`; the probe also warms caches and threads.
int64_t CallsPerSample(const std::function<void()>& run, double sample_s) {
  Seconds(run, 1);
  const double once = std::max(Seconds(run, 1), 1e-7);
  return std::max<int64_t>(static_cast<int64_t>(sample_s / once), 1);
}

}  // namespace

Timing TimePair(const std::function<void()>& ours, const std::function<void()>& peer, int rounds,
                double sample_s) {
  const int64_t our_calls = CallsPerSample(ours, sample_s);
  const int64_t peer_calls = peer ? CallsPerSample(peer, sample_s) : 0;
  std::vector<double> our_samples;
  std::vector<double> peer_samples;
  for (int round = 0; round < rounds; ++round) {
    our_samples.push_back(Seconds(ours, our_calls));
    if (peer) {
      peer_samples.push_back(Seconds(peer, peer_calls));
      peer_samples.push_back(Seconds(peer, peer_calls));
    }
    our_samples.push_back(Seconds(ours, our_calls));
  }
  return {.ours_s = Median(our_samples), .peer_s = Median(peer_samples)};
}

}  // namespace segue::bench
