// GPUs for groups on the host: a CTA is a thread, its threads are fibers that meet in step. Ranks
// launch from threads of their own, so CTAs of all ranks run at once.
#include <cuda_runtime.h>
#include <ucontext.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

thread_local EmulatedIndex threadIdx;
thread_local EmulatedIndex blockIdx;
thread_local EmulatedIndex blockDim;
thread_local EmulatedIndex gridDim;

namespace {

constexpr size_t kStackBytes = 128 << 10;

// The fibers of one CTA. Stays on its thread.
class Cta {
 public:
  Cta(uint32_t threads, const std::function<void()>& thread)
      : thread_(&thread),
        fibers_(threads),
        values_{std::vector<uint32_t>(threads), std::vector<uint32_t>(threads)} {
    for (Fiber& fiber : fibers_) {
      fiber.stack = std::unique_ptr<char[]>(new char[kStackBytes]);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStackBytes;
      fiber.context.uc_link = &scheduler_;
      makecontext(&fiber.context, &Cta::Enter, 0);
    }
  }

  static Cta*& current() {
    static thread_local Cta* cta = nullptr;
    return cta;
  }

  void Run() {
    current() = this;
    for (size_t done = 0; done < fibers_.size();) {
      if (done > 0) std::abort();  // some threads returned where others wait for them
      for (running_ = 0; running_ < fibers_.size(); ++running_) {
        threadIdx.x = static_cast<uint32_t>(running_);
        swapcontext(&scheduler_, &fibers_[running_].context);
        done += fibers_[running_].done ? 1 : 0;
      }
    }
  }

  // Values stay until the thread's meeting after the next.
  const uint32_t* Meet(uint32_t value) {
    const size_t mine = running_;
    std::vector<uint32_t>& values = values_[fibers_[mine].meetings++ % 2];
    values[mine] = value;
    swapcontext(&fibers_[mine].context, &scheduler_);
    return values.data();
  }

 private:
  struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    uint32_t meetings = 0;
    bool done = false;
  };

  static void Enter() {
    Cta& cta = *current();
    (*cta.thread_)();
    cta.fibers_[cta.running_].done = true;
  }

  const std::function<void()>* thread_;
  ucontext_t scheduler_{};
  std::vector<Fiber> fibers_;
  std::vector<uint32_t> values_[2];
  size_t running_ = 0;
};

}  // namespace

const uint32_t* EmulatedMeet(uint32_t value) { return Cta::current()->Meet(value); }

void EmulatedLaunch(uint32_t ctas, uint32_t threads, const std::function<void()>& thread) {
  std::vector<std::thread> workers;
  workers.reserve(ctas);
  for (uint32_t i = 0; i < ctas; ++i) {
    workers.emplace_back([=, &thread] {
      blockIdx.x = i;
      blockDim.x = threads;
      gridDim.x = ctas;
      Cta(threads, thread).Run();
    });
  }
  for (std::thread& worker : workers) worker.join();
}
