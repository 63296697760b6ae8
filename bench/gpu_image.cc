#include "bench/gpu_image.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "bench/nvml.h"
#include "bench/temporary_directory.h"
#include "segue/engine.h"
#include "segue/image.h"

namespace segue::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kSeed = 14;
// The first step runs launch by launch, the second is recorded, the third is a replay.
constexpr int kWarmUpSteps = 3;
// 63 rows of text with the emoji model's tokenizer: nearly all of the slot of 64.
constexpr char kPrompt[] =
    "A street corner after the rain, two people under one umbrella, the lights of a small shop in "
    "the puddles, a bicycle against the wall, soft evening colours, film photograph";

struct Setup {
  std::string model;
  std::string tokenizer;  // empty: the model's own, and its own weights
  std::string device;
  Request request;
  int64_t pictures = 1;
};

Result<Setup> ReadSetup(const Case& one) {
  Setup setup;
  SEGUE_ASSIGN_OR_RETURN(const int64_t width, one.Integer("width"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t height, one.Integer("height"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t steps, one.Integer("steps"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t guidance, one.Integer("guidance"));
  SEGUE_ASSIGN_OR_RETURN(setup.pictures, one.Integer("pictures"));
  if (setup.pictures < 1) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "read benchmark suite",
                 .argument = "case " + one.name + ": pictures",
                 .got = std::to_string(setup.pictures),
                 .wanted = "at least 1"};
  }
  setup.model = one.Text("model", "models/qwen_image");
  setup.tokenizer = one.Text("tokenizer", "");
  setup.device = one.Text("device", "cuda");
  setup.request = {.prompt = kPrompt,
                   .negative_prompt = " ",
                   .width = static_cast<int>(width),
                   .height = static_cast<int>(height),
                   .steps = static_cast<int>(steps),
                   .guidance = static_cast<double>(guidance)};
  return setup;
}

// A directory of links: a model's configurations with a tokenizer that it has not got.
class LinkedModel {
 public:
  static Result<std::unique_ptr<LinkedModel>> Create(const std::string& model,
                                                     const std::string& tokenizer) {
    SEGUE_ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Create());
    std::unique_ptr<LinkedModel> linked(new LinkedModel(std::move(directory)));
    std::error_code error;
    for (fs::directory_iterator entry(model, error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      if (entry->path().filename() == "tokenizer") continue;
      SEGUE_RETURN_IF_ERROR(linked->Link(entry->path(), entry->path().filename()));
    }
    if (error) return LinkError(model, error);
    SEGUE_RETURN_IF_ERROR(linked->Link(tokenizer, "tokenizer"));
    return linked;
  }
  const std::string& directory() const { return directory_.path(); }

 private:
  explicit LinkedModel(TemporaryDirectory directory) : directory_(std::move(directory)) {}
  static Error LinkError(const std::string& path, const std::error_code& error) {
    return {.code = ErrorCode::kNotFound,
            .operation = "link a model",
            .argument = path,
            .got = error.message(),
            .wanted = "a directory; run from the top of the source tree"};
  }
  Status Link(const fs::path& target, const fs::path& name) const {
    std::error_code error;
    const fs::path whole = fs::canonical(target, error);
    if (!error) fs::create_symlink(whole, fs::path(directory_.path()) / name, error);
    return error ? Status(LinkError(target.string(), error)) : Status();
  }

  TemporaryDirectory directory_;
};

// Microseconds of every timed picture.
struct Samples {
  std::vector<double> encode, denoise, decode, total;
};

Status Draw(Engine& engine, const Request& request, Samples* samples, GpuSampler* sampler) {
  const auto start = Clock::now();
  SEGUE_ASSIGN_OR_RETURN(const Picture picture,
                         engine.Generate(request, [sampler](const Progress&) {
                           if (sampler != nullptr) sampler->Sample();
                           return true;
                         }));
  SEGUE_RETURN_IF_ERROR(EncodePng(picture.image, {}));
  if (samples == nullptr) return {};
  samples->total.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  samples->encode.push_back(picture.times.encode_s * 1e6);
  samples->denoise.push_back(picture.times.denoise_s * 1e6);
  samples->decode.push_back(picture.times.decode_s * 1e6);
  return {};
}

std::vector<Row> RowsOf(const std::string& name, const Setup& setup, Samples samples,
                        const GpuState& state) {
  const auto row = [&](const std::string& part, std::vector<double> us) {
    Row made = {.case_name = name + part, .variant = "lossless", .mode = "hot", .unit = "1/s"};
    SetTimes({.ours = Summarize(std::move(us)), .peer = {}}, 1, 1, &made);
    made.note = setup.tokenizer.empty() ? "" : "random weights";
    return made;
  };
  std::vector<Row> rows = {
      row("", std::move(samples.denoise)), row("-total", std::move(samples.total)),
      row("-encode", std::move(samples.encode)), row("-decode", std::move(samples.decode))};
  rows[0].sm_clock_mhz = state.sm_clock_mhz;
  rows[0].power_w = state.power_w;
  rows[0].temp_c = state.temp_c;
  return rows;
}

}  // namespace

Result<std::vector<Row>> BenchGpuImage(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(Setup setup, ReadSetup(one));
  EngineOptions engine_options = {
      .model_directory = setup.model, .device = setup.device, .threads = options.threads};
  std::unique_ptr<LinkedModel> linked;
  if (!setup.tokenizer.empty()) {
    SEGUE_ASSIGN_OR_RETURN(linked, LinkedModel::Create(setup.model, setup.tokenizer));
    engine_options.model_directory = linked->directory();
    engine_options.random_weights = kSeed;
  }
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(engine_options));
  Request warm_up = setup.request;
  warm_up.steps = std::min(*warm_up.steps, kWarmUpSteps);
  SEGUE_RETURN_IF_ERROR(Draw(*engine, warm_up, nullptr, nullptr));
  Samples samples;
  GpuSampler sampler(GpuBusId());
  for (int64_t i = 0; i < setup.pictures; ++i) {
    Request request = setup.request;
    request.seed = static_cast<uint64_t>(i);
    SEGUE_RETURN_IF_ERROR(Draw(*engine, request, &samples, &sampler));
  }
  return RowsOf(one.name, setup, std::move(samples), sampler.Take());
}

}  // namespace segue::bench
