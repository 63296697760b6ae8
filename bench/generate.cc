#include "bench/generate.h"

#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/peer_process.h"
#include "segue/checkpoint.h"
#include "segue/engine.h"

namespace segue::bench {
namespace {

using Json = nlohmann::json;

// A run's parts, in the order rows are reported.
constexpr std::array<const char*, 3> kStages = {"encode", "denoise", "decode"};

struct StageSamples {
  std::array<std::vector<double>, 3> us;

  void Add(double encode_s, double denoise_s, double decode_s) {
    us[0].push_back(encode_s * 1e6);
    us[1].push_back(denoise_s * 1e6);
    us[2].push_back(decode_s * 1e6);
  }
};

struct Setup {
  Request request;
  std::string model;
  std::string peer_dtype;
};

Result<Setup> ReadCase(const Case& one) {
  SEGUE_ASSIGN_OR_RETURN(const int64_t width, one.Integer("width"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t height, one.Integer("height"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t steps, one.Integer("steps"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t guidance, one.Integer("guidance"));
  Setup setup;
  setup.model = one.Text("model", "models/emoji");
  setup.peer_dtype = one.Text("peer_dtype", "float32");
  setup.request.prompt = one.Text("prompt", "red apple");
  setup.request.negative_prompt = " ";
  setup.request.width = static_cast<int>(width);
  setup.request.height = static_cast<int>(height);
  setup.request.steps = static_cast<int>(steps);
  setup.request.guidance = static_cast<double>(guidance);
  return setup;
}

// What /proc/self/status says of this process, in bytes.
double StatusBytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    double kib = 0;
    if (word == key && file >> kib) return kib * 1024;
  }
  return 0;
}

void ResetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

Result<std::unique_ptr<PeerProcess>> StartPeer(const Setup& setup, const SuiteOptions& options) {
  const Request& request = setup.request;
  return PeerProcess::Start(
      {options.peer_python, "bench/diffusers_peer.py", "--interactive", "--model", setup.model,
       "--size", std::to_string(*request.width) + "x" + std::to_string(*request.height), "--steps",
       std::to_string(*request.steps), "--guidance", std::to_string(*request.guidance), "--prompt",
       request.prompt, "--threads", std::to_string(options.threads), "--dtype", setup.peer_dtype});
}

Result<Json> ParsePeer(const std::string& line) {
  Json json = Json::parse(line, nullptr, false);
  if (json.is_object()) return json;
  return Error{.code = ErrorCode::kIo,
               .operation = "run the peer",
               .argument = "diffusers",
               .got = line,
               .wanted = "a JSON object"};
}

// Times of the last `count` samples: those before belong to the warm-up.
Times LastSamples(const std::vector<double>& us, int64_t count) {
  return Summarize({us.end() - count, us.end()});
}

class GenerateBench {
 public:
  GenerateBench(Setup setup, const SuiteOptions& options)
      : setup_(std::move(setup)), options_(options) {}

  Status Prepare() {
    const auto start = std::chrono::steady_clock::now();
    SEGUE_ASSIGN_OR_RETURN(
        engine_, Engine::Load({.model_directory = setup_.model, .threads = options_.threads}));
    load_us_ =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    if (options_.peer_python.empty()) return {};
    SEGUE_ASSIGN_OR_RETURN(peer_, StartPeer(setup_, options_));
    SEGUE_ASSIGN_OR_RETURN(greeting_, ParsePeer(peer_->greeting()));
    return {};
  }

  Result<std::vector<Row>> Run(const std::string& name) {
    const Contender ours{.name = "segue", .version = "", .run = [this] { return RunOurs(); }};
    Contender peer{.name = "diffusers", .version = PeerVersion(), .run = {}};
    if (peer_) peer.run = [this] { return RunPeer(); };
    SEGUE_ASSIGN_OR_RETURN(const double peak, MeasurePeak());
    SEGUE_ASSIGN_OR_RETURN(const Comparison total, Measure(ours, peer, options_.measure));

    std::vector<Row> rows = {MakeRow(name, total)};
    for (size_t stage = 0; stage < kStages.size(); ++stage) {
      Comparison part{.ours = LastSamples(ours_.us[stage], total.ours.samples), .peer = {}};
      if (peer_) part.peer = LastSamples(peers_.us[stage], total.peer.samples);
      rows.push_back(MakeRow(name + "-" + kStages[stage], part));
    }
    Comparison load{.ours = Summarize({load_us_}), .peer = {}};
    if (peer_) load.peer = Summarize({greeting_.value("load_s", 0.0) * 1e6});
    rows.push_back(MakeRow(name + "-load", load));
    Row memory{.case_name = name + "-memory", .variant = "peak beyond the weights", .mode = "hot"};
    memory.rate = peak / (1 << 20);
    memory.unit = "MiB";
    rows.push_back(memory);
    return rows;
  }

 private:
  Status RunOurs() {
    SEGUE_ASSIGN_OR_RETURN(const Picture picture, engine_->Generate(setup_.request));
    ours_.Add(picture.times.encode_s, picture.times.denoise_s, picture.times.decode_s);
    return {};
  }

  Status RunPeer() {
    SEGUE_ASSIGN_OR_RETURN(const std::string line, peer_->Ask(""));
    SEGUE_ASSIGN_OR_RETURN(const Json times, ParsePeer(line));
    peers_.Add(times.value("encode_s", 0.0), times.value("denoise_s", 0.0),
               times.value("decode_s", 0.0));
    return {};
  }

  // The first run's peak resident memory, less the weights' size on disk.
  Result<double> MeasurePeak() {
    SEGUE_ASSIGN_OR_RETURN(const CheckpointSummary summary, InspectCheckpoint(setup_.model, {}));
    double weights = 0;
    for (const ComponentSummary& component : summary.components) {
      weights += static_cast<double>(component.bytes);
    }
    ResetPeakMemory();
    SEGUE_RETURN_IF_ERROR(RunOurs());
    return StatusBytes("VmHWM:") - weights;
  }

  std::string PeerVersion() const {
    if (!peer_) return "";
    const Json versions = greeting_.value("versions", Json::object());
    return versions.value("diffusers", "") + " (torch " + versions.value("torch", "") +
           ", transformers " + versions.value("transformers", "") + ")";
  }

  Row MakeRow(const std::string& name, const Comparison& comparison) const {
    Row row{.case_name = name, .variant = "float32", .mode = "hot"};
    SetTimes(comparison, 1, 1, &row);
    row.unit = "1/s";
    if (peer_) {
      row.peer = "diffusers " + setup_.peer_dtype;
      row.peer_version = PeerVersion();
    }
    return row;
  }

  Setup setup_;
  const SuiteOptions& options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<PeerProcess> peer_;
  Json greeting_;
  double load_us_ = 0;
  StageSamples ours_;
  StageSamples peers_;
};

}  // namespace

Result<std::vector<Row>> BenchGenerate(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(Setup setup, ReadCase(one));
  GenerateBench bench(std::move(setup), options);
  SEGUE_RETURN_IF_ERROR(bench.Prepare());
  return bench.Run(one.name);
}

}  // namespace segue::bench
