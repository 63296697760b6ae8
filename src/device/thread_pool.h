// The one thread pool of a CPU engine.
//
// Work is split into tasks by index; which thread runs which task never influences a result,
// because a task owns its outputs and its order of summation is its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace segue {

class ThreadPool {
 public:
  // `threads` counts the calling thread; at least 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Memory a task may use while it runs, private to the worker, aligned to 64 bytes. Its contents
  // do not survive the task. 4 MiB: a packed panel of weights beside a packed block of rows, twice
  // a core's L2; untouched pages cost nothing.
  static constexpr int64_t kScratchBytes = int64_t{4} << 20;
  void* Scratch(int worker) const { return scratch_[worker].get(); }

  // Calls body(task, worker) for every task in [0, tasks), worker in [0, threads()), and returns
  // when all are done. The caller works too. One call at a time; calls must not nest.
  void ForEach(int64_t tasks, const std::function<void(int64_t task, int worker)>& body);

 private:
  using Body = std::function<void(int64_t, int)>;

  void WorkerLoop(int worker);
  void RunTasks(const Body& body, int64_t tasks, int worker);

  struct FreeScratch {
    void operator()(void* pointer) const;
  };

  std::vector<std::unique_ptr<void, FreeScratch>> scratch_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable finished_;
  // Guarded by mutex_ (the atomics only when written): the call in progress, if any.
  const Body* body_ = nullptr;
  int64_t tasks_ = 0;
  uint64_t generation_ = 0;
  int sleeping_ = 0;
  bool stopping_ = false;
  std::atomic<int> active_{0};          // workers inside the call in progress
  std::atomic<uint64_t> published_{0};  // generation_ for spinning workers
  std::atomic<int64_t> next_{0};        // the next task to take
};

}  // namespace segue
