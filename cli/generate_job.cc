#include "cli/generate_job.h"

#include <cstdlib>
#include <random>
#include <thread>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/parse.h"
#include "cli/tier.h"
#include "segue/stages.h"
#include "segue/utf8.h"

namespace segue::cli {
namespace {

constexpr int kMaxSteps = 1000;
constexpr int kMaxPictures = 10000;
constexpr int kMaxThreads = 1024;
constexpr int kMaxRanks = 8;
// Far above any prompt a model can use (the limit is 1024 tokens), small enough to read whole.
constexpr size_t kMaxPromptBytes = size_t{1} << 20;
constexpr char kDefaultOutput[] = "segue-{seed}.png";

constexpr char kExamples[] = R"(Examples:
  segue generate --model models/emoji --prompt "red apple"
  segue generate --model models/emoji --prompt "cat face" --seed 7 --n 4 --output "cat-{seed}.png"
  segue generate --model models/emoji --prompt-file - --json < prompt.txt

Absent settings take the model's defaults (segue.json). The same settings and seed give the same
picture, byte for byte. Exit statuses and all details: docs/cli.md)";

// One line end at the end of a file belongs to the file, a byte order mark at its beginning to the
// editor; neither is part of the prompt.
std::string TrimPromptFile(std::string text) {
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

Status CheckText(const std::string& option, const std::string& text) {
  const std::optional<size_t> bad = FindInvalidUtf8(text);
  if (bad.has_value()) {
    const auto byte = static_cast<unsigned char>(text[*bad]);
    return Usage(option, Format("byte 0x%02x at offset %zu, which is not UTF-8", byte, *bad),
                 "UTF-8 text");
  }
  // PNG text, where the settings go, cannot hold it.
  const size_t nul = text.find('\0');
  if (nul != std::string::npos) {
    return Usage(option, Format("a NUL byte at offset %zu", nul), "text without NUL");
  }
  return {};
}

Result<std::string> ReadPrompt(const GenerateOptions& options) {
  if (options.prompt.has_value() == options.prompt_file.has_value()) {
    return Usage("--prompt, --prompt-file", options.prompt.has_value() ? "both" : "neither",
                 "one of them");
  }
  std::string prompt = options.prompt.value_or("");
  if (options.prompt_file.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(prompt, ReadWholeFile(*options.prompt_file, kMaxPromptBytes));
    prompt = TrimPromptFile(std::move(prompt));
  }
  SEGUE_RETURN_IF_ERROR(
      CheckText(options.prompt.has_value() ? "--prompt" : "--prompt-file", prompt));
  return prompt;
}

Status ReadNumbers(const GenerateOptions& options, GenerateJob* job) {
  Request& request = job->request;
  if (options.size.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(const PictureSize size, ParseSize("--size", *options.size));
    request.width = size.width;
    request.height = size.height;
  }
  if (options.steps.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(request.steps, ParseInt("--steps", *options.steps, 1, kMaxSteps));
  }
  if (options.guidance.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(request.guidance, ParseDouble("--guidance", *options.guidance));
  }
  if (options.count.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(job->count, ParseInt("--n", *options.count, 1, kMaxPictures));
  }
  if (options.threads.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(job->engine.threads,
                           ParseInt("--threads", *options.threads, 1, kMaxThreads));
  }
  return {};
}

Status ReadSeed(const GenerateOptions& options, GenerateJob* job) {
  job->seed_given = options.seed.has_value();
  if (job->seed_given) {
    SEGUE_ASSIGN_OR_RETURN(job->request.seed, ParseUint64("--seed", *options.seed));
  } else if (!options.latents.has_value()) {
    // 32 bits: short to type again, and room for every --n.
    job->request.seed = std::random_device()() & 0xffffffffU;
  }
  const auto more = static_cast<uint64_t>(job->count - 1);
  if (job->request.seed > UINT64_MAX - more) {
    return Usage("--seed", *options.seed,
                 Format("at most %llu with --n %d, as picture i uses seed + i",
                        static_cast<unsigned long long>(UINT64_MAX - more), job->count));
  }
  return {};
}

Status ReadNoise(const GenerateOptions& options, GenerateJob* job) {
  if (!options.latents.has_value()) return {};
  if (options.seed.has_value()) {
    return Usage("--latents", "--seed too", "one of them: given noise has no seed");
  }
  if (job->count != 1) {
    return Usage("--latents", Format("--n %d too", job->count),
                 "one picture: each would be the same");
  }
  SEGUE_ASSIGN_OR_RETURN(StageTensor noise, ReadLatents(*options.latents));
  job->request.latents = std::move(noise.values);
  job->facts.latents_file = *options.latents;
  return {};
}

Status ReadOutput(const GenerateOptions& options, GenerateJob* job) {
  job->output_given = options.output.has_value();
  job->output = {.text = options.output.value_or(kDefaultOutput), .count = job->count};
  if (!job->output_given && options.latents.has_value()) job->output.text = "segue.png";
  job->existing = options.overwrite ? Existing::kReplace : Existing::kRefuse;
  SEGUE_RETURN_IF_ERROR(job->output.Check());
  if (!options.dump.has_value()) return {};
  if (options.dump->empty()) return Usage("--dump", "''", "a directory");
  job->dump_directory = *options.dump;
  job->request.keep_stages = true;
  return {};
}

}  // namespace

void DeclareGenerateOptions(CLI::App& app, GenerateOptions& options) {
  app.footer(kExamples);
  app.add_option("--model", options.model, "Checkpoint directory (diffusers' QwenImagePipeline)")
      ->type_name("DIR")
      ->required();
  AddTextOption(app, "--prompt", options.prompt, "TEXT", "What to draw; may be empty");
  AddTextOption(app, "--prompt-file", options.prompt_file, "FILE",
                "Read the prompt from FILE, - is stdin");
  AddTextOption(app, "--negative-prompt", options.negative_prompt, "TEXT",
                "What to steer away from; needs guidance above 1");
  AddTextOption(app, "--size", options.size, "WxH", "Width and height in pixels, multiples of 16");
  AddTextOption(app, "--steps", options.steps, "N", "Denoising steps, 1 to 1000");
  AddTextOption(app, "--guidance", options.guidance, "X",
                "How strongly to follow the prompt; 1 or less: no guidance");
  AddTextOption(app, "--seed", options.seed, "N", "Seed of the noise, 0 to 2^64-1; absent: random");
  AddTextOption(app, "--n", options.count, "N", "Number of pictures; picture i has seed + i");
  AddTextOption(app, "--output", options.output, "FILE",
                "File name; may hold {seed} and {index} [segue-{seed}.png]");
  app.add_flag("--overwrite", options.overwrite, "Replace files that exist");
  AddTextOption(app, "--threads", options.threads, "N", "CPU threads; absent: one per core");
  AddTextOption(app, "--device", options.device, "NAME",
                "cpu, cuda or cuda:N [cpu]; a GPU runs in bfloat16");
  AddTextOption(app, "--tp", options.tensor_parallel, "N",
                "Ranks that share the transformer; must divide its heads [1]");
  app.add_flag("--cfg-parallel", options.cfg_parallel,
               "Two ranks, one for each guidance branch; needs guidance above 1");
  app.add_flag("--drop-modulation", options.drop_modulation,
               "Keep of a GPU's modulation weights only what this schedule needs");
  AddTextOption(app, "--quality", options.quality, "TIER",
                "lossless or high: how far bits may give way to speed [lossless]");
  app.add_flag("--json", options.json, "Print settings, times and kernels as JSON on stdout");
  app.add_flag("-q,--quiet", options.quiet, "Print warnings and errors only");
  AddTextOption(app, "--dump", options.dump, "DIR",
                "Write the tensors of every stage as safetensors")
      ->group("For checking");
  AddTextOption(app, "--latents", options.latents, "FILE",
                "Start from the noise in a safetensors file")
      ->group("For checking");
  AddTextOption(app, "--attention", options.attention, "NAME",
                "The transformer's only attention back end")
      ->group("For checking");
  AddTextOption(app, "--gates", options.gates, "LIST",
                "With --quality high: mount these gates only, a,b (segue quality --list)")
      ->group("For checking");
  AddTextOption(app, "--random-weights", options.random_weights, "SEED",
                "Weights out of a seed; DIR needs configurations and a tokenizer only")
      ->group("For checking");
  app.add_flag("--no-graphs", options.no_graphs, "Run every step launch by launch on a GPU")
      ->group("For checking");
  AddTextOption(app, "--cache", options.cache, "DIR",
                "A GPU's choices of algorithms are kept there [~/.cache/segue]")
      ->group("For checking");
  app.add_flag("--bf16", options.bf16, "Round to bfloat16 where the bfloat16 reference does")
      ->group("For checking");
  app.add_flag("--reference", options.reference, "Run the plain reference kernels only (slow)")
      ->group("For checking");
}

std::string DefaultCache() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::string(cache) + "/segue";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.cache/segue";
  return "";
}

namespace {

Status ReadEngine(const GenerateOptions& options, GenerateJob* job) {
  EngineOptions& engine = job->engine;
  engine.device = options.device.value_or("cpu");
  // Of a GPU alone: what could not take effect is refused.
  constexpr char kWanted[] = "--device cuda, without which it has no effect";
  const bool on_gpu = engine.device != "cpu" && !engine.device.empty();
  if (options.tensor_parallel.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(engine.tensor_parallel,
                           ParseInt("--tp", *options.tensor_parallel, 1, kMaxRanks));
  }
  if (options.cfg_parallel && engine.tensor_parallel > 1) {
    return Usage("--cfg-parallel", "--tp too",
                 "one of them: a rank has all of a branch, or a part of both");
  }
  engine.cfg_parallel = options.cfg_parallel;
  if (options.no_graphs && !on_gpu) return Usage("--no-graphs", "the CPU", kWanted);
  if (options.cache.has_value() && !on_gpu) return Usage("--cache", "the CPU", kWanted);
  if (options.drop_modulation) {
    if (!on_gpu) return Usage("--drop-modulation", "the CPU", kWanted);
    const Request& request = job->request;
    engine.schedules = {{.steps = request.steps, .width = request.width, .height = request.height}};
  }
  engine.attention_backend = options.attention.value_or("");
  engine.graphs = !options.no_graphs;
  engine.cache_directory = options.cache.value_or(DefaultCache());
  if (options.random_weights.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(engine.random_weights,
                           ParseUint64("--random-weights", *options.random_weights));
  }
  return {};
}

}  // namespace

namespace {

Status ReadQuality(const GenerateOptions& options, Request* request) {
  if (options.quality.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(request->quality, ReadTier("--quality", *options.quality));
  }
  if (!options.gates.has_value()) return {};
  if (request->quality == Quality::kLossless) {
    return Usage("--gates", "quality lossless, which mounts none", "--quality high");
  }
  SEGUE_ASSIGN_OR_RETURN(request->gates, ReadGateNames("--gates", *options.gates));
  return {};
}

}  // namespace

Result<GenerateJob> ReadGenerateJob(const GenerateOptions& options) {
  GenerateJob job;
  if (options.model.empty()) return Usage("--model", "''", "a checkpoint directory");
  SEGUE_RETURN_IF_ERROR(ReadNumbers(options, &job));
  SEGUE_RETURN_IF_ERROR(ReadSeed(options, &job));
  SEGUE_RETURN_IF_ERROR(ReadOutput(options, &job));
  SEGUE_ASSIGN_OR_RETURN(job.request.prompt, ReadPrompt(options));
  if (options.negative_prompt.has_value()) {
    SEGUE_RETURN_IF_ERROR(CheckText("--negative-prompt", *options.negative_prompt));
    job.request.negative_prompt = options.negative_prompt;
  }
  SEGUE_RETURN_IF_ERROR(ReadNoise(options, &job));
  job.engine.model_directory = options.model;
  SEGUE_RETURN_IF_ERROR(ReadEngine(options, &job));
  SEGUE_RETURN_IF_ERROR(ReadQuality(options, &job.request));
  job.engine.bf16_rounding = options.bf16;
  job.engine.reference_kernels = options.reference;
  job.json = options.json;
  job.quiet = options.quiet;
  job.facts.model = options.model;
  job.facts.prompt = job.request.prompt;
  job.facts.negative_prompt_given = options.negative_prompt.has_value();
  job.facts.bf16 = options.bf16;
  job.facts.reference = options.reference;
  job.facts.tensor_parallel = job.engine.tensor_parallel;
  job.facts.cfg_parallel = job.engine.cfg_parallel;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  job.facts.threads = job.engine.threads > 0 ? job.engine.threads : cores;
  return job;
}

bool IsGuided(double guidance) { return guidance > 1 + 1e-6; }

Status CheckGuidance(const GenerateJob& job, const ModelDefaults& defaults) {
  const double guidance = job.request.guidance.value_or(defaults.guidance);
  if (job.engine.cfg_parallel && !IsGuided(guidance)) {
    return Usage("--cfg-parallel", Format("guidance %g, which has no second branch", guidance),
                 "--guidance above 1");
  }
  if (!job.request.negative_prompt.has_value() || IsGuided(guidance)) return {};
  return Usage("--negative-prompt", Format("guidance %g, which leaves it without effect", guidance),
               "--guidance above 1, or no negative prompt");
}

std::string StagesPath(const GenerateJob& job, uint64_t seed) {
  const std::string name =
      job.facts.latents_file.empty() ? "seed-" + std::to_string(seed) : "given-noise";
  return job.dump_directory + "/" + name + ".safetensors";
}

}  // namespace segue::cli
