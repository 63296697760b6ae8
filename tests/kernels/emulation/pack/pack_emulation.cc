// A GPU for packing on the host: the kernels' own sources, threads as fibers that meet in step, and
// the few runtime calls that tests/gpu/pack_*.cc make. Those tests run here without a GPU; what
// hardware does beyond the program's logic is not modelled.
#include <cuda_runtime.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/attention_batch.h"

EmulatedIndex threadIdx;
EmulatedIndex blockIdx;
EmulatedIndex gridDim;

namespace {

constexpr uint32_t kMaxThreads = 256;
constexpr size_t kStackBytes = 128 << 10;

struct Fiber {
  ucontext_t context{};
  std::vector<uint8_t> stack;
  uint32_t meetings = 0;
  bool done = true;
};

class Machine {
 public:
  static Machine& Get() {
    static Machine machine;
    return machine;
  }

  void RunGrid(uint32_t ctas, uint32_t threads, const std::function<void()>& thread) {
    if (threads > kMaxThreads) std::abort();
    Prepare(threads);
    thread_ = &thread;
    gridDim.x = ctas;
    backwards_ = !backwards_;  // the order of CTAs must not matter
    for (uint32_t i = 0; i < ctas; ++i) {
      blockIdx.x = backwards_ ? ctas - 1 - i : i;
      RunCta(threads);
    }
  }

  // Values stay until the thread's meeting after the next.
  const uint32_t* Meet(uint32_t value) {
    Fiber& fiber = *fibers_[running_];
    uint32_t* values = values_[fiber.meetings++ % 2];
    values[running_] = value;
    Yield();
    return values;
  }
  uint32_t threads() const { return threads_; }

 private:
  static void Enter() {
    Machine& machine = Get();
    for (;;) {
      (*machine.thread_)();
      machine.fibers_[machine.running_]->done = true;
      machine.Yield();
    }
  }

  void Yield() {
    const uint32_t mine = running_;
    swapcontext(&fibers_[mine]->context, &scheduler_);
    threadIdx.x = mine;
  }

  void Prepare(uint32_t threads) {
    threads_ = threads;
    while (fibers_.size() < threads) {
      fibers_.push_back(std::make_unique<Fiber>());
      Fiber& fiber = *fibers_.back();
      fiber.stack.resize(kStackBytes);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = fiber.stack.size();
      makecontext(&fiber.context, &Machine::Enter, 0);
    }
  }

  void RunCta(uint32_t threads) {
    for (uint32_t t = 0; t < threads; ++t) fibers_[t]->done = false;
    uint32_t done = 0;
    while (done < threads) {
      if (done > 0) std::abort();  // some threads returned where others wait for them
      for (uint32_t t = 0; t < threads; ++t) {
        running_ = t;
        threadIdx.x = t;
        swapcontext(&scheduler_, &fibers_[t]->context);
        done += fibers_[t]->done ? 1 : 0;
      }
    }
  }

  ucontext_t scheduler_{};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  const std::function<void()>* thread_ = nullptr;
  uint32_t threads_ = 0;
  uint32_t running_ = 0;
  uint32_t values_[2][kMaxThreads] = {};
  bool backwards_ = true;
};

EmulatedGraph* g_capture = nullptr;
cudaStream_t g_captured_stream = nullptr;

}  // namespace

const uint32_t* EmulatedMeet(uint32_t value) { return Machine::Get().Meet(value); }

int __syncthreads_and(int predicate) {
  const uint32_t* values = EmulatedMeet(predicate != 0 ? 1 : 0);
  uint32_t all = 1;
  for (uint32_t t = 0; t < Machine::Get().threads(); ++t) all &= values[t];
  return static_cast<int>(all);
}

cudaError_t EmulatedLaunch(const cudaLaunchConfig_t& config, const std::function<void()>& thread) {
  if (config.gridDim.x == 0 || config.blockDim.x == 0) return cudaErrorInvalidValue;
  std::function<void()> launch = [ctas = config.gridDim.x, threads = config.blockDim.x, thread] {
    Machine::Get().RunGrid(ctas, threads, thread);
  };
  if (g_capture == nullptr) {
    launch();
  } else if (config.stream == g_captured_stream) {
    g_capture->launches.push_back(std::move(launch));
  } else {
    return cudaErrorInvalidValue;  // a launch that escapes the capture
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new char;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete static_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  g_capture = new EmulatedGraph;
  g_captured_stream = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = g_capture;
  g_capture = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = graph->launches.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned) {
  *executable = new EmulatedGraph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  for (const auto& launch : executable->launches) launch();
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

namespace segue::kernels {

std::string NoGpuReason() { return ""; }

GpuMemory::GpuMemory(int64_t bytes, Place)
    : data_(std::aligned_alloc(256, static_cast<size_t>((bytes + 256) / 256 * 256))),
      bytes_(bytes) {}
GpuMemory::~GpuMemory() { std::free(data_); }
void GpuMemory::Write(const void* from) { std::memcpy(data_, from, static_cast<size_t>(bytes_)); }
void GpuMemory::Read(void* to) const { std::memcpy(to, data_, static_cast<size_t>(bytes_)); }

}  // namespace segue::kernels
