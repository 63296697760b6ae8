#include "cli/verify.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/console.h"
#include "segue/checkpoint.h"

namespace segue::cli {
namespace {

constexpr char kName[] = "verify";
constexpr char kExamples[] = R"(Examples:
  segue verify models/emoji

Exit status 0: sound. 1: problems were found; each is printed. Others: docs/cli.md.)";

struct VerifyOptions {
  std::string model;
  bool json = false;
};

std::string AsText(const VerifyReport& report) {
  std::string text;
  for (const std::string& check : report.checks) text += "ok       " + OneLine(check) + "\n";
  for (const std::string& problem : report.problems) text += "problem  " + OneLine(problem) + "\n";
  text += report.problems.empty() ? std::string("sound\n")
                                  : Format("unsound: %zu problem%s\n", report.problems.size(),
                                           report.problems.size() == 1 ? "" : "s");
  return text;
}

std::string AsJson(const VerifyReport& report) {
  using Json = nlohmann::ordered_json;
  const Json json = {
      {"sound", report.problems.empty()}, {"checks", report.checks}, {"problems", report.problems}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int RunVerify(const VerifyOptions& options) {
  const Result<VerifyReport> report = VerifyCheckpoint(options.model);
  if (!report.ok()) return Fail(kName, report.error());
  const Status printed = Print(options.json ? AsJson(*report) : AsText(*report));
  if (!printed.ok()) return Fail(kName, printed.error());
  return report->problems.empty() ? kExitOk : kExitNo;
}

}  // namespace

Command RegisterVerify(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(kName, "Check a checkpoint: files, weights, tokenizer");
  const auto options = std::make_shared<VerifyOptions>();
  app->footer(kExamples);
  app->add_option("MODEL", options->model, "Checkpoint directory")->type_name("")->required();
  app->add_flag("--json", options->json, "Print JSON");
  return {.app = app, .run = [options] { return RunVerify(*options); }};
}

}  // namespace segue::cli
