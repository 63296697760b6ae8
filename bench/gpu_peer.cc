#include "bench/gpu_peer.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace segue::bench {
namespace {

using Json = nlohmann::json;

constexpr char kScript[] = "bench/gpu_peer.py";
// Loading, and compiling once or twice. A run lasts a second or so.
constexpr double kLimitSeconds = 300;

Error PeerError(const std::string& got, const std::string& wanted) {
  return {.code = ErrorCode::kIo,
          .operation = "run the peer",
          .argument = kScript,
          .got = got,
          .wanted = wanted};
}

// The value of a key, or what stands for none where it is absent or of another type.
std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}
double NumberOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0.0;
}

Result<Json> Parse(const std::string& line) {
  Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return PeerError(line, "a JSON object");
  if (json.contains("error")) return PeerError(TextOf(json, "error"), "a peer that runs");
  return json;
}

std::string Decimal(double value) {
  const std::string text = std::to_string(value);
  return text.substr(0, text.find('.') + 2);
}

}  // namespace

Result<std::unique_ptr<GpuPeer>> GpuPeer::Start(const std::vector<std::string>& command) {
  std::unique_ptr<GpuPeer> peer(new GpuPeer);
  SEGUE_ASSIGN_OR_RETURN(peer->process_, PeerProcess::Start(command, kLimitSeconds));
  SEGUE_ASSIGN_OR_RETURN(const Json greeting, Parse(peer->process_->greeting()));
  peer->name_ = TextOf(greeting, "peer");
  if (peer->name_.empty()) return PeerError(greeting.dump(), "the peer's name");
  peer->version_ = TextOf(greeting, "version") + " (" + TextOf(greeting, "form") + ")";
  peer->note_ = "peer ready after " + Decimal(NumberOf(greeting, "ready_s")) + " s with " +
                Decimal(NumberOf(greeting, "memory_gib")) + " GiB: " + peer->version_;
  return peer;
}

Result<std::vector<double>> GpuPeer::Run(double seconds) {
  SEGUE_ASSIGN_OR_RETURN(const std::string line, process_->Ask(std::to_string(seconds)));
  SEGUE_ASSIGN_OR_RETURN(const Json answer, Parse(line));
  std::vector<double> samples_us;
  const auto times = answer.find("us");
  const size_t count = times != answer.end() && times->is_array() ? times->size() : 0;
  samples_us.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Json& us = (*times)[i];
    if (us.is_number() && us.get<double>() > 0) samples_us.push_back(us.get<double>());
  }
  if (count == 0 || samples_us.size() != count) {
    return PeerError(line, "microseconds of at least one call");
  }
  return samples_us;
}

Result<GpuComparison> MeasureBesidePython(const GpuProgram& ours,
                                          const std::vector<std::string>& arguments,
                                          const SuiteOptions& options, const GpuStream& stream,
                                          Row* row) {
  const auto add_note = [row](const std::string& text) {
    row->note += (row->note.empty() ? "" : "; ") + text;
  };
  if (options.peer_python.empty()) {
    add_note("no peer: --peer-python names none");
    return MeasureOnGpu(ours, nullptr, options.measure, stream);
  }
  std::vector<std::string> command = {options.peer_python, kScript};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Result<std::unique_ptr<GpuPeer>> peer = GpuPeer::Start(command);
  if (!peer.ok()) {
    add_note("no peer: " + peer.error().Message());
    return MeasureOnGpu(ours, nullptr, options.measure, stream);
  }
  add_note((*peer)->note());
  row->peer = (*peer)->name();
  row->peer_version = (*peer)->version();
  return MeasureBesideProcess(
      ours, [&peer](double seconds) { return (*peer)->Run(seconds); }, options.measure, stream);
}

}  // namespace segue::bench
