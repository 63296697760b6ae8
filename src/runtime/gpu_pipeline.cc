#include "runtime/gpu_pipeline.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "device/gpu.h"
#include "device/transfer.h"
#include "runtime/mount.h"
#include "runtime/noise_schedule.h"

namespace segue::runtime {
namespace {

std::string StepName(const RequestState& request, int step) {
  return "step " + std::to_string(step + 1) + " of " + std::to_string(request.schedule.steps()) +
         ": ";
}

Error NotFinite(const RequestState& request, int step, int32_t bits) {
  const char* what = "latents";
  if ((bits & kernels::kNegativeVelocityNotFinite) != 0) what = "velocity of the negative prompt";
  if ((bits & kernels::kPromptVelocityNotFinite) != 0) what = "velocity";
  return {.code = ErrorCode::kNonFinite,
          .operation = "denoise",
          .argument = StepName(request, step) + what,
          .got = "a NaN or an infinity",
          .wanted = "finite numbers"};
}

// The workspace as memory: what is taken goes with whatever else is in it.
class MemoryOfArena final : public DeviceMemory {
 public:
  explicit MemoryOfArena(Arena& arena) : arena_(&arena) {}
  void* Allocate(int64_t bytes) override { return arena_->TakeBytes("choice of products", bytes); }
  void Free(void*) override {}

 private:
  Arena* arena_;
};

bool KeepsStages(Span<RequestState* const> requests) {
  return std::any_of(requests.begin(), requests.end(),
                     [](const RequestState* request) { return request->keep_stages; });
}

float TimestepOf(const RequestState& request, int step) {
  return ModelTimestep(request.schedule.timesteps[static_cast<size_t>(step)], true);
}

}  // namespace

GpuPipeline::GpuPipeline(const model::QwenImage& model, const model::ForwardContext& context,
                         GpuResources& gpu, ThreadPool& host_pool,
                         const GpuPipelineOptions& options)
    : Pipeline(model, context, gpu.placement(), gpu.memory(), gpu.workspace_memory(), host_pool),
      stream_(&gpu.stream()),
      options_(options),
      uploads_(gpu.pinned()),
      pinned_(&gpu.pinned()) {}

Result<std::unique_ptr<GpuPipeline>> GpuPipeline::Create(const model::QwenImage& model,
                                                         const model::ForwardContext& context,
                                                         GpuResources& gpu, ThreadPool& host_pool,
                                                         const GpuPipelineOptions& options,
                                                         std::optional<ModulationCache> tabulated) {
  std::unique_ptr<GpuPipeline> pipeline(new GpuPipeline(model, context, gpu, host_pool, options));
  pipeline->modulation_ = std::move(tabulated);
  if (!pipeline->modulation_) {
    SEGUE_ASSIGN_OR_RETURN(pipeline->modulation_,
                           ModulationCache::Create(model.dit(), gpu.placement(),
                                                   options.modulation_rows, gpu.memory()));
    for (const int64_t timesteps : kWarmTimesteps) {
      SEGUE_RETURN_IF_ERROR(pipeline->Warm(model.dit().ModulationProducts(timesteps)));
    }
  }
  for (int i = 0; i < 2; ++i) {
    SEGUE_ASSIGN_OR_RETURN(GpuEvent done, GpuEvent::Create());
    pipeline->flights_.push_back({.done = std::move(done)});
  }
  return pipeline;
}

GpuPipeline::~GpuPipeline() {
  // What fails here failed before, and was said then.
  (void)stream_->Synchronize();
  for (const InFlight& flight : flights_) pinned_->Free(flight.not_finite);
}

Result<int64_t> GpuPipeline::StepBytes(const StepShape& shape) const {
  SEGUE_ASSIGN_OR_RETURN(
      const RecordedStep step,
      RecordedStep::Create(model().dit(), placement(), shape, context().attention_backend));
  return step.bytes();
}

void GpuPipeline::WorkspaceChanges() { resident_ = nullptr; }

void GpuPipeline::WorkspaceMoves() {
  resident_ = nullptr;
  steps_.clear();  // their graphs hold addresses in it
}

Status GpuPipeline::Warm(const model::ProductShapes& shapes) {
  kernels::ProductLibrary& products = *context().kernels.products;
  SEGUE_ASSIGN_OR_RETURN(const int64_t bytes, products.ScratchBytes(shapes));
  if (bytes == 0) return {};
  Status status = UseWorkspace(bytes);
  if (status.ok()) {
    MemoryOfArena scratch(workspace());
    status = products.Warm(shapes, stream_->stream(), &scratch);
  }
  // Products work without a choice, only slower: no reason to refuse a request.
  if (!status.ok() && status.error().code == ErrorCode::kOutOfMemory) return {};
  return status;
}

Status GpuPipeline::BeforeEncode(Span<const int64_t> lengths, Span<const int64_t> text_rows) {
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  SEGUE_RETURN_IF_ERROR(Warm(model().text_encoder().Products(rows)));
  for (const int64_t kept : text_rows) {
    SEGUE_RETURN_IF_ERROR(Warm(model().dit().TextProducts(kept)));
  }
  return {};
}

Status GpuPipeline::BeforeDecode(int64_t grid_height, int64_t grid_width) {
  return Warm(model().vae().Products(2 * grid_height, 2 * grid_width));
}

Result<RecordedStep*> GpuPipeline::StepFor(Span<RequestState* const> requests) {
  std::vector<RequestId> ids;
  for (const RequestState* request : requests) ids.push_back(request->id);
  if (resident_ != nullptr && ids == resident_ids_) return resident_;

  const StepShape shape = ShapeOf(requests);
  auto found = std::find_if(steps_.begin(), steps_.end(),
                            [&shape](const RecordedStep& step) { return step.shape() == shape; });
  if (found == steps_.end()) {
    SEGUE_ASSIGN_OR_RETURN(
        RecordedStep step,
        RecordedStep::Create(model().dit(), placement(), shape, context().attention_backend));
    SEGUE_RETURN_IF_ERROR(
        Warm(model().dit().Products(step.batch().image_rows(), step.batch().text_rows(),
                                    context().packed_products, SitesOf(shape.mounted.gates))));
    SEGUE_RETURN_IF_ERROR(UseWorkspace(step.bytes()));
    while (static_cast<int64_t>(steps_.size()) >= options_.max_steps) steps_.pop_back();
    steps_.push_front(std::move(step));
  } else {
    SEGUE_RETURN_IF_ERROR(UseWorkspace(found->bytes()));
    steps_.splice(steps_.begin(), steps_, found);
  }
  RecordedStep& step = steps_.front();
  SEGUE_RETURN_IF_ERROR(step.Occupy(workspace(), requests, context().kernels.stream));
  resident_ = &step;
  resident_ids_ = std::move(ids);
  return resident_;
}

Status GpuPipeline::TabulateSchedules(Span<RequestState* const> requests) {
  for (const RequestState* request : requests) {
    if (request->step != 0) continue;
    std::vector<float> timesteps;
    const auto kept = static_cast<size_t>(modulation_->rows());
    timesteps.resize(std::min(static_cast<size_t>(request->schedule.steps()), kept));
    for (size_t i = 0; i < timesteps.size(); ++i) {
      timesteps[i] = TimestepOf(*request, static_cast<int>(i));
    }
    SEGUE_RETURN_IF_ERROR(modulation_->Rows(timesteps, context()));
  }
  return {};
}

// Modulation rows of every sequence, then a record of every request; both lists have one entry a
// sequence, and records that no request uses have no rows.
Status GpuPipeline::UploadStepData(const RecordedStep& step, Span<RequestState* const> requests) {
  std::vector<float> timesteps;
  for (const RequestState* request : requests) {
    timesteps.push_back(TimestepOf(*request, request->step));
  }
  SEGUE_ASSIGN_OR_RETURN(const std::vector<int32_t> rows, modulation_->Rows(timesteps, context()));

  const size_t sequences = step.batch().sequences().size();
  std::vector<int32_t> modulation;
  std::vector<kernels::SamplerRecord> records(sequences);
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestState& request = *requests[i];
    const std::vector<float>& sigmas = request.schedule.sigmas;
    const auto at = static_cast<size_t>(request.step);
    const size_t first = modulation.size();
    modulation.insert(modulation.end(), request.blocks.text.size(), rows[i]);
    records[i] = {.prompt_row = static_cast<int32_t>(step.batch().image_begin(first)),
                  .rows = static_cast<int32_t>(request.settings.image_rows()),
                  .guidance = static_cast<float>(request.settings.guidance),
                  .dt = sigmas[at + 1] - sigmas[at]};
    if (request.settings.guided) {
      records[i].negative_row = static_cast<int32_t>(step.batch().image_begin(first + 1));
    }
  }
  const auto modulation_bytes = static_cast<int64_t>(sequences * sizeof(int32_t));
  const auto record_bytes = static_cast<int64_t>(sequences * sizeof(kernels::SamplerRecord));
  SEGUE_ASSIGN_OR_RETURN(void* slot, uploads_.Acquire(modulation_bytes + record_bytes));
  auto* bytes = static_cast<char*>(slot);
  std::memcpy(bytes, modulation.data(), static_cast<size_t>(modulation_bytes));
  std::memcpy(bytes + modulation_bytes, records.data(), static_cast<size_t>(record_bytes));
  const UploadRing::Copy copies[] = {
      {.from = 0, .to = step.blocks().modulation, .bytes = modulation_bytes},
      {.from = modulation_bytes, .to = step.blocks().records, .bytes = record_bytes}};
  return uploads_.Upload(copies, stream_->get());
}

Status GpuPipeline::CopyLatents(const RecordedStep& step, Span<RequestState* const> requests,
                                bool into) const {
  size_t sequence = 0;
  for (const RequestState* request : requests) {
    const MatrixView& own = request->blocks.latents;
    const int64_t bytes = own.rows * own.cols * static_cast<int64_t>(SizeOf(own.dtype));
    const size_t sequences = request->blocks.text.size();
    // Both branches of a guided request start from the same latents, and leave the same.
    for (size_t i = 0; i < (into ? sequences : 1); ++i) {
      void* packed =
          step.blocks().latents.Rows(step.batch().image_begin(sequence + i), own.rows).data;
      SEGUE_RETURN_IF_ERROR(into ? CopyWithin(packed, own.data, bytes, stream_->stream())
                                 : CopyWithin(own.data, packed, bytes, stream_->stream()));
    }
    sequence += sequences;
  }
  return {};
}

Status GpuPipeline::Record(RecordedStep& step) {
  kernels::KernelLog* log = context().kernels.log;
  const auto before = log == nullptr ? std::vector<kernels::KernelLog::Tally>() : log->Tallies();
  auto graph = GpuGraph::Capture(*stream_, [&]() -> Status {
    SEGUE_RETURN_IF_ERROR(
        step.EnqueueForward(modulation_->table(), GatedContext(step.shape().mounted)));
    return step.EnqueueSampler(context());
  });
  if (graph.ok()) {
    step.graph() = std::move(*graph);
    if (log != nullptr) step.graph_calls() = log->Since(before);
    return {};
  }
  // The step runs launch by launch on this rank then, with the same sums.
  context().communicator->DropRun();
  step.graph_problem() = graph.error().Message();
  return graph.error();
}

Status GpuPipeline::Rehearse(RecordedStep& step, Span<RequestState* const> requests) {
  const comm::Communicator& group = *context().communicator;
  if (group.size() == 1 || step.rehearsed()) return {};
  const comm::Rehearsal alone(group.rank(), group.size());
  model::ForwardContext rehearsal = GatedContext(step.shape().mounted);
  rehearsal.communicator = &alone;
  rehearsal.kernels.log = nullptr;  // it is no part of any picture
  SEGUE_RETURN_IF_ERROR(CopyLatents(step, requests, true));
  SEGUE_RETURN_IF_ERROR(step.EnqueueForward(modulation_->table(), rehearsal));
  SEGUE_RETURN_IF_ERROR(step.EnqueueSampler(rehearsal));
  SEGUE_RETURN_IF_ERROR(stream_->Synchronize());
  step.rehearsed() = true;
  return {};
}

void GpuPipeline::RecordIfDue(RecordedStep& step, Span<RequestState* const> requests) {
  // The first step of a shape runs launch by launch, which loads what the recording must find
  // loaded; a recording that failed once is not tried again.
  recorded_now_ = options_.graphs && !step.graph() && step.runs() > 0 &&
                  step.graph_problem().empty() && !KeepsStages(requests);
  if (recorded_now_) (void)Record(step);  // why it failed is kept; the step runs all the same
}

Status GpuPipeline::Launch(RecordedStep& step, Span<RequestState* const> requests) {
  const bool hit = step.graph().has_value() && !recorded_now_;
  for (RequestState* request : requests) {
    GraphReport& use = request->graph;
    ++(step.graph() ? (hit ? use.replayed : use.recorded) : use.eager);
    use.reason = step.graph_problem();
  }
  if (step.graph()) {
    // Recording counted the first replay.
    if (hit && context().kernels.log != nullptr) context().kernels.log->Repeat(step.graph_calls());
    return step.graph()->Launch(*stream_);
  }
  SEGUE_RETURN_IF_ERROR(
      step.EnqueueForward(modulation_->table(), GatedContext(step.shape().mounted)));
  SEGUE_RETURN_IF_ERROR(step.EnqueueSampler(context()));
  step.CountRun();
  return {};
}

// Stages of a step: what the recorded step overwrites is read in between.
Status GpuPipeline::LaunchWithStages(RecordedStep& step, Span<RequestState* const> requests) {
  const Stream stream = stream_->stream();
  const auto keep = [&](const char* prompt_name, const char* negative_name) -> Status {
    size_t sequence = 0;
    for (RequestState* request : requests) {
      const int64_t rows = request->settings.image_rows();
      const std::string stage = StepStage(request->step);
      const auto read = [&](const char* name, size_t index) -> Status {
        if (name == nullptr || !request->keep_stages) return {};
        const int64_t begin = step.batch().image_begin(index);
        return KeepStage(*request, stage + name, step.blocks().velocity.Rows(begin, rows), stream);
      };
      SEGUE_RETURN_IF_ERROR(read(prompt_name, sequence));
      if (request->settings.guided) SEGUE_RETURN_IF_ERROR(read(negative_name, sequence + 1));
      sequence += request->blocks.text.size();
    }
    return {};
  };
  SEGUE_RETURN_IF_ERROR(
      step.EnqueueForward(modulation_->table(), GatedContext(step.shape().mounted)));
  SEGUE_RETURN_IF_ERROR(keep("velocity.prompt", "velocity.negative"));
  SEGUE_RETURN_IF_ERROR(step.EnqueueSampler(context()));
  SEGUE_RETURN_IF_ERROR(keep("velocity", nullptr));
  for (RequestState* request : requests) {
    ++request->graph.eager;
    request->graph.reason = "stages are kept";
  }
  return {};
}

Status GpuPipeline::PrepareReadBack(int32_t count) {
  InFlight& flight = flights_[next_flight_];
  if (flight.capacity >= count) return {};
  pinned_->Free(std::exchange(flight.not_finite, nullptr));
  flight.capacity = 0;
  const auto bytes = count * static_cast<int64_t>(sizeof(int32_t));
  flight.not_finite = static_cast<int32_t*>(pinned_->Allocate(bytes));
  if (flight.not_finite == nullptr) {
    return Error{.code = ErrorCode::kOutOfMemory,
                 .operation = "denoise",
                 .argument = "page-locked memory",
                 .got = "a refused allocation",
                 .wanted = std::to_string(bytes) + " bytes"};
  }
  flight.capacity = count;
  return {};
}

Status GpuPipeline::StartReadBack(const RecordedStep& step, Span<RequestState* const> requests) {
  InFlight& flight = flights_[next_flight_];
  const auto count = static_cast<int32_t>(requests.size());
  SEGUE_RETURN_IF_ERROR(Download(flight.not_finite, step.blocks().not_finite,
                                 count * static_cast<int64_t>(sizeof(int32_t)), stream_->get()));
  SEGUE_RETURN_IF_ERROR(flight.done.Record(stream_->get()));
  flight.requests.assign(requests.begin(), requests.end());
  flight.steps.clear();
  for (const RequestState* request : requests) flight.steps.push_back(request->step);
  next_flight_ = 1 - next_flight_;
  return {};
}

Status GpuPipeline::Collect(InFlight& flight) {
  if (flight.requests.empty()) return {};
  const std::vector<RequestState*> requests = std::exchange(flight.requests, {});
  const Status waited = flight.done.Synchronize();
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == nullptr || !requests[i]->status.ok()) continue;
    RequestState& request = *requests[i];
    if (!waited.ok()) {
      request.status = waited;
    } else if (flight.not_finite[i] != 0) {
      request.status = NotFinite(request, flight.steps[i], flight.not_finite[i]);
    }
  }
  return waited;
}

Status GpuPipeline::PrepareStep(Span<RequestState* const> requests) {
  SEGUE_RETURN_IF_ERROR(PrepareReadBack(static_cast<int32_t>(requests.size())));
  SEGUE_RETURN_IF_ERROR(TabulateSchedules(requests));
  SEGUE_ASSIGN_OR_RETURN(RecordedStep * step, StepFor(requests));
  SEGUE_RETURN_IF_ERROR(UploadStepData(*step, requests));
  SEGUE_RETURN_IF_ERROR(Rehearse(*step, requests));
  RecordIfDue(*step, requests);
  return {};
}

Status GpuPipeline::DenoiseTogether(Span<RequestState* const> requests) {
  RecordedStep* step = resident_;  // PrepareStep's
  SEGUE_RETURN_IF_ERROR(CopyLatents(*step, requests, true));
  SEGUE_RETURN_IF_ERROR(KeepsStages(requests) ? LaunchWithStages(*step, requests)
                                              : Launch(*step, requests));
  // From here on the requests' latents are the next step's: what fails is theirs, and they do not
  // run again.
  const Status ended = EndStep(*step, requests);
  for (RequestState* request : requests) {
    if (!ended.ok()) request->status = ended;
    request->attention_backend = step->attention_plan().backend();
    ++request->step;
  }
  (void)Collect(flights_[next_flight_]);  // the step before; its requests have its errors
  return {};
}

Status GpuPipeline::EndStep(const RecordedStep& step, Span<RequestState* const> requests) {
  SEGUE_RETURN_IF_ERROR(CopyLatents(step, requests, false));
  for (RequestState* request : requests) {
    if (!request->keep_stages) continue;
    SEGUE_RETURN_IF_ERROR(KeepStage(*request, StepStage(request->step) + "latents",
                                    request->blocks.latents, stream_->stream()));
  }
  return StartReadBack(step, requests);
}

Status GpuPipeline::FinishSteps(RequestState& request) {
  for (const size_t index : {next_flight_, 1 - next_flight_}) (void)Collect(flights_[index]);
  return request.status;
}

void GpuPipeline::Forget(const RequestState& request) {
  for (InFlight& flight : flights_) {
    std::replace(flight.requests.begin(), flight.requests.end(),
                 const_cast<RequestState*>(&request), static_cast<RequestState*>(nullptr));
  }
}

}  // namespace segue::runtime
