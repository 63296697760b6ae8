#include "runtime/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "device/transfer.h"
#include "kernels/activation.h"
#include "kernels/finite.h"
#include "kernels/latents.h"
#include "model/memory_plan.h"
#include "runtime/exceptions.h"
#include "runtime/mount.h"
#include "runtime/noise.h"

namespace segue::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Names of the branches in stage names.
constexpr const char* kBranches[] = {"prompt", "negative"};

void KeepPrompt(RequestState& request, size_t branch, std::vector<float> embeddings,
                int64_t width) {
  const model::PromptIds& prompt = request.prompts[branch];
  const std::string name = kBranches[branch];
  request.stages.push_back({.name = name + ".ids",
                            .shape = {static_cast<int64_t>(prompt.ids.size())},
                            .values = {prompt.ids.begin(), prompt.ids.end()}});
  request.stages.push_back({.name = name + ".embeddings",
                            .shape = {prompt.rows, width},
                            .values = std::move(embeddings)});
}

void KeepSchedule(RequestState& request) {
  const NoiseSchedule& schedule = request.schedule;
  request.stages.push_back({.name = "sigmas",
                            .shape = {static_cast<int64_t>(schedule.sigmas.size())},
                            .values = schedule.sigmas});
  request.stages.push_back({.name = "timesteps",
                            .shape = {static_cast<int64_t>(schedule.timesteps.size())},
                            .values = schedule.timesteps});
}

}  // namespace

Status KeepStage(RequestState& request, std::string name, const MatrixView& matrix,
                 const Stream& stream) {
  SEGUE_ASSIGN_OR_RETURN(std::vector<float> values, ReadMatrix(matrix, stream));
  request.stages.push_back(
      {.name = std::move(name), .shape = {matrix.rows, matrix.cols}, .values = std::move(values)});
  return {};
}

Status FillNegativeZeros(const MatrixView& values, const Stream& stream) {
  return WriteMatrix(
      values, std::vector<float>(static_cast<size_t>(values.rows * values.cols), -0.0f), stream);
}

std::string StepStage(int step) {
  const std::string number = std::to_string(step);
  return "step." + std::string(3 - std::min<size_t>(number.size(), 3), '0') + number + ".";
}

Pipeline::Pipeline(const model::QwenImage& model, const model::ForwardContext& context,
                   const model::Placement& placement, DeviceMemory& memory,
                   DeviceMemory& workspace_memory, ThreadPool& host_pool)
    : model_(&model),
      context_(context),
      placement_(placement),
      memory_(&memory),
      workspace_memory_(&workspace_memory),
      host_pool_(&host_pool) {}

Status Pipeline::Reserve(int64_t bytes) {
  if (workspace_.capacity_bytes() >= bytes) return {};
  if (!workspace_.counting() && workspace_.Extend(bytes)) return {};
  WorkspaceMoves();
  workspace_ = Arena();  // given back before the larger one is asked for
  SEGUE_ASSIGN_OR_RETURN(workspace_, Arena::Create(*workspace_memory_, bytes));
  return {};
}

Status Pipeline::UseWorkspace(int64_t bytes) {
  WorkspaceChanges();
  SEGUE_RETURN_IF_ERROR(Reserve(bytes));
  workspace_.Release(0);
  return {};
}

kernels::Context Pipeline::HostKernels() const {
  kernels::Context context = context_.kernels;
  context.stream = Stream::Cpu(*host_pool_);
  return context;
}

Status Pipeline::CheckFinite(const MatrixView& values, const char* operation,
                             const std::string& argument) {
  const Stream& stream = context_.kernels.stream;
  bool all_finite = false;
  bool* flag = &all_finite;
  if (stream.device() != DeviceKind::kCpu) {
    if (finite_memory_.counting()) {
      SEGUE_ASSIGN_OR_RETURN(finite_memory_, Arena::Create(*memory_, kFlagBytes));
    }
    finite_memory_.Release(0);
    flag = finite_memory_.Take<bool>("whether values are finite", 1);
  }
  SEGUE_RETURN_IF_ERROR(kernels::Finite({.x = values, .all_finite = flag}, context_.kernels));
  if (flag != &all_finite) {
    SEGUE_RETURN_IF_ERROR(CopyOut(&all_finite, flag, sizeof(bool), stream));
  }
  if (all_finite) return {};
  return Error{.code = ErrorCode::kNonFinite,
               .operation = operation,
               .argument = argument,
               .got = "a NaN or an infinity",
               .wanted = "finite numbers"};
}

Status Pipeline::SetInitialLatents(RequestState& request) {
  const Settings& settings = request.settings;
  const MatrixView& latents = request.blocks.latents;
  std::vector<float> tokens = std::move(request.given_latents);
  request.given_latents = {};
  if (tokens.empty()) {
    // Noise is drawn in the order of the latents' own grid, [channels, rows, columns], as the
    // reference does, and then packed.
    std::vector<float> noise(static_cast<size_t>(latents.rows * latents.cols));
    FillGaussian(settings.seed, noise);
    tokens.resize(noise.size());
    SEGUE_RETURN_IF_ERROR(kernels::PackLatents(
        {.latents = noise.data(),
         .grid_height = settings.grid_height(),
         .grid_width = settings.grid_width(),
         .tokens = ContiguousMatrix(tokens.data(), latents.rows, latents.cols)},
        HostKernels()));
  }
  // In bfloat16 mode latents are bfloat16 from the first.
  const MatrixView view = ContiguousMatrix(tokens.data(), latents.rows, latents.cols);
  SEGUE_RETURN_IF_ERROR(kernels::Activate({.x = view,
                                           .y = view,
                                           .activation = kernels::Activation::kNone,
                                           .rounding = context_.rounding},
                                          HostKernels()));
  return WriteMatrix(latents, tokens, context_.kernels.stream);
}

void Pipeline::Mount(RequestState& request) const {
  const Settings& settings = request.settings;
  request.quality = MountGates(settings.quality, settings.asked_gates, model_->dit(), context_);
}

model::ForwardContext Pipeline::GatedContext(const quality::MountedGates& mounted) const {
  model::ForwardContext context = context_;
  context.gated = SitesOf(mounted.gates);
  return context;
}

Status Pipeline::TakeBlocks(RequestState& request) {
  const model::ModelConfig& config = model_->config();
  std::vector<int64_t> text_rows;
  text_rows.reserve(request.prompts.size());
  for (const model::PromptIds& prompt : request.prompts) text_rows.push_back(prompt.rows);
  const int64_t image_rows = request.settings.image_rows();
  SEGUE_ASSIGN_OR_RETURN(
      request.memory,
      Arena::Create(*memory_, model::RequestBytes(config, placement_, image_rows, text_rows)));
  request.blocks =
      model::RequestBlocks::LayOut(request.memory, config, placement_, image_rows, text_rows);
  return request.memory.Check();
}

Status Pipeline::Follow(RequestState& request) {
  SEGUE_RETURN_IF_ERROR(TakeBlocks(request));
  SEGUE_RETURN_IF_ERROR(SetInitialLatents(request));
  for (const MatrixView& text : request.blocks.text) {
    SEGUE_RETURN_IF_ERROR(FillNegativeZeros(text, context_.kernels.stream));
  }
  return {};
}

Status Pipeline::ShareText(const RequestState& request) const {
  std::vector<comm::SumPart> parts;
  parts.reserve(request.blocks.text.size());
  for (const MatrixView& text : request.blocks.text) parts.push_back({text, text});
  SEGUE_RETURN_IF_ERROR(place_.group->AllReduceSum(parts, context_.kernels));
  return place_.group->EndRun(context_.kernels);
}

Status Pipeline::Encode(RequestState& request) {
  const auto start = Clock::now();
  const model::ModelConfig& config = model_->config();
  std::vector<int64_t> lengths;
  std::vector<int64_t> text_rows;
  for (const model::PromptIds& prompt : request.prompts) {
    lengths.push_back(static_cast<int64_t>(prompt.ids.size()));
    text_rows.push_back(prompt.rows);
  }
  SEGUE_RETURN_IF_ERROR(TakeBlocks(request));
  SEGUE_RETURN_IF_ERROR(SetInitialLatents(request));
  SEGUE_RETURN_IF_ERROR(BeforeEncode(lengths, text_rows));

  const int64_t width = config.dit.joint_attention_dim;
  std::vector<std::vector<float>> embeddings(request.prompts.size());
  std::vector<model::PromptInput> inputs;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const model::PromptIds& prompt = request.prompts[i];
    if (request.keep_stages) embeddings[i].resize(static_cast<size_t>(prompt.rows * width));
    inputs.push_back({.ids = prompt.ids,
                      .dropped = prompt.dropped,
                      .text = request.blocks.text[i],
                      .embeddings = request.keep_stages ? embeddings[i].data() : nullptr});
  }
  SEGUE_RETURN_IF_ERROR(
      UseWorkspace(model::EncodeBytes(config, placement_, lengths, model::kTemplatePrefixIds)));
  SEGUE_RETURN_IF_ERROR(model_->Encode(inputs, workspace_, context_));
  for (size_t i = 0; i < inputs.size(); ++i) {
    SEGUE_RETURN_IF_ERROR(
        CheckFinite(inputs[i].text, "encode prompt", std::string(kBranches[i]) + " embedding"));
    if (request.keep_stages) KeepPrompt(request, i, std::move(embeddings[i]), width);
  }
  if (request.keep_stages) {
    KeepSchedule(request);
    SEGUE_RETURN_IF_ERROR(
        KeepStage(request, "noise", request.blocks.latents, context_.kernels.stream));
  }
  request.times.encode_s = SecondsSince(start);
  return {};
}

Status Pipeline::RunTogether(Span<RequestState* const> requests) {
  Status ready = WithoutExceptions("denoise", [&] { return PrepareStep(requests); });
  if (place_.meeting != nullptr) ready = place_.meeting->Agree(ready);
  SEGUE_RETURN_IF_ERROR(std::move(ready));
  Status ran = WithoutExceptions("denoise", [&] { return DenoiseTogether(requests); });
  if (!ran.ok() && place_.group != nullptr) {
    // The others are in the same forward: they must not wait for this rank.
    place_.meeting->Abandon(ran.error());
    place_.group->Fail(ran.error());
  }
  return ran;
}

void Pipeline::Denoise(Span<RequestState* const> requests) {
  const auto run = [this](Span<RequestState* const> some) { return RunTogether(some); };
  std::vector<RequestId> ids;
  ids.reserve(requests.size());
  for (const RequestState* request : requests) ids.push_back(request->id);
  Status together;
  if (ids != apart_) {
    together = run(requests);
    if (together.ok()) return;
    apart_.clear();
    const bool no_memory = together.error().code == ErrorCode::kOutOfMemory;
    if (requests.size() > 1 && no_memory) apart_ = std::move(ids);
  }
  for (RequestState* request : requests) {
    const Status alone = requests.size() == 1 ? together : run({&request, 1});
    if (!alone.ok()) request->status = alone;
  }
}

Status Pipeline::Decode(RequestState& request) {
  const auto steps_end = Clock::now();
  const Settings& settings = request.settings;
  SEGUE_RETURN_IF_ERROR(FinishSteps(request));
  // What is still under way of the steps is no part of decoding.
  request.times.denoise_s += SecondsSince(steps_end);
  const auto start = Clock::now();
  if (request.keep_stages) {
    SEGUE_RETURN_IF_ERROR(
        KeepStage(request, "final_latents", request.blocks.latents, context_.kernels.stream));
  }
  Image image = {.width = settings.width, .height = settings.height, .rgb = {}};
  const size_t samples =
      size_t{3} * static_cast<size_t>(settings.width) * static_cast<size_t>(settings.height);
  image.rgb.resize(samples);
  std::vector<float> kept(request.keep_stages ? samples : 0);
  bool all_finite = false;
  SEGUE_RETURN_IF_ERROR(BeforeDecode(settings.grid_height(), settings.grid_width()));
  SEGUE_RETURN_IF_ERROR(UseWorkspace(model::DecodeBytes(
      model_->config(), placement_, settings.grid_height(), settings.grid_width())));
  SEGUE_RETURN_IF_ERROR(model_->Decode({.latents = request.blocks.latents,
                                        .grid_height = settings.grid_height(),
                                        .grid_width = settings.grid_width(),
                                        .pixels = image.rgb.data(),
                                        .samples = request.keep_stages ? kept.data() : nullptr,
                                        .all_finite = &all_finite},
                                       workspace_, context_));
  if (!all_finite) {
    return Error{.code = ErrorCode::kNonFinite,
                 .operation = "decode latents",
                 .argument = "samples of the picture",
                 .got = "a NaN or an infinity",
                 .wanted = "finite numbers"};
  }
  if (request.keep_stages) {
    request.stages.push_back({.name = "image",
                              .shape = {settings.height, settings.width, 3},
                              .values = std::move(kept)});
  }
  request.image = std::move(image);
  request.times.decode_s = SecondsSince(start);
  return {};
}

}  // namespace segue::runtime
