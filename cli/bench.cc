#include "cli/bench.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bench/suite.h"
#include "cli/console.h"
#include "cli/version.h"

namespace segue::cli {
namespace {

constexpr char kName[] = "bench";
constexpr char kExamples[] = R"(Examples:
  segue bench cpu
  segue bench cpu --only linear --isa avx2
  segue bench attention --only joint,h3 --json
  segue bench cpu --peer-python .venv/bin/python --json > docs/measurements/cpu.json

Every case verifies its result before it is timed: a second of warm-up, then blocks of half a
second, ours / peer / peer / ours; medians. A peer that is not there leaves its columns empty.)";

struct BenchFlags {
  std::string suite = "cpu";
  std::string isa = "avx512";
  int threads = 0;
  bool json = false;
  bench::SuiteOptions options;
};

std::string SuiteNames() {
  std::string names;
  for (const auto& [name, text] : bench::BuiltInSuites()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

// A suite that is built in, by name, or a file, by path.
Result<std::vector<bench::Case>> ReadSuite(const std::string& name) {
  const auto found = bench::BuiltInSuites().find(name);
  if (found != bench::BuiltInSuites().end()) return bench::ParseSuite(found->second);
  std::ifstream file(name);
  if (!file) {
    return Error{.code = ErrorCode::kNotFound,
                 .operation = "read benchmark suite",
                 .argument = name,
                 .got = "neither a suite nor a file",
                 .wanted = "one of: " + SuiteNames() + "; or a suite file"};
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return bench::ParseSuite(text);
}

// What was measured, as it comes: a run takes minutes.
void Announce(const bench::Row& row) {
  std::string text = row.case_name + " " + row.mode;
  const auto add = [&text](const char* name, const std::optional<double>& value) {
    if (value.has_value()) text += ", " + std::string(name) + " " + std::to_string(*value);
  };
  add("us", row.median_us);
  add("peer us", row.peer_median_us);
  add("ratio", row.ratio);
  add("MHz", row.sm_clock_mhz);
  add("W", row.power_w);
  if (!row.note.empty()) text += " (" + row.note + ")";
  std::fprintf(stderr, "%s\n", text.c_str());
}

int RunBench(const BenchFlags& flags) {
  bench::SuiteOptions options = flags.options;
  options.commit = VersionCommit();
  options.widest_isa = flags.isa == "avx2" ? kernels::CpuIsa::kAvx2 : kernels::CpuIsa::kAvx512;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  options.threads = flags.threads > 0 ? flags.threads : std::max(cores, 1);
  const Result<std::vector<bench::Case>> cases = ReadSuite(flags.suite);
  if (!cases.ok()) return Fail(kName, cases.error());
  const Result<bench::Report> report = bench::RunSuite(*cases, options, Announce);
  if (!report.ok()) return Fail(kName, report.error());
  for (const std::string& failure : report->failures) {
    std::fprintf(stderr, "failed: %s\n", failure.c_str());
  }
  const Status printed =
      Print(flags.json ? bench::ReportJson(*report) : bench::ReportTable(*report));
  if (!printed.ok()) return Fail(kName, printed.error());
  return report->failures.empty() ? kExitOk : kExitNo;
}

}  // namespace

Command RegisterBench(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(kName, "Verify and time operations beside their peers");
  const auto flags = std::make_shared<BenchFlags>();
  app->footer(kExamples);
  app->add_option("SUITE", flags->suite, "Suite (" + SuiteNames() + ") or suite file")
      ->type_name("");
  app->add_option("--only", flags->options.only,
                  "Run the cases whose name contains this (or one of several: a,b)")
      ->type_name("TEXT");
  app->add_option("--warmup-s", flags->options.measure.warmup_s,
                  "Seconds of back-to-back calls before the first sample")
      ->type_name("S")
      ->check(CLI::Range(0.0, 60.0));
  app->add_option("--block-s", flags->options.measure.block_s,
                  "Seconds of each of the four blocks: ours, peer, peer, ours")
      ->type_name("S")
      ->check(CLI::Range(0.0, 60.0));
  app->add_flag("--keep-going", flags->options.keep_going,
                "Go on after a case that failed; the exit status still says so");
  app->add_option("--threads", flags->threads, "Threads of both sides; default: one a core")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app->add_option("--isa", flags->isa, "Widest instruction set of both sides: avx2 or avx512")
      ->type_name("ISA")
      ->check(CLI::IsMember({"avx2", "avx512"}));
  app->add_option("--peer-python", flags->options.peer_python,
                  "Python that has diffusers, for the peer of whole pictures")
      ->type_name("PATH");
  app->add_flag("--json", flags->json, "Print JSON, as in docs/measurements/");
  return {.app = app, .run = [flags] { return RunBench(*flags); }};
}

}  // namespace segue::cli
