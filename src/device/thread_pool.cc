#include "device/thread_pool.h"

#include <algorithm>
#include <cstdlib>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace segue {
namespace {

// A forward of a small model is thousands of calls of 10-100 us each; a sleeping worker costs
// about 50 us to wake. Spinning for some 20-80 us of pause instructions (10 to 40 ns each) bridges
// the gap between two calls and costs nothing once the engine is idle.
constexpr int kSpins = 2000;

inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

void ThreadPool::FreeScratch::operator()(void* pointer) const { std::free(pointer); }

ThreadPool::ThreadPool(int threads) {
  for (int worker = 0; worker < std::max(threads, 1); ++worker) {
    scratch_.emplace_back(std::aligned_alloc(64, kScratchBytes));
  }
  for (int worker = 1; worker < std::max(threads, 1); ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    published_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ForEach(int64_t tasks, const std::function<void(int64_t task, int worker)>& body) {
  if (workers_.empty() || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    ++generation_;
    published_.store(generation_, std::memory_order_release);
    wake = sleeping_ > 0;
  }
  if (wake) start_.notify_all();
  RunTasks(body, tasks, 0);
  {
    // A worker that has not joined by now finds no call to join: nobody waits for it to wake up.
    const std::lock_guard lock(mutex_);
    body_ = nullptr;
  }
  for (int spin = 0; spin < kSpins && active_.load(std::memory_order_acquire) > 0; ++spin) Pause();
  if (active_.load(std::memory_order_acquire) == 0) return;
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return active_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::RunTasks(const Body& body, int64_t tasks, int worker) {
  for (int64_t task = next_.fetch_add(1, std::memory_order_relaxed); task < tasks;
       task = next_.fetch_add(1, std::memory_order_relaxed)) {
    body(task, worker);
  }
}

void ThreadPool::WorkerLoop(int worker) {
  uint64_t seen = 0;
  while (true) {
    for (int spin = 0; spin < kSpins && published_.load(std::memory_order_acquire) == seen;
         ++spin) {
      Pause();
    }
    const Body* body = nullptr;
    int64_t tasks = 0;
    {
      std::unique_lock lock(mutex_);
      ++sleeping_;
      start_.wait(lock, [&] { return stopping_ || generation_ != seen; });
      --sleeping_;
      if (stopping_) return;
      seen = generation_;
      if (body_ == nullptr) continue;
      body = body_;
      tasks = tasks_;
      active_.fetch_add(1, std::memory_order_relaxed);
    }
    RunTasks(*body, tasks, worker);
    const std::lock_guard lock(mutex_);
    if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_.notify_one();
  }
}

}  // namespace segue
