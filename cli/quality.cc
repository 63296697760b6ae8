#include "cli/quality.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/console.h"
#include "cli/generate_job.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/parse.h"
#include "cli/quality_run.h"
#include "cli/quality_suite.h"
#include "cli/table.h"
#include "cli/tier.h"
#include "cli/version.h"

namespace segue::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kName[] = "quality";
constexpr size_t kMaxSuiteBytes = size_t{1} << 20;
constexpr int kMaxThreads = 1024;
constexpr char kExamples[] = R"(Examples:
  segue quality --model models/emoji
  segue quality --model models/emoji --device cuda --json
  segue quality --list

Exit status 0: every gate of the tier, and the tier, keeps 35 dB and SSIM 0.98 in its worst picture.
1: not. All details: docs/quality.md, docs/cli.md)";

struct QualityOptions {
  std::optional<std::string> model, suite, gates, device, threads, cache;
  bool list = false, json = false, quiet = false;
};

struct QualityJob {
  EngineOptions engine;
  std::string suite_file;
  std::vector<Request> suite;
  std::vector<std::string> gates;
};

std::vector<std::string> AllGates() {
  std::vector<std::string> names;
  names.reserve(QualityGates().size());
  for (const GateInfo& gate : QualityGates()) names.push_back(gate.name);
  return names;
}

Result<QualityJob> ReadJob(const QualityOptions& options) {
  QualityJob job;
  if (!options.model.has_value() || options.model->empty()) {
    return Usage("--model", "none", "a checkpoint directory");
  }
  job.engine.model_directory = *options.model;
  job.engine.device = options.device.value_or("cpu");
  const bool on_gpu = job.engine.device != "cpu" && !job.engine.device.empty();
  if (options.cache.has_value() && !on_gpu) {
    return Usage("--cache", "the CPU", "--device cuda, without which it has no effect");
  }
  job.engine.cache_directory = options.cache.value_or(DefaultCache());
  // In float32 nothing is rounded in between, and no gate has anything to change.
  job.engine.bf16_rounding = true;
  if (options.threads.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(job.engine.threads,
                           ParseInt("--threads", *options.threads, 1, kMaxThreads));
  }
  job.gates = AllGates();
  if (options.gates.has_value()) {
    SEGUE_ASSIGN_OR_RETURN(job.gates, ReadGateNames("--gates", *options.gates));
  }
  job.suite_file = options.suite.value_or(*options.model + "/quality.txt");
  SEGUE_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(job.suite_file, kMaxSuiteBytes));
  SEGUE_ASSIGN_OR_RETURN(job.suite, ParseQualitySuite(job.suite_file, text));
  return job;
}

// "ok", "BELOW", "refused"; in brackets where it binds nothing.
std::string Verdict(const QualityEntry& entry) {
  std::string verdict = !entry.judged() ? "refused" : entry.keeps() ? "ok" : "BELOW";
  return entry.binding ? verdict : "(" + verdict + ")";
}

std::string RunAsTable(const QualityRun& run, const QualityJob& job) {
  Table table({2, 4, 6, 7});
  table.Add({"", "gates", "worst PSNR dB", "of", "worst SSIM", "of", "differ", "step time"});
  const auto prompt = [&](size_t picture) { return OneLine(job.suite[picture].prompt); };
  std::string reasons;
  for (const QualityEntry& entry : run.entries) {
    for (const RefusedGate& refused : entry.report.refused) {
      if (!entry.tier) reasons += refused.name + ": " + OneLine(refused.reason) + "\n";
    }
    if (!entry.judged()) {
      table.Add({Verdict(entry), entry.name});
      continue;
    }
    table.Add({Verdict(entry), entry.name, Format("%.2f", entry.worst_psnr),
               prompt(entry.worst_psnr_picture), Format("%.5f", entry.worst_ssim),
               prompt(entry.worst_ssim_picture),
               Format("%d of %zu", entry.different, job.suite.size()),
               Format("%.3f", entry.step_seconds / run.lossless_step_seconds)});
  }
  return table.Text() + reasons +
         Format("%zu pictures on %s, attention %s; at least %g dB and %g. ", job.suite.size(),
                run.device.c_str(), run.attention_backend.c_str(), kLeastPsnr, kLeastSsim) +
         (run.lossless_again ? "Lossless afterwards: the same bytes.\n"
                             : "LOSSLESS AFTERWARDS: OTHER BYTES.\n");
}

// JSON has no infinity: null says it.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json EntryAsJson(const QualityEntry& entry, const QualityRun& run) {
  Json refused = Json::array();
  for (const RefusedGate& gate : entry.report.refused) {
    refused.push_back({{"gate", gate.name}, {"reason", gate.reason}});
  }
  Json json = {{"name", entry.name},
               {"kind", entry.tier ? "tier" : "gate"},
               {"binding", entry.binding},
               {"mounted", entry.report.mounted},
               {"refused", std::move(refused)}};
  if (!entry.judged()) return json;
  json["keeps"] = entry.keeps();
  json["worst_psnr_db"] = Number(entry.worst_psnr);
  json["worst_psnr_picture"] = entry.worst_psnr_picture;
  json["worst_ssim"] = entry.worst_ssim;
  json["worst_ssim_picture"] = entry.worst_ssim_picture;
  json["different_pictures"] = entry.different;
  json["step_time_ratio"] = Number(entry.step_seconds / run.lossless_step_seconds);
  return json;
}

std::string RunAsJson(const QualityRun& run, const QualityJob& job) {
  Json pictures = Json::array();
  for (const Request& request : job.suite) {
    pictures.push_back({{"prompt", request.prompt},
                        {"seed", request.seed},
                        {"width", request.width.value_or(0)},
                        {"height", request.height.value_or(0)},
                        {"steps", request.steps.value_or(0)},
                        {"guidance", request.guidance.value_or(0)}});
  }
  Json entries = Json::array();
  for (const QualityEntry& entry : run.entries) entries.push_back(EntryAsJson(entry, run));
  const Json json = {{"segue", VersionNumber()},
                     {"commit", VersionCommit()},
                     {"model", job.engine.model_directory},
                     {"device", run.device},
                     {"attention", run.attention_backend},
                     {"least_psnr_db", kLeastPsnr},
                     {"least_ssim", kLeastSsim},
                     {"ok", run.ok()},
                     {"lossless_again", run.lossless_again},
                     {"lossless_step_seconds", run.lossless_step_seconds},
                     {"pictures", std::move(pictures)},
                     {"entries", std::move(entries)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status PrintGates(bool as_json) {
  if (as_json) {
    Json list = Json::array();
    for (const GateInfo& gate : QualityGates()) {
      list.push_back({{"name", gate.name},
                      {"site", gate.site},
                      {"change", gate.change},
                      {"in_high", gate.in_high}});
    }
    return Print(list.dump(2) + "\n");
  }
  Table table;
  table.Add({"gate", "site", "in high", "change"});
  for (const GateInfo& gate : QualityGates()) {
    table.Add({gate.name, gate.site, gate.in_high ? "yes" : "no", gate.change});
  }
  return Print(table.Text());
}

Result<int> RunQuality(const QualityOptions& options) {
  if (options.list) {
    SEGUE_RETURN_IF_ERROR(PrintGates(options.json));
    return kExitOk;
  }
  SEGUE_ASSIGN_OR_RETURN(const QualityJob job, ReadJob(options));
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Load(job.engine));
  std::string last;
  const auto progress = [&](const std::string& what) {
    if (!options.quiet && what != last) std::fprintf(stderr, "%s\n", what.c_str());
    last = what;
    return InterruptSignal() == 0;
  };
  SEGUE_ASSIGN_OR_RETURN(const QualityRun run,
                         JudgeQuality(*engine, job.suite, job.gates, progress));
  SEGUE_RETURN_IF_ERROR(Print(options.json ? RunAsJson(run, job) : RunAsTable(run, job)));
  return run.ok() ? kExitOk : kExitNo;
}

}  // namespace

Command RegisterQuality(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(kName, "Judge the gates of the quality tier high");
  const auto options = std::make_shared<QualityOptions>();
  app->footer(kExamples);
  AddTextOption(*app, "--model", options->model, "DIR", "Checkpoint directory");
  AddTextOption(*app, "--suite", options->suite, "FILE",
                "Pictures to judge by, at least 8 [DIR/quality.txt]");
  AddTextOption(*app, "--gates", options->gates, "LIST", "Judge these alone, a,b [all there are]");
  AddTextOption(*app, "--device", options->device, "NAME",
                "cpu (in bfloat16 rounding), cuda or cuda:N [cpu]");
  AddTextOption(*app, "--threads", options->threads, "N", "CPU threads; absent: one per core");
  AddTextOption(*app, "--cache", options->cache, "DIR",
                "A GPU's choices of algorithms are kept there [~/.cache/segue]");
  app->add_flag("--list", options->list, "Print the gates there are, judge nothing");
  app->add_flag("--json", options->json, "Print JSON");
  app->add_flag("-q,--quiet", options->quiet, "Do not say which picture is drawn");
  return {.app = app, .run = [options] {
            NoteInterrupts();
            const Result<int> status = RunQuality(*options);
            if (status.ok()) return *status;
            const int signal = InterruptSignal();
            const int failed = Fail(kName, status.error());
            return status.error().code == ErrorCode::kCancelled && signal != 0 ? 128 + signal
                                                                               : failed;
          }};
}

}  // namespace segue::cli
