#include "segue/engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "comm/communicator.h"
#include "device/gpu.h"
#include "device/thread_pool.h"
#include "model/dit/dit.h"
#include "model/tokenizer/tokenizer.h"
#include "model/weights/checkpoint.h"
#include "runtime/checkpoint_networks.h"
#include "runtime/engine_memory.h"
#include "runtime/exceptions.h"
#include "runtime/gpu_memory_plan.h"
#include "runtime/gpu_rank.h"
#include "runtime/memory_check.h"
#include "runtime/named_schedules.h"
#include "runtime/pipeline.h"
#include "runtime/rank_stages.h"
#include "runtime/settings.h"

namespace segue {
namespace {

// More threads than any machine this runs on; far more only fail to start.
constexpr int kMaxThreads = 1024;

Error IdError(const char* operation, RequestId id, const char* wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = operation,
          .argument = "request id",
          .got = std::to_string(id),
          .wanted = wanted};
}

Result<int> ResolveThreads(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "load model",
                 .argument = "threads",
                 .got = std::to_string(threads),
                 .wanted = "0 (one a core) or 1.." + std::to_string(kMaxThreads)};
  }
  if (threads > 0) return threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

// What ran between two snapshots.
std::vector<KernelUse> KernelsSince(const runtime::KernelCounts& before,
                                    const runtime::KernelCounts& after) {
  std::vector<KernelUse> used;
  for (const auto& [op, entries] : after) {
    const auto earlier = before.find(op);
    for (const kernels::KernelLog::Entry& entry : entries) {
      int64_t calls = entry.calls;
      if (earlier != before.end()) {
        for (const kernels::KernelLog::Entry& old : earlier->second) {
          if (old.kernel == entry.kernel) calls -= old.calls;
        }
      }
      if (calls > 0) used.push_back({op, entry.kernel, calls, entry.passed_over});
    }
  }
  return used;
}

Error UnguidedError(double guidance) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "check request",
          .argument = "guidance",
          .got = std::to_string(guidance) + " on an engine with cfg_parallel",
          .wanted = "more than 1: without guidance there is no second branch"};
}

std::string TruncationWarning(const char* which, const model::PromptIds& prompt) {
  return std::string("the ") + which + " is too long: " + std::to_string(prompt.untruncated_rows) +
         " tokens, of which the first " + std::to_string(prompt.rows) + " are used";
}

}  // namespace

class Engine::Impl {
 public:
  static Result<std::unique_ptr<Impl>> Load(const EngineOptions& options,
                                            const EngineMemory& memory);
  Impl(model::Checkpoint checkpoint, model::Tokenizer tokenizer, const runtime::RankLayout& layout,
       int threads, const EngineMemory& memory)
      : checkpoint_(std::move(checkpoint)),
        tokenizer_(std::move(tokenizer)),
        layout_(layout),
        threads_(threads),
        pool_(layout.ranks() > 1 ? 1 : threads),  // several ranks have their own
        memory_(memory) {}

  // Views the weights, or brings them to the GPU; the checkpoint is at its final address by now.
  Status LoadModel(const EngineOptions& options, int device) {
    model::ForwardContext context = {
        .kernels = {.stream = Stream::Cpu(pool_),
                    .log = &log_,
                    .reference_only = options.reference_kernels},
        .rounding = options.bf16_rounding ? kernels::Rounding::kBF16 : kernels::Rounding::kNone,
        .attention_backend = options.attention_backend,
        .communicator = &communicator_};
    if (device >= 0) return LoadOnGpu(options, device, context);
    DeviceMemory& host = memory_.host != nullptr ? *memory_.host : HostMemory();
    if (layout_.ranks() > 1) {
      SEGUE_ASSIGN_OR_RETURN(ranks_, runtime::RankStages::OnHost({.checkpoint = &checkpoint_,
                                                                  .context = context,
                                                                  .layout = layout_,
                                                                  .threads = threads_,
                                                                  .memory = &host}));
      stages_ = ranks_.get();
      return {};
    }
    store_ = model::WeightStore::Host(host);
    SEGUE_ASSIGN_OR_RETURN(model_, model::QwenImage::Load(checkpoint_, communicator_, *store_));
    SEGUE_RETURN_IF_ERROR(store_->Allocate());
    pipeline_ = std::make_unique<runtime::HostPipeline>(*model_, context, host);
    stages_ = pipeline_.get();
    return {};
  }

  const ModelDefaults& defaults() const { return checkpoint_.defaults(); }

  // A request with its settings resolved and its prompts tokenised: all that can be wrong with it
  // before any compute, except memory.
  Result<std::unique_ptr<runtime::RequestState>> Prepare(const Request& request) const {
    auto state = std::make_unique<runtime::RequestState>();
    SEGUE_ASSIGN_OR_RETURN(
        state->settings,
        runtime::ResolveSettings(request, defaults(), checkpoint_.dit_config().in_channels));
    runtime::Settings& settings = state->settings;
    SEGUE_ASSIGN_OR_RETURN(
        state->schedule, runtime::MakeNoiseSchedule(checkpoint_.flow_match_config(), settings.steps,
                                                    settings.image_rows()));
    if (!schedules_.empty()) {
      SEGUE_RETURN_IF_ERROR(schedules_.Check(settings, state->schedule));
    }
    if (layout_.splits_branches && !settings.guided) return UnguidedError(settings.guidance);
    SEGUE_RETURN_IF_ERROR(AddPrompt("prompt", request.prompt, *state));
    if (settings.guided) {
      SEGUE_RETURN_IF_ERROR(AddPrompt("negative prompt", settings.negative_prompt, *state));
    }
    state->keep_stages = request.keep_stages;
    return state;
  }

  // On the host; a GPU's allocations are few, and each says itself what it lacked.
  Status CheckMemory(const runtime::RequestState& state) const {
    if (gpu_ != nullptr) return {};
    std::vector<const runtime::RequestState*> others;
    others.reserve(running_.size());
    for (const auto& [id, running] : running_) others.push_back(running.get());
    return runtime::CheckRequestMemory(runtime::ConfigOf(checkpoint_), state, others, HostInfo());
  }

  Result<RequestId> Submit(const Request& request) {
    SEGUE_RETURN_IF_ERROR(UseDevice());
    SEGUE_ASSIGN_OR_RETURN(std::unique_ptr<runtime::RequestState> state, Prepare(request));
    SEGUE_RETURN_IF_ERROR(CheckMemory(*state));
    if (gpu_ != nullptr) SEGUE_RETURN_IF_ERROR(PlanMemory(*state));
    state->given_latents = request.latents;
    state->kernels_before = log_.Snapshot();
    stages_->Mount(*state);
    const RequestId id = next_id_++;
    state->id = id;
    SEGUE_RETURN_IF_ERROR(stages_->Encode(*state));
    running_.emplace(id, std::move(state));
    return id;
  }

  Result<StepReport> Step() {
    StepReport report;
    if (running_.empty()) return report;
    SEGUE_RETURN_IF_ERROR(UseDevice());
    // A forward has one tier and one set of gates.
    std::map<quality::MountedGates, std::vector<runtime::RequestState*>> forwards;
    for (const auto& [id, request] : running_) {
      forwards[request->quality.mounted].push_back(request.get());
    }
    for (const auto& [mounted, requests] : forwards) Advance(requests, report);
    return report;
  }

  // One step of requests that share a forward.
  void Advance(Span<runtime::RequestState* const> requests, StepReport& report) {
    const auto start = std::chrono::steady_clock::now();
    stages_->Denoise(requests);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (runtime::RequestState* request : requests) {
      request->times.denoise_s += seconds;
      if (request->status.ok()) {
        report.advanced.push_back({request->id, request->step, request->schedule.steps(), seconds});
        if (request->done()) {
          request->status =
              runtime::WithoutExceptions("decode", [&] { return stages_->Decode(*request); });
        }
      }
      if (request->status.ok() && !request->done()) continue;
      report.finished.push_back(request->id);
      Finish(request->id);
    }
  }

  Result<Picture> Take(RequestId id) {
    const auto found = finished_.find(id);
    if (found == finished_.end()) {
      return IdError("take picture", id,
                     running_.contains(id) ? "a finished request (this one is still running)"
                                           : "a finished request");
    }
    Result<Picture> picture = std::move(found->second);
    finished_.erase(found);
    return picture;
  }

  Status Cancel(RequestId id) {
    if (const auto found = running_.find(id); found != running_.end()) {
      stages_->Forget(*found->second);
      running_.erase(found);
      return {};
    }
    if (finished_.erase(id) > 0) return {};
    return IdError("cancel request", id, "a request that was submitted and not yet taken");
  }

  Status health() const { return stages_->health(); }

  bool Finished(RequestId id) const { return finished_.contains(id); }

  Result<MemoryReport> memory() const {
    if (gpu_ == nullptr) return MemoryReport{};
    const runtime::GpuResources& gpu = *gpu_->resources;
    SEGUE_ASSIGN_OR_RETURN(const GpuMemoryInfo now, FreeAndTotal(gpu.device()));
    return MemoryReport{.planned = planned_bytes_,
                        .allocated = gpu.count().live_bytes(),
                        .peak = gpu.count().peak_bytes(),
                        .device = gpu.free_before() - now.free_bytes};
  }

 private:
  // The caller may be another thread than the one that loaded.
  Status UseDevice() const {
    return gpu_ != nullptr ? SetCurrentDevice(gpu_->resources->device()) : Status();
  }

  Status LoadOnGpu(const EngineOptions& options, int device, const model::ForwardContext& context) {
    SEGUE_ASSIGN_OR_RETURN(schedules_,
                           runtime::NamedSchedules::Resolve(options.schedules, defaults(),
                                                            checkpoint_.flow_match_config(),
                                                            checkpoint_.dit_config().in_channels));
    const runtime::GpuRankSettings settings = {.checkpoint = &checkpoint_,
                                               .communicator = &communicator_,
                                               .device = device,
                                               .schedules = &schedules_,
                                               .options = &options,
                                               .context = context,
                                               .memory = memory_,
                                               .host_pool = &pool_};
    if (layout_.ranks() > 1) {
      SEGUE_ASSIGN_OR_RETURN(ranks_, runtime::RankStages::OnGpus(settings, layout_));
      stages_ = ranks_.get();
      gpu_ = ranks_->gpu();
    } else {
      SEGUE_ASSIGN_OR_RETURN(gpu_rank_, runtime::LoadGpuRank(settings));
      stages_ = gpu_rank_->pipeline.get();
      gpu_ = &*gpu_rank_;
    }
    device_name_ = gpu_->name;
    return {};
  }

  // The memory of those that are running and of one that joins them.
  Status PlanMemory(const runtime::RequestState& joining) {
    std::vector<runtime::PlannedRequest> requests = {runtime::PlannedRequest::Of(joining)};
    requests.reserve(running_.size() + 1);
    for (const auto& [id, state] : running_) {
      requests.push_back(runtime::PlannedRequest::Of(*state));
    }
    SEGUE_ASSIGN_OR_RETURN(const runtime::GpuMemoryPlan plan,
                           runtime::PlanGpuMemory(*gpu_->model, gpu_->plan, requests));
    planned_bytes_ = std::max(planned_bytes_, plan.peak());
    return {};
  }

  Status AddPrompt(const char* which, const std::string& text, runtime::RequestState& state) const {
    auto prompt = tokenizer_.EncodePrompt(text);
    if (!prompt.ok()) {
      Error error = prompt.error();
      error.argument = which + (error.argument.empty() ? "" : ": " + error.argument);
      return error;
    }
    if (prompt->truncated) state.settings.warnings.push_back(TruncationWarning(which, *prompt));
    state.prompts.push_back(std::move(*prompt));
    return {};
  }

  void Finish(RequestId id) {
    const auto found = running_.find(id);
    runtime::RequestState& request = *found->second;
    stages_->Forget(request);
    if (request.status.ok()) {
      finished_.emplace(id, MakePicture(request));
    } else {
      finished_.emplace(id, request.status.error());
    }
    running_.erase(found);
  }

  Picture MakePicture(runtime::RequestState& request) const {
    runtime::Settings& settings = request.settings;
    Picture picture;
    picture.image = std::move(request.image);
    picture.steps = settings.steps;
    picture.guidance = settings.guidance;
    picture.guided = settings.guided;
    picture.negative_prompt = settings.negative_prompt;
    picture.seed = settings.seed;
    picture.prompt_tokens = request.prompts[0].rows;
    picture.negative_prompt_tokens = settings.guided ? request.prompts[1].rows : 0;
    picture.times = request.times;
    picture.warnings = std::move(settings.warnings);
    picture.kernels = KernelsSince(request.kernels_before, log_.Snapshot());
    picture.device = device_name_;
    picture.quality = request.quality.Report();
    picture.attention_backend = std::move(request.attention_backend);
    picture.graph = request.graph;
    picture.stages = std::move(request.stages);
    return picture;
  }

  model::Checkpoint checkpoint_;
  model::Tokenizer tokenizer_;
  comm::SingleRank communicator_;
  runtime::RankLayout layout_;
  int threads_;
  ThreadPool pool_;
  EngineMemory memory_;
  kernels::KernelLog log_;
  std::string device_name_ = "cpu";
  runtime::NamedSchedules schedules_;  // none: any
  int64_t planned_bytes_ = 0;
  std::optional<model::WeightStore> store_;
  std::unique_ptr<const model::QwenImage> model_;
  std::unique_ptr<runtime::Pipeline> pipeline_;
  std::optional<runtime::GpuRank> gpu_rank_;    // in place of the three, on one GPU
  std::unique_ptr<runtime::RankStages> ranks_;  // on several ranks
  runtime::Stages* stages_ = nullptr;           // whichever there is
  const runtime::GpuRank* gpu_ = nullptr;       // the first GPU; null: the CPU
  RequestId next_id_ = 1;
  std::map<RequestId, std::unique_ptr<runtime::RequestState>> running_;  // in order of arrival
  std::map<RequestId, Result<Picture>> finished_;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options) {
  return EngineLoader::Load(options, {});
}

Result<std::unique_ptr<Engine>> EngineLoader::Load(const EngineOptions& options,
                                                   const EngineMemory& memory) {
  auto impl =
      runtime::WithoutExceptions("load model", [&] { return Engine::Impl::Load(options, memory); });
  if (!impl.ok()) return std::move(impl).error();
  return std::unique_ptr<Engine>(new Engine(std::move(*impl)));
}

Result<std::unique_ptr<Engine::Impl>> Engine::Impl::Load(const EngineOptions& options,
                                                         const EngineMemory& memory) {
  SEGUE_ASSIGN_OR_RETURN(const int threads, ResolveThreads(options.threads));
  SEGUE_ASSIGN_OR_RETURN(const int device, runtime::ParseDevice(options.device));
  const runtime::RankLayout layout = {.tensor = options.tensor_parallel,
                                      .splits_branches = options.cfg_parallel};
  SEGUE_RETURN_IF_ERROR(runtime::CheckRankLayout(layout));
  if (device >= 0 && layout.splits_branches) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = "load model",
                 .argument = "cfg_parallel",
                 .got = "device " + options.device,
                 .wanted = "the CPU, or tensor_parallel: a GPU's steps have both branches"};
  }
  if (!options.schedules.empty() && device < 0) {
    return Error{.code = ErrorCode::kUnsupported,
                 .operation = "load model",
                 .argument = "schedules",
                 .got =
                     "the CPU, where weights stay in their files' mappings and dropping some "
                     "frees nothing",
                 .wanted = "device cuda, or any schedule"};
  }
  SEGUE_ASSIGN_OR_RETURN(
      model::Checkpoint checkpoint,
      options.random_weights
          ? model::Checkpoint::OpenRandom(options.model_directory, *options.random_weights)
          : model::Checkpoint::Open(options.model_directory));
  if (!options.attention_backend.empty() && device < 0) {
    SEGUE_RETURN_IF_ERROR(
        model::CheckAttentionBackend(checkpoint.dit_config(), options.attention_backend));
  }
  if (device < 0) SEGUE_RETURN_IF_ERROR(runtime::CheckModelMemory(checkpoint, HostInfo()));
  SEGUE_ASSIGN_OR_RETURN(model::Tokenizer tokenizer,
                         model::Tokenizer::Load(checkpoint.tokenizer_directory()));
  const int64_t vocabulary = checkpoint.text_encoder_config().vocab_size;
  if (tokenizer.id_bound() > vocabulary) {
    return Error{.code = ErrorCode::kCorrupt,
                 .operation = "load model",
                 .argument = "tokenizer: largest id",
                 .got = std::to_string(tokenizer.id_bound() - 1),
                 .wanted = "less than text_encoder's vocab_size, " + std::to_string(vocabulary)};
  }
  auto impl =
      std::make_unique<Impl>(std::move(checkpoint), std::move(tokenizer), layout, threads, memory);
  SEGUE_RETURN_IF_ERROR(impl->LoadModel(options, device));
  return impl;
}

const ModelDefaults& Engine::defaults() const { return impl_->defaults(); }
Result<MemoryReport> Engine::memory() const { return impl_->memory(); }
Status Engine::health() const { return impl_->health(); }

Status Engine::Validate(const Request& request) const {
  return runtime::WithoutExceptions("check request", [&]() -> Status {
    SEGUE_ASSIGN_OR_RETURN(const auto state, impl_->Prepare(request));
    return impl_->CheckMemory(*state);
  });
}

Result<RequestId> Engine::Submit(const Request& request) {
  return runtime::WithoutExceptions("submit request", [&] { return impl_->Submit(request); });
}

Result<StepReport> Engine::Step() {
  return runtime::WithoutExceptions("step", [&] { return impl_->Step(); });
}

Result<Picture> Engine::Take(RequestId id) { return impl_->Take(id); }
Status Engine::Cancel(RequestId id) { return impl_->Cancel(id); }

Result<Picture> Engine::Generate(const Request& request,
                                 const std::function<bool(const Progress&)>& progress) {
  SEGUE_ASSIGN_OR_RETURN(const RequestId id, Submit(request));
  while (!impl_->Finished(id)) {
    SEGUE_ASSIGN_OR_RETURN(const StepReport report, Step());
    for (const Progress& step : report.advanced) {
      if (step.id != id || !progress || progress(step)) continue;
      SEGUE_RETURN_IF_ERROR(Cancel(id));
      return Error{
          .code = ErrorCode::kCancelled,
          .operation = "generate",
          .argument = "step " + std::to_string(step.step) + " of " + std::to_string(step.steps),
          .got = "a request to stop",
          .wanted = ""};
    }
  }
  return Take(id);
}

}  // namespace segue
