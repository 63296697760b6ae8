// The engine: a model, loaded once and constant, and the requests it advances together.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "segue/request.h"
#include "segue/status.h"

namespace segue {

// A denoising schedule follows from a request's number of steps and its size. Absent: the model's.
struct ScheduleName {
  std::optional<int> steps;
  std::optional<int> width;
  std::optional<int> height;
};

struct EngineOptions {
  std::string model_directory;  // a checkpoint in diffusers' QwenImagePipeline layout
  // "cpu", "cuda" (the first GPU) or "cuda:N". On a GPU everything is bfloat16 with float32 sums,
  // rounded where the bfloat16 reference rounds.
  std::string device = "cpu";
  int threads = 0;  // CPU threads; 0: one per core
  // Round to bfloat16 where the bfloat16 reference does, instead of computing in float32. Weights
  // are used as stored: the comparison means most for a checkpoint whose weights are bfloat16.
  bool bf16_rounding = false;
  bool reference_kernels = false;  // run only the plain reference implementations
  // The transformer's only attention back end ("cpu", "ref"); empty: the first that accepts. One
  // that the model does not admit, or that cannot run here, is Load's error, with the reason.
  std::string attention_backend;
  // Random weights of this seed for the directory's configurations, whatever weights it holds.
  std::optional<uint64_t> random_weights;
  // GPU: record a step once per shape of batch and replay it. Off: the same bytes, slower.
  bool graphs = true;
  // GPU: where choices of algorithms are kept between runs; empty: nowhere. Of no effect on bytes.
  std::string cache_directory;
  // GPU: the only schedules that requests may have. What the transformer's modulation is at their
  // steps is tabulated at load, and the weights that it follows from, a third of the
  // transformer's, are not kept: they leave before the others come. A request with another
  // schedule is refused. Empty: any schedule. An error on the CPU, where weights stay in their
  // files' mappings.
  std::vector<ScheduleName> schedules;
  // Ranks that make a picture together, each with a slice of every layer of the transformer: heads
  // and hidden units are dealt out whole, so that the number must divide the heads. A rank is a
  // thread of this process. The same number gives the same bytes; another one adds products up in
  // another order. On the CPU ranks share `threads`; on GPUs "cuda:2" and 2 are cuda:2 and cuda:3.
  int tensor_parallel = 1;
  // Two ranks, one for each guidance branch of a request, with the bytes of one rank. Requests
  // without guidance are refused. Not with tensor_parallel, not on a GPU.
  bool cfg_parallel = false;
  // Called while weights are read onto a GPU, with bytes done and of all; false cancels.
  std::function<bool(int64_t, int64_t)> load_progress;
};

// Settings segue.json gives for a model; a request's absent fields take these.
struct ModelDefaults {
  int width = 1024;
  int height = 1024;
  int steps = 50;
  double guidance = 4.0;
  std::string negative_prompt = " ";
};

using RequestId = uint64_t;

// Progress of one request, reported after every step.
struct Progress {
  RequestId id = 0;
  int step = 0;  // steps done
  int steps = 0;
  double step_seconds = 0;  // of the last step, shared by all requests that ran in it
};

// Memory of an engine's GPU, with several of the first one's, what sums travel through apart; all 0
// on the CPU. Bytes.
struct MemoryReport {
  // What `segue inspect` plans, for the requests that there were, those that ran together counted
  // together.
  int64_t planned = 0;
  int64_t allocated = 0;  // by the engine, now
  int64_t peak = 0;       // by the engine, the most at once
  // What the device has less free than before loading: beside the engine's allocations the
  // libraries' and kernels' code, and graphs. Other programs' use of the device counts too.
  int64_t device = 0;
};

// What one call of Step() did.
struct StepReport {
  std::vector<Progress> advanced;
  std::vector<RequestId> finished;  // ready for Take()
};

// Not thread-safe: one thread calls it. Distinct engines are independent.
class Engine {
 public:
  // Reads and checks every header and configuration, maps the weights. Errors name file and field.
  static Result<std::unique_ptr<Engine>> Load(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelDefaults& defaults() const;
  // Errors: what the driver said.
  Result<MemoryReport> memory() const;

  // OK, or the error after which the engine runs nothing any more: with several ranks, what failed
  // on one of them. Requests that ran have it as their error, others are refused with it.
  Status health() const;

  // Checks a request without running it: the error Submit would give.
  Status Validate(const Request& request) const;
  // Encodes the prompts and joins the request to the running set; it takes part from the next
  // Step on. A request's bytes do not depend on which others run beside it.
  Result<RequestId> Submit(const Request& request);
  // Advances every running request by one step of its own schedule, all of one quality tier and
  // the same gates in one packed forward, and decodes those whose schedule is done. A request that
  // fails (a non-finite latent, say) is finished with that error and does not disturb the others.
  Result<StepReport> Step();
  // Removes a finished request and returns its picture or its error.
  Result<Picture> Take(RequestId id);
  // Removes a request at any point; unknown ids are an error.
  Status Cancel(RequestId id);

  // Submit, Step until done, Take. `progress` is called after each step; returning false cancels.
  Result<Picture> Generate(const Request& request,
                           const std::function<bool(const Progress&)>& progress = {});

 private:
  friend class EngineLoader;  // tests choose where the memory comes from
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace segue
