// What tests of groups on the host are built from.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/group.h"

namespace segue::comm {

// Runs `body(rank)` as every rank, each on a thread of its own.
inline void AsRanks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

// Whole numbers below 64: sums over eight ranks are exact in float32 and, below 256, in bfloat16.
inline float ExactValue(int64_t element, int rank, int64_t call) {
  return static_cast<float>((element * 7 + rank * 5 + call * 3) % 31);
}
inline float ExactSum(int64_t element, int ranks, int64_t call) {
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += ExactValue(element, rank, call);
  return sum;
}

inline std::string Text(const Status& status) {
  return status.ok() ? "" : status.error().Message();
}

// A pool of one and a context on it.
struct RankContext {
  ThreadPool pool{1};
  kernels::KernelLog log;
  kernels::Context context{.stream = Stream::Cpu(pool), .log = &log};
};

}  // namespace segue::comm
