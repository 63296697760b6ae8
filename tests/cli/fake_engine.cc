// An engine for tests of the command line: it makes pictures of one colour, and goes wrong on
// request. The model "directory" says how:
//   fake            everything works; 64x48, 4 steps, guidance 4
//   fake-slow       each step takes 50 ms
//   fake-stuck      a step takes longer than any test
//   fake-step       the third step fails with a non-finite latent
//   fake-coarse     float32-norms and the tier high shift every level by 10, other gates by 1
//   fake-leak       lossless pictures change after one of high
//   fake-<N>        Load fails with ErrorCode N
#include <chrono>
#include <cstring>
#include <thread>

#include "segue/checkpoint.h"
#include "segue/engine.h"

namespace segue {
namespace {

Error FakeError(ErrorCode code) {
  return {.code = code,
          .operation = "load",
          .argument = "fake\nmodel",  // a line end that must not break the message
          .got = ErrorCodeName(code),
          .wanted = "none"};
}

Status CheckDirectory(const std::string& directory) {
  if (!directory.starts_with("fake")) return FakeError(ErrorCode::kNotFound);
  if (directory.size() == 6 && directory[5] >= '0' && directory[5] <= '9') {
    return FakeError(static_cast<ErrorCode>(directory[5] - '0'));
  }
  return {};
}

}  // namespace

class Engine::Impl {
 public:
  ModelDefaults defaults = {.width = 64, .height = 48, .steps = 4, .guidance = 4};
  EngineOptions options;
  bool drew_high = false;
};

// How far from lossless a picture's levels are.
int ShiftOf(const std::string& directory, const Request& request, bool drew_high) {
  if (request.quality == Quality::kLossless) return directory == "fake-leak" && drew_high ? 1 : 0;
  if (directory != "fake-coarse") return 1;
  const bool coarse = request.gates.empty() || request.gates[0] == "float32-norms";
  return coarse ? 10 : 1;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options) {
  SEGUE_RETURN_IF_ERROR(CheckDirectory(options.model_directory));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

const ModelDefaults& Engine::defaults() const { return impl_->defaults; }

Result<MemoryReport> Engine::memory() const {
  if (impl_->options.device != "cuda") return MemoryReport{};
  return MemoryReport{.planned = 100, .allocated = 80, .peak = 99, .device = 120};
}

Status Engine::Validate(const Request& request) const {
  if (request.width.value_or(64) <= 2048 && request.height.value_or(48) <= 2048) return {};
  return Error{.code = ErrorCode::kInvalidArgument,
               .operation = "check request",
               .argument = "size",
               .got = std::to_string(*request.width) + "x" + std::to_string(*request.height),
               .wanted = "at most 2048x2048"};
}

Result<Picture> Engine::Generate(const Request& request,
                                 const std::function<bool(const Progress&)>& progress) {
  const ModelDefaults& d = impl_->defaults;
  Picture picture;
  picture.steps = request.steps.value_or(d.steps);
  picture.guidance = request.guidance.value_or(d.guidance);
  picture.guided = picture.guidance > 1 + 1e-6;
  picture.negative_prompt = request.negative_prompt.value_or(d.negative_prompt);
  picture.seed = request.seed;
  picture.device = "fake";
  picture.attention_backend = "fake";
  picture.quality.tier = request.quality;
  if (request.quality == Quality::kHigh) {
    picture.quality.mounted =
        request.gates.empty() ? std::vector<std::string>{"gelu-epilogue"} : request.gates;
    // Of a model that has no such site.
    std::erase(picture.quality.mounted, "packed-text-qkv");
    if (picture.quality.mounted != request.gates) {
      picture.quality.refused = {{"packed-text-qkv", "not in\na fake model"}};
    }
  }
  picture.kernels = {{"linear", "fake", 3, {"avx2: not here"}}};
  if (request.prompt == "long") picture.warnings = {"the prompt was cut to 3 tokens"};
  const bool slow = impl_->options.model_directory == "fake-slow";
  const bool stuck = impl_->options.model_directory == "fake-stuck";
  for (int step = 1; step <= picture.steps; ++step) {
    if (stuck) std::this_thread::sleep_for(std::chrono::minutes(10));
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (step == 3 && impl_->options.model_directory == "fake-step") {
      return Error{ErrorCode::kNonFinite, "denoise", "step 3", "nan in the latents", "finite"};
    }
    const Progress now{.step = step, .steps = picture.steps, .step_seconds = 0.05};
    if (!progress(now)) return Error{.code = ErrorCode::kCancelled, .operation = "generate"};
  }
  picture.image = {.width = request.width.value_or(d.width),
                   .height = request.height.value_or(d.height)};
  picture.image.rgb.assign(size_t{3} * picture.image.width * picture.image.height,
                           static_cast<uint8_t>(request.seed + static_cast<uint64_t>(ShiftOf(
                                                                   impl_->options.model_directory,
                                                                   request, impl_->drew_high))));
  impl_->drew_high |= request.quality == Quality::kHigh;
  if (request.keep_stages) {
    picture.stages = {{"latents", {2, 3}, {1, 2, 3, 4, 5, 6}},
                      {"embeddings", {1, 2}, {static_cast<float>(request.seed), 0.5F}}};
  }
  return picture;
}

Result<CheckpointSummary> InspectCheckpoint(const std::string& directory,
                                            const std::vector<PictureSize>& sizes,
                                            const std::string&, bool) {
  SEGUE_RETURN_IF_ERROR(CheckDirectory(directory));
  CheckpointSummary summary{.directory = directory};
  summary.components = {{.name = "vae",
                         .class_name = "FakeVae",
                         .parameters = 12,
                         .bytes = 2048,
                         .unused_tensors = 1,
                         .files = {"vae/model.safetensors"},
                         .tensors = {{"a.weight", "BF16", {3, 4}, "vae/model.safetensors"}}}};
  for (const PictureSize& size : sizes) {
    summary.plans.push_back(
        {.width = size.width, .height = size.height, .sequences = 2, .fits = size.width < 512});
  }
  return summary;
}

Result<VerifyReport> VerifyCheckpoint(const std::string& directory) {
  SEGUE_RETURN_IF_ERROR(CheckDirectory(directory));
  VerifyReport report{.checks = {"headers"}};
  if (directory == "fake-bad") report.problems = {"vae: tensor 'x': nan at index 7"};
  return report;
}

}  // namespace segue
