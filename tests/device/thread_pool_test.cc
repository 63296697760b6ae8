#include "device/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

namespace segue {
namespace {

TEST(ThreadPool, EveryTaskRunsOnceForAnyThreadCount) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 200; ++round) {
      const int64_t tasks = round % 17;
      std::vector<std::atomic<int>> runs(17);
      pool.ForEach(tasks, [&](int64_t task, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        runs[task].fetch_add(1);
      });
      for (int64_t task = 0; task < 17; ++task) EXPECT_EQ(runs[task].load(), task < tasks ? 1 : 0);
    }
  }
}

TEST(ThreadPool, ScratchIsPrivateToAWorker) {
  ThreadPool pool(3);
  std::atomic<int> clashes{0};
  pool.ForEach(300, [&](int64_t task, int worker) {
    auto* scratch = static_cast<unsigned char*>(pool.Scratch(worker));
    const auto mark = static_cast<unsigned char>(task);
    std::memset(scratch, mark, 4096);
    for (int i = 0; i < 4096; ++i) clashes += scratch[i] != mark;
  });
  EXPECT_EQ(clashes.load(), 0);
}

}  // namespace
}  // namespace segue
