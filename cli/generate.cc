#include "cli/generate.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

#include "cli/console.h"
#include "cli/generate_job.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "segue/stages.h"

namespace segue::cli {
namespace {

constexpr char kName[] = "generate";

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One run of the command. Its files appear one by one, each whole.
class Generation {
 public:
  explicit Generation(GenerateJob job)
      : job_(std::move(job)),
        progress_(job_.quiet ? ProgressPrinter::Mode::kQuiet : ProgressPrinter::ModeForStderr()) {}

  // The exit status.
  int Run() {
    const Status status = RunAll();
    progress_.Clear();
    const int signal = InterruptSignal();
    if (!status.ok() && signal != 0 && status.error().code == ErrorCode::kCancelled) {
      return Interrupted(signal);
    }
    return status.ok() ? kExitOk : Fail(kName, status.error());
  }

 private:
  Status RunAll() {
    SEGUE_RETURN_IF_ERROR(CheckInterrupt());
    SEGUE_RETURN_IF_ERROR(Load());
    SEGUE_RETURN_IF_ERROR(CheckGuidance(job_, engine_->defaults()));
    SEGUE_RETURN_IF_ERROR(engine_->Validate(job_.request));
    SEGUE_RETURN_IF_ERROR(PrepareFiles());
    if (!job_.quiet) Announce();
    // Announced, so from here on it is as good as given.
    const ModelDefaults& defaults = engine_->defaults();
    if (IsGuided(job_.request.guidance.value_or(defaults.guidance)) &&
        !job_.request.negative_prompt.has_value()) {
      job_.request.negative_prompt = defaults.negative_prompt;
    }
    for (int i = 0; i < job_.count; ++i) SEGUE_RETURN_IF_ERROR(MakePicture(i));
    if (!job_.json) return {};
    SEGUE_ASSIGN_OR_RETURN(job_.facts.memory, engine_->memory());
    return Print(RunAsJson(job_.facts, written_));
  }

  Status Load() {
    const auto start = std::chrono::steady_clock::now();
    SEGUE_ASSIGN_OR_RETURN(engine_, Engine::Load(job_.engine));
    job_.facts.load_s = SecondsSince(start);
    return {};
  }

  // Every name and every directory, before any compute.
  Status PrepareFiles() {
    const ModelDefaults& defaults = engine_->defaults();
    const int64_t pixels = int64_t{job_.request.width.value_or(defaults.width)} *
                           job_.request.height.value_or(defaults.height);
    if (!job_.dump_directory.empty() && mkdir(job_.dump_directory.c_str(), 0777) != 0 &&
        errno != EEXIST) {
      return Error{.code = ErrorCode::kIo,
                   .operation = "make the directory",
                   .argument = job_.dump_directory,
                   .got = std::strerror(errno)};
    }
    for (int i = 0; i < job_.count; ++i) {
      const uint64_t seed = job_.request.seed + static_cast<uint64_t>(i);
      std::string path = job_.output.Path(i, seed);
      if (!job_.output_given && job_.existing == Existing::kRefuse) path = FirstFreeName(path);
      // Uncompressed size: noise does not compress, and a picture is rarely larger.
      SEGUE_RETURN_IF_ERROR(CheckWritable(path, pixels * 3 * job_.count, job_.existing));
      paths_.push_back(std::move(path));
      if (!job_.dump_directory.empty()) {
        SEGUE_RETURN_IF_ERROR(CheckWritable(StagesPath(job_, seed), 0, job_.existing));
      }
    }
    return {};
  }

  // The settings in effect, whoever chose them.
  void Announce() const {
    const ModelDefaults& defaults = engine_->defaults();
    const Request& request = job_.request;
    const double guidance = request.guidance.value_or(defaults.guidance);
    std::string line =
        Format("%s: %dx%d, %d steps, guidance %g", job_.facts.model.c_str(),
               request.width.value_or(defaults.width), request.height.value_or(defaults.height),
               request.steps.value_or(defaults.steps), guidance);
    if (!IsGuided(guidance)) line += " (none)";
    if (request.quality != Quality::kLossless) {
      line += std::string(", quality ") + QualityName(request.quality);
    }
    if (!job_.facts.latents_file.empty()) {
      line += ", noise from " + job_.facts.latents_file;
    } else {
      line += Format(", seed %llu%s", static_cast<unsigned long long>(request.seed),
                     job_.seed_given ? "" : " (random)");
    }
    if (IsGuided(guidance)) {
      const bool given = request.negative_prompt.has_value();
      line += Format(", negative prompt \"%s\"%s",
                     request.negative_prompt.value_or(defaults.negative_prompt).c_str(),
                     given ? "" : " (the default, as none was given)");
    }
    std::fprintf(stderr, "%s\n", OneLine(line).c_str());
  }

  static Status CheckInterrupt() {
    if (InterruptSignal() == 0) return {};
    return Error{.code = ErrorCode::kCancelled, .operation = "generate"};
  }

  Status MakePicture(int index) {
    SEGUE_RETURN_IF_ERROR(CheckInterrupt());
    Request request = job_.request;
    request.seed += static_cast<uint64_t>(index);
    progress_.BeginPicture(index + 1, job_.count);
    const auto on_step = [this](const Progress& step) {
      progress_.Update(step.step, step.steps, step.step_seconds);
      return InterruptSignal() == 0;
    };
    SEGUE_ASSIGN_OR_RETURN(Picture picture, engine_->Generate(request, on_step));
    SEGUE_RETURN_IF_ERROR(CheckInterrupt());
    progress_.Clear();
    return Write(index, request.seed, std::move(picture));
  }

  Status Write(int index, uint64_t seed, Picture picture) {
    const std::string& path = paths_[static_cast<size_t>(index)];
    SEGUE_ASSIGN_OR_RETURN(const std::vector<uint8_t> file,
                           EncodePng(picture.image, SettingsAsText(job_.facts, picture)));
    Written written{.width = picture.image.width, .height = picture.image.height};
    if (!job_.dump_directory.empty()) {
      written.stages_path = StagesPath(job_, seed);
      SEGUE_RETURN_IF_ERROR(WriteStages(written.stages_path, picture.stages));
    }
    SEGUE_ASSIGN_OR_RETURN(written.path, WriteWholeFile(path, file, job_.existing));
    if (written.path != path) {
      picture.warnings.push_back(path + " exists by now, so the picture is " + written.path);
    }
    Report(picture);
    if (!job_.json) SEGUE_RETURN_IF_ERROR(Print(written.path + "\n"));
    picture.image.rgb = {};
    picture.stages = {};
    written.picture = std::move(picture);
    written_.push_back(std::move(written));
    return {};
  }

  void Report(const Picture& picture) {
    for (const std::string& warning : picture.warnings) {
      if (!warned_.insert(warning).second) continue;
      std::fprintf(stderr, "segue generate: warning: %s\n", OneLine(warning).c_str());
    }
    if (job_.quiet) return;
    for (const RefusedGate& refused : picture.quality.refused) {
      const std::string line = "gate " + refused.name + " is not mounted: " + refused.reason;
      if (warned_.insert(line).second) std::fprintf(stderr, "%s\n", OneLine(line).c_str());
    }
    if (written_.empty()) std::fprintf(stderr, "load %.3g s, ", job_.facts.load_s);
    std::fprintf(stderr, "encode %.3g s, denoise %.3g s, decode %.3g s\n", picture.times.encode_s,
                 picture.times.denoise_s, picture.times.decode_s);
  }

  int Interrupted(int signal) const {
    std::fprintf(stderr, "segue generate: interrupted by %s; %zu of %d pictures were written\n",
                 strsignal(signal), written_.size(), job_.count);
    return 128 + signal;
  }

  GenerateJob job_;
  ProgressPrinter progress_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::string> paths_;
  std::vector<Written> written_;
  std::set<std::string> warned_;
};

int RunGenerate(const GenerateOptions& options) {
  NoteInterrupts();
  Result<GenerateJob> job = ReadGenerateJob(options);
  if (job.ok()) return Generation(*std::move(job)).Run();
  const int signal = InterruptSignal();
  const int status = Fail(kName, job.error());
  return job.error().code == ErrorCode::kCancelled && signal != 0 ? 128 + signal : status;
}

}  // namespace

Command RegisterGenerate(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(kName, "Make pictures from a prompt");
  const auto options = std::make_shared<GenerateOptions>();
  DeclareGenerateOptions(*app, *options);
  return {.app = app, .run = [options] { return RunGenerate(*options); }};
}

}  // namespace segue::cli
