#include "bench/gpu_dit.h"

#include <memory>
#include <string>
#include <utility>

#include "bench/gpu.h"
#include "bench/gpu_measure.h"
#include "bench/gpu_peer.h"
#include "bench/temporary_directory.h"
#include "comm/communicator.h"
#include "device/transfer.h"
#include "model/weights/weight_store.h"
#include "runtime/gpu_resources.h"
#include "runtime/modulation_cache.h"
#include "runtime/mount.h"
#include "runtime/recorded_step.h"

namespace segue::bench {
namespace {

constexpr double kTera = 1e12;
constexpr uint64_t kSeed = 12;
constexpr int64_t kModulationRows = 64;

struct Setup {
  int64_t width = 0;
  int64_t height = 0;
  int64_t text = 0;
  int64_t requests = 1;
  bool guided = false;
  bool whole_step = false;
  int64_t layers = 60;
  std::string peer;  // "alone", "eager", "diffusers" or empty: none
  Quality quality = Quality::kLossless;
};

Result<Setup> ReadSetup(const Case& one) {
  Setup setup;
  SEGUE_ASSIGN_OR_RETURN(setup.width, one.Integer("width"));
  SEGUE_ASSIGN_OR_RETURN(setup.height, one.Integer("height"));
  SEGUE_ASSIGN_OR_RETURN(setup.text, one.Integer("text"));
  SEGUE_ASSIGN_OR_RETURN(setup.requests, one.Integer("requests"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t guided, one.Integer("guided"));
  SEGUE_ASSIGN_OR_RETURN(setup.layers, one.Integer("layers"));
  setup.guided = guided != 0;
  SEGUE_ASSIGN_OR_RETURN(setup.quality, ParseQuality(one.Text("quality", "lossless")));
  const std::string part = one.Text("part", "forward");
  setup.whole_step = part == "step";
  setup.peer = one.Text("peer", setup.requests > 1 ? "alone" : "");
  if (!setup.peer.empty() && setup.peer != "alone" && setup.peer != "eager" &&
      setup.peer != "diffusers") {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "read benchmark suite",
                 .argument = "case " + one.name + ": peer",
                 .got = setup.peer,
                 .wanted = "alone, eager or diffusers"};
  }
  const bool pictures =
      setup.width >= 16 && setup.height >= 16 && setup.width % 16 == 0 && setup.height % 16 == 0;
  if (pictures && setup.text > 0 && setup.requests > 0 && setup.layers > 0 &&
      (setup.whole_step || part == "forward")) {
    return setup;
  }
  return Error{.code = ErrorCode::kInvalidArgument,
               .operation = "read benchmark suite",
               .argument = "case " + one.name,
               .got = "part=" + part + " and sizes",
               .wanted = "forward or step, multiples of 16 and counts above 0"};
}

// Where this process keeps the choices of algorithms, so that each case does not spend seconds on
// those that one before it has made. Of no other process, and gone with this one.
Result<std::string> Choices() {
  static const Result<TemporaryDirectory> directory = TemporaryDirectory::Create();
  if (!directory.ok()) return directory.error();
  return directory->path();
}

// The transformer alone, with random weights.
struct Model {
  static Result<std::unique_ptr<Model>> Create(int64_t layers);
  model::ForwardContext Context(void* stream, bool reference,
                                const quality::MountedGates& mounted = {}) const {
    return {.kernels = {.stream = Stream::Cuda(stream),
                        .reference_only = reference,
                        .products = &gpu->products()},
            .rounding = kernels::Rounding::kBF16,
            .gated = runtime::SitesOf(mounted.gates),
            .communicator = &single};
  }
  // Errors: a tier without any gate that can be mounted, which would be lossless again.
  Result<quality::Mounting> Mount(Quality tier) const;

  std::unique_ptr<runtime::GpuResources> gpu;
  comm::SingleRank single;
  std::unique_ptr<model::WeightStore> store;
  std::unique_ptr<model::Dit> dit;
  std::unique_ptr<runtime::ModulationCache> modulation;
};

Result<std::unique_ptr<Model>> Model::Create(int64_t layers) {
  auto made = std::make_unique<Model>();
  SEGUE_ASSIGN_OR_RETURN(const std::string choices, Choices());
  SEGUE_ASSIGN_OR_RETURN(made->gpu, runtime::GpuResources::Create(0, choices));
  const auto table = model::TensorTable::Random(kSeed, "transformer");
  made->store = std::make_unique<model::WeightStore>(
      model::WeightStore::Device(made->gpu->memory(), {.kind = DeviceKind::kCuda}));
  model::DitConfig config;
  config.num_layers = layers;
  for (int pass = 0; pass < 2; ++pass) {
    model::WeightReader reader(table, *made->store);
    made->dit = std::make_unique<model::Dit>(config, reader, made->single);
    SEGUE_RETURN_IF_ERROR(reader.Finish());
    if (pass == 0) SEGUE_RETURN_IF_ERROR(made->store->Allocate());
  }
  SEGUE_RETURN_IF_ERROR(made->store->Load());
  SEGUE_ASSIGN_OR_RETURN(runtime::ModulationCache cache,
                         runtime::ModulationCache::Create(*made->dit, made->gpu->placement(),
                                                          kModulationRows, made->gpu->memory()));
  made->modulation = std::make_unique<runtime::ModulationCache>(std::move(cache));
  return made;
}

Result<quality::Mounting> Model::Mount(Quality tier) const {
  SEGUE_ASSIGN_OR_RETURN(const quality::GateSet asked, quality::AskedGates(tier, {}));
  quality::Mounting mounting = runtime::MountGates(tier, asked, *dit, Context(nullptr, false));
  if (tier == Quality::kLossless || !mounting.mounted.gates.empty()) return mounting;
  std::string reasons;
  for (const RefusedGate& gate : mounting.refused) reasons += gate.name + ": " + gate.reason + "; ";
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "mount gates",
               .argument = QualityName(tier),
               .got = reasons,
               .wanted = "one gate that can be mounted"};
}

// Requests at work in a step of their own memory.
class Batch {
 public:
  // Requests [first, first + count) of the setup.
  static Result<std::unique_ptr<Batch>> Create(Model& model, const Setup& setup, int64_t first,
                                               int64_t count, const GpuStream& stream);

  Status Enqueue(void* stream, bool reference) const {
    const model::ForwardContext context =
        model_->Context(stream, reference, step_->shape().mounted);
    SEGUE_RETURN_IF_ERROR(step_->EnqueueForward(model_->modulation->table(), context));
    return whole_step_ ? step_->EnqueueSampler(context) : Status();
  }
  // Latents as they were before the first step, other outputs poisoned.
  Status Reset(const GpuStream& stream) const;
  Result<std::vector<float>> Outputs(const GpuStream& stream) const {
    return ReadMatrix(whole_step_ ? step_->blocks().latents : step_->blocks().velocity,
                      Stream::Cuda(stream.get()));
  }
  // Products and attention; a multiplication and an addition count as two.
  double operations() const;

 private:
  Status MakeRequests(const Setup& setup, int64_t first, int64_t count, const GpuStream& stream);
  Status WriteData(const Stream& stream) const;

  Model* model_ = nullptr;
  bool whole_step_ = false;
  Arena inputs_;
  Arena workspace_;
  std::vector<std::unique_ptr<runtime::RequestState>> owned_;
  std::vector<runtime::RequestState*> requests_;
  std::unique_ptr<runtime::RecordedStep> step_;
};

Status Batch::MakeRequests(const Setup& setup, int64_t first, int64_t count,
                           const GpuStream& stream) {
  const model::DitConfig& config = model_->dit->config();
  const int64_t rows = setup.width * setup.height / 256;
  const int64_t latents = rows * config.in_channels;
  const int64_t text = setup.text * config.hidden();
  const int64_t branches = setup.guided ? 2 : 1;
  SEGUE_ASSIGN_OR_RETURN(const quality::Mounting mounting, model_->Mount(setup.quality));
  SEGUE_ASSIGN_OR_RETURN(
      inputs_, Arena::Create(model_->gpu->memory(),
                             count * (2 * latents + branches * (2 * text + Arena::kAlignment) +
                                      Arena::kAlignment)));
  for (int64_t i = first; i < first + count; ++i) {
    auto request = std::make_unique<runtime::RequestState>();
    request->id = static_cast<RequestId>(i + 1);
    request->settings.width = static_cast<int>(setup.width);
    request->settings.height = static_cast<int>(setup.height);
    request->settings.guided = setup.guided;
    request->quality = mounting;
    const auto seed = static_cast<uint64_t>(3 * i + 1);
    request->blocks.latents = inputs_.TakeMatrix("latents", rows, config.in_channels, DType::kBF16);
    SEGUE_RETURN_IF_ERROR(FillNormal(request->blocks.latents.data, latents, seed, stream));
    for (int64_t branch = 0; branch < branches; ++branch) {
      request->blocks.text.push_back(
          inputs_.TakeMatrix("text", setup.text, config.hidden(), DType::kBF16));
      SEGUE_RETURN_IF_ERROR(FillNormal(request->blocks.text.back().data, text,
                                       seed + 1 + static_cast<uint64_t>(branch), stream));
    }
    requests_.push_back(request.get());
    owned_.push_back(std::move(request));
  }
  return inputs_.Check();
}

// Every request at a step of its own.
Status Batch::WriteData(const Stream& stream) const {
  std::vector<float> timesteps;
  timesteps.reserve(requests_.size());
  for (const runtime::RequestState* request : requests_) {
    timesteps.push_back(1.0f / static_cast<float>(request->id));
  }
  SEGUE_ASSIGN_OR_RETURN(
      const std::vector<int32_t> rows,
      model_->modulation->Rows(timesteps, model_->Context(stream.cuda_stream(), false)));
  const size_t sequences = step_->batch().sequences().size();
  std::vector<int32_t> entries;
  std::vector<kernels::SamplerRecord> records(sequences);
  for (size_t i = 0; i < requests_.size(); ++i) {
    const runtime::RequestState& request = *requests_[i];
    const size_t first = entries.size();
    entries.insert(entries.end(), request.blocks.text.size(), rows[i]);
    records[i] = {.prompt_row = static_cast<int32_t>(step_->batch().image_begin(first)),
                  .rows = static_cast<int32_t>(request.settings.image_rows()),
                  .guidance = 4.0f,
                  .dt = -0.015625f};
    if (request.settings.guided) {
      records[i].negative_row = static_cast<int32_t>(step_->batch().image_begin(first + 1));
    }
  }
  SEGUE_RETURN_IF_ERROR(CopyIn(step_->blocks().modulation, entries.data(),
                               static_cast<int64_t>(entries.size() * sizeof(entries[0])), stream));
  return CopyIn(step_->blocks().records, records.data(),
                static_cast<int64_t>(records.size() * sizeof(records[0])), stream);
}

Result<std::unique_ptr<Batch>> Batch::Create(Model& model, const Setup& setup, int64_t first,
                                             int64_t count, const GpuStream& stream) {
  auto batch = std::make_unique<Batch>();
  batch->model_ = &model;
  batch->whole_step_ = setup.whole_step;
  SEGUE_RETURN_IF_ERROR(batch->MakeRequests(setup, first, count, stream));
  SEGUE_ASSIGN_OR_RETURN(runtime::RecordedStep step,
                         runtime::RecordedStep::Create(*model.dit, model.gpu->placement(),
                                                       runtime::ShapeOf(batch->requests_), ""));
  batch->step_ = std::make_unique<runtime::RecordedStep>(std::move(step));
  SEGUE_ASSIGN_OR_RETURN(batch->workspace_,
                         Arena::Create(model.gpu->memory(), batch->step_->bytes()));
  const Stream on = Stream::Cuda(stream.get());
  const model::DitBatch& rows = batch->step_->batch();
  const model::SiteSet gated = runtime::SitesOf(batch->step_->shape().mounted.gates);
  SEGUE_RETURN_IF_ERROR(model.gpu->products().Warm(
      model.dit->Products(rows.image_rows(), rows.text_rows(), true, gated), on));
  SEGUE_RETURN_IF_ERROR(batch->step_->Occupy(batch->workspace_, batch->requests_, on));
  SEGUE_RETURN_IF_ERROR(batch->WriteData(on));
  SEGUE_RETURN_IF_ERROR(batch->Reset(stream));
  return batch;
}

Status Batch::Reset(const GpuStream& stream) const {
  const runtime::StepBlocks& blocks = step_->blocks();
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  SEGUE_RETURN_IF_ERROR(
      FillBytes(blocks.velocity.data, 0xff, 2 * blocks.velocity.rows * blocks.velocity.cols));
  size_t sequence = 0;
  for (const runtime::RequestState* request : requests_) {
    const MatrixView& own = request->blocks.latents;
    for (size_t i = 0; i < request->blocks.text.size(); ++i, ++sequence) {
      const int64_t begin = step_->batch().image_begin(sequence);
      SEGUE_RETURN_IF_ERROR(CopyWithin(blocks.latents.Rows(begin, own.rows).data, own.data,
                                       2 * own.rows * own.cols, Stream::Cuda(stream.get())));
    }
  }
  return SynchronizeGpu();
}

double Batch::operations() const {
  const model::DitConfig& config = model_->dit->config();
  const auto hidden = static_cast<double>(config.hidden());
  const auto layers = static_cast<double>(config.num_layers);
  double pairs = 0;
  for (const model::DitSequence& sequence : step_->batch().sequences()) {
    const auto image = static_cast<double>(sequence.image_rows());
    const double rows = image + static_cast<double>(requests_[0]->blocks.text[0].rows);
    pairs += layers * rows * 12 * hidden * hidden + layers * 2 * rows * rows * hidden;
    pairs += 2 * image * hidden * static_cast<double>(config.in_channels);
  }
  return 2 * pairs;
}

Error Unequal(const Case& one, size_t at, size_t all, const std::string& got) {
  return {.code = ErrorCode::kInternal,
          .operation = "verify a forward",
          .argument = "case " + one.name,
          .got = got + " at element " + std::to_string(at) + " of " + std::to_string(all),
          .wanted = "the reference kernels' bytes, all finite"};
}

Status Verify(const Case& one, const Batch& batch, const GpuProgram& program,
              const GpuStream& stream) {
  SEGUE_RETURN_IF_ERROR(batch.Reset(stream));
  SEGUE_RETURN_IF_ERROR(batch.Enqueue(stream.get(), true));
  SEGUE_ASSIGN_OR_RETURN(const std::vector<float> wanted, batch.Outputs(stream));
  SEGUE_RETURN_IF_ERROR(batch.Reset(stream));
  SEGUE_RETURN_IF_ERROR(program.Launch(stream));
  SEGUE_ASSIGN_OR_RETURN(const std::vector<float> got, batch.Outputs(stream));
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] - got[i] != 0.0f) return Unequal(one, i, wanted.size(), "no number");
    if (got[i] != wanted[i]) {
      return Unequal(one, i, wanted.size(),
                     std::to_string(got[i]) + " and not " + std::to_string(wanted[i]));
    }
  }
  return {};
}

// Each request in a step of its own, one after the other.
Result<GpuProgram> RecordAlone(Model& model, const Setup& setup,
                               std::vector<std::unique_ptr<Batch>>* alone,
                               const GpuStream& stream) {
  for (int64_t i = 0; i < setup.requests; ++i) {
    SEGUE_ASSIGN_OR_RETURN(auto single, Batch::Create(model, setup, i, 1, stream));
    alone->push_back(std::move(single));
  }
  const GpuContender contender = {
      .name = "alone", .version = "", .enqueue = [alone](void* to, int64_t) -> Status {
        for (const auto& single : *alone) SEGUE_RETURN_IF_ERROR(single->Enqueue(to, false));
        return {};
      }};
  return Record(contender, stream);
}

std::vector<std::string> DiffusersArguments(const Setup& setup) {
  std::vector<std::string> arguments = {"transformer",
                                        "--width",
                                        std::to_string(setup.width),
                                        "--height",
                                        std::to_string(setup.height),
                                        "--text",
                                        std::to_string(setup.text),
                                        "--layers",
                                        std::to_string(setup.layers)};
  if (setup.whole_step) arguments.emplace_back("--step");
  return arguments;
}

// Ours, ready to be measured.
struct Subject {
  Model& model;
  const Setup& setup;
  const GpuContender& contender;
  const GpuProgram& program;
};

// Beside the peer that the case names.
Result<GpuComparison> MeasureBesidePeer(const Subject& ours, const SuiteOptions& options,
                                        const GpuStream& stream, Row* row) {
  const Setup& setup = ours.setup;
  if (setup.peer == "diffusers") {
    return MeasureBesidePython(ours.program, DiffusersArguments(setup), options, stream, row);
  }
  row->peer = setup.peer;
  std::vector<std::unique_ptr<Batch>> alone;
  GpuProgram peer;
  if (setup.peer == "alone") {
    SEGUE_ASSIGN_OR_RETURN(peer, RecordAlone(ours.model, setup, &alone, stream));
  } else if (setup.peer == "eager") {
    SEGUE_ASSIGN_OR_RETURN(peer, RunEagerly(ours.contender, stream));
  }
  return MeasureOnGpu(ours.program, setup.peer.empty() ? nullptr : &peer, options.measure, stream);
}

}  // namespace

Result<std::vector<Row>> BenchGpuDit(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const Setup setup, ReadSetup(one));
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, Model::Create(setup.layers));
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<Batch> batch,
                         Batch::Create(*model, setup, 0, setup.requests, stream));
  // The first run loads what a capture must find loaded.
  SEGUE_RETURN_IF_ERROR(batch->Enqueue(stream.get(), false));
  // One step a launch, as the engine does.
  const GpuContender ours = {
      .name = "segue", .version = "", .enqueue = [&batch](void* to, int64_t) {
        return batch->Enqueue(to, false);
      }};
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram program, Record(ours, stream));
  SEGUE_RETURN_IF_ERROR(Verify(one, *batch, program, stream));
  Row row = {.case_name = one.name, .variant = QualityName(setup.quality), .unit = "TFLOP/s"};
  row.note = "the reference kernels' bytes";
  SEGUE_ASSIGN_OR_RETURN(
      const GpuComparison comparison,
      MeasureBesidePeer({.model = *model, .setup = setup, .contender = ours, .program = program},
                        options, stream, &row));
  return RowsOf(comparison, batch->operations(), kTera, std::move(row));
}

}  // namespace segue::bench
