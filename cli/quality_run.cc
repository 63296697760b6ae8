#include "cli/quality_run.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace segue::cli {
namespace {

struct Drawn {
  Picture picture;
  double step_seconds = 0;  // the median
};

class Judge {
 public:
  Judge(Engine& engine, const std::vector<Request>& suite,
        const std::function<bool(const std::string&)>& progress)
      : engine_(engine), suite_(suite), progress_(progress) {}

  // The pictures that all others are compared with.
  Status DrawLossless(QualityRun* run) {
    lossless_.reserve(suite_.size());
    for (size_t i = 0; i < suite_.size(); ++i) {
      SEGUE_ASSIGN_OR_RETURN(Drawn drawn, Draw(i, Quality::kLossless, {}));
      run->lossless_step_seconds += drawn.step_seconds;
      run->device = drawn.picture.device;
      run->attention_backend = drawn.picture.attention_backend;
      lossless_.push_back(std::move(drawn.picture.image));
    }
    return {};
  }

  // `gates` empty: the whole tier.
  Result<QualityEntry> Compare(std::string name, const std::vector<std::string>& gates) {
    QualityEntry entry = {.name = std::move(name), .tier = gates.empty()};
    entry.worst_psnr = std::numeric_limits<double>::infinity();
    entry.worst_ssim = 1;
    for (size_t i = 0; i < suite_.size(); ++i) {
      SEGUE_ASSIGN_OR_RETURN(const Drawn drawn, Draw(i, Quality::kHigh, gates));
      entry.report = drawn.picture.quality;
      if (!entry.judged()) break;  // refused once, refused always: it follows from the model
      SEGUE_ASSIGN_OR_RETURN(const PictureQuality quality,
                             MeasureQuality(drawn.picture.image, lossless_[i]));
      Add(quality, i, entry);
      entry.step_seconds += drawn.step_seconds;
    }
    return entry;
  }

  Result<bool> LosslessAgain() {
    SEGUE_ASSIGN_OR_RETURN(const Drawn drawn, Draw(0, Quality::kLossless, {}));
    return drawn.picture.image.rgb == lossless_[0].rgb;
  }

 private:
  static void Add(const PictureQuality& quality, size_t picture, QualityEntry& entry) {
    entry.different += quality.different > 0 ? 1 : 0;
    if (quality.psnr < entry.worst_psnr) {
      entry.worst_psnr = quality.psnr;
      entry.worst_psnr_picture = picture;
    }
    if (quality.ssim < entry.worst_ssim) {
      entry.worst_ssim = quality.ssim;
      entry.worst_ssim_picture = picture;
    }
  }

  Result<Drawn> Draw(size_t index, Quality quality, const std::vector<std::string>& gates) {
    Request request = suite_[index];
    request.quality = quality;
    request.gates = gates;
    std::string what = QualityName(quality);
    for (const std::string& gate : gates) what += " " + gate;
    what += ": picture " + std::to_string(index + 1) + " of " + std::to_string(suite_.size());
    std::vector<double> seconds;
    Drawn drawn;
    SEGUE_ASSIGN_OR_RETURN(drawn.picture, engine_.Generate(request, [&](const Progress& step) {
      seconds.push_back(step.step_seconds);
      return progress_(what);
    }));
    if (!seconds.empty()) {
      const auto middle = seconds.begin() + static_cast<int64_t>(seconds.size() / 2);
      std::nth_element(seconds.begin(), middle, seconds.end());
      drawn.step_seconds = *middle;
    }
    return drawn;
  }

  Engine& engine_;
  const std::vector<Request>& suite_;
  const std::function<bool(const std::string&)>& progress_;
  std::vector<Image> lossless_;
};

bool InHigh(const std::string& name) {
  const auto gates = QualityGates();
  return std::any_of(gates.begin(), gates.end(),
                     [&](const GateInfo& gate) { return gate.name == name && gate.in_high; });
}

Error NothingMounted(const QualityRun& run) {
  std::string reasons;
  for (const QualityEntry& entry : run.entries) {
    if (entry.tier) continue;
    for (const RefusedGate& gate : entry.report.refused) {
      reasons += (reasons.empty() ? "" : "; ") + gate.name + ": " + gate.reason;
    }
  }
  return {.code = ErrorCode::kUnsupported,
          .operation = "judge quality",
          .argument = "gates",
          .got = reasons,
          .wanted = "one that can be mounted"};
}

}  // namespace

bool QualityRun::ok() const {
  return lossless_again &&
         std::all_of(entries.begin(), entries.end(), [](const QualityEntry& entry) {
           return !entry.binding || !entry.judged() || entry.keeps();
         });
}

Result<QualityRun> JudgeQuality(Engine& engine, const std::vector<Request>& suite,
                                const std::vector<std::string>& gates,
                                const std::function<bool(const std::string&)>& progress) {
  QualityRun run;
  Judge judge(engine, suite, progress);
  for (const Request& request : suite) SEGUE_RETURN_IF_ERROR(engine.Validate(request));
  SEGUE_RETURN_IF_ERROR(judge.DrawLossless(&run));
  run.entries.reserve(gates.size() + 1);
  for (const std::string& gate : gates) {
    SEGUE_ASSIGN_OR_RETURN(QualityEntry entry, judge.Compare(gate, {gate}));
    entry.binding = InHigh(gate);
    run.entries.push_back(std::move(entry));
  }
  SEGUE_ASSIGN_OR_RETURN(QualityEntry tier, judge.Compare(QualityName(Quality::kHigh), {}));
  tier.binding = true;
  run.entries.push_back(std::move(tier));
  if (std::none_of(run.entries.begin(), run.entries.end(),
                   [](const QualityEntry& entry) { return entry.judged(); })) {
    return NothingMounted(run);
  }
  SEGUE_ASSIGN_OR_RETURN(run.lossless_again, judge.LosslessAgain());
  return run;
}

}  // namespace segue::cli
