#include "bench/gpu_attention.h"

#include <memory>
#include <optional>
#include <utility>

#include "bench/attention_case.h"
#include "bench/cudnn_peer.h"
#include "bench/gpu_measure.h"
#include "bench/gpu_operands.h"

namespace segue::bench {
namespace {

constexpr char kVariant[] = "sm90 bf16";
constexpr char kUnit[] = "TFLOP/s";
constexpr double kTera = 1e12;
constexpr double kChoiceSeconds = 0.15;

void Append(std::vector<Row> rows, std::vector<Row>* all) {
  for (Row& row : rows) all->push_back(std::move(row));
}

// A peer that was built, verified and captured.
struct ReadyPeer {
  std::unique_ptr<CudnnPeer> peer;
  GpuContender contender;
  GpuProgram program;
};

Result<ReadyPeer> PreparePeer(const AttentionCase& shape, CudnnForm form, const std::string& name,
                              int threads, const GpuStream& stream) {
  ReadyPeer ready;
  SEGUE_ASSIGN_OR_RETURN(CudnnPeer peer, CudnnPeer::Create(shape, form, threads, stream));
  ready.peer = std::make_unique<CudnnPeer>(std::move(peer));
  SEGUE_RETURN_IF_ERROR(ready.peer->Verify(name, threads, stream));
  ready.contender = ready.peer->Attention();
  SEGUE_ASSIGN_OR_RETURN(ready.program, Record(ready.contender, stream));
  return ready;
}

// The fastest form; the times of all, and the reasons against those that cannot run or are wrong,
// are added to `notes`.
Result<std::optional<ReadyPeer>> FastestPeer(const AttentionCase& shape, const std::string& name,
                                             int threads, const GpuStream& stream,
                                             std::string* notes) {
  std::optional<ReadyPeer> fastest;
  double fastest_us = 0;
  for (const CudnnForm form : FormsFor(shape)) {
    Result<ReadyPeer> ready = PreparePeer(shape, form, name, threads, stream);
    if (!ready.ok()) {
      *notes += "cuDNN" + FormName(form) + ": " + ready.error().Message() + "; ";
      continue;
    }
    SEGUE_ASSIGN_OR_RETURN(const double us, TimeBriefly(ready->program, kChoiceSeconds, stream));
    *notes += "cuDNN" + FormName(form) + " " + std::to_string(us) + " us; ";
    if (fastest.has_value() && us >= fastest_us) continue;
    fastest = std::move(ready).value();
    fastest_us = us;
  }
  return fastest;
}

Result<std::vector<Row>> MeasureReversed(const Case& one, const AttentionCase& shape,
                                         const SuiteOptions& options, const GpuStream& stream) {
  const std::string name = one.name + "-reversed";
  SEGUE_ASSIGN_OR_RETURN(AttentionOperands operands,
                         AttentionOperands::Create(Reversed(shape), stream));
  SEGUE_RETURN_IF_ERROR(operands.Verify(name, options.threads, stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram program, Record(operands.Attention(), stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuComparison comparison,
                         MeasureOnGpu(program, nullptr, options.measure, stream));
  return RowsOf(comparison, shape.Operations(), kTera,
                {.case_name = name, .variant = kVariant, .unit = kUnit});
}

// A small kernel, whose time hardly depends on clocks: half a block of it.
Result<Row> MeasureRefresh(const Case& one, AttentionOperands* operands, const GpuStream& stream) {
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram program, Record(operands->Refresh(), stream));
  SEGUE_ASSIGN_OR_RETURN(const double us, TimeBriefly(program, 0.25, stream));
  Row row{.case_name = one.name + "-refresh", .variant = "refresh", .mode = "hot", .unit = ""};
  row.median_us = us;
  return row;
}

}  // namespace

Result<std::vector<Row>> BenchGpuAttention(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const AttentionCase shape, ReadAttentionCase(one));
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  SEGUE_ASSIGN_OR_RETURN(AttentionOperands operands, AttentionOperands::Create(shape, stream));
  SEGUE_RETURN_IF_ERROR(operands.Verify(one.name, options.threads, stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram ours, Record(operands.Attention(), stream));
  Row row{.case_name = one.name, .variant = kVariant, .unit = kUnit};
  SEGUE_ASSIGN_OR_RETURN(const std::optional<ReadyPeer> peer,
                         FastestPeer(shape, one.name, options.threads, stream, &row.note));
  if (peer.has_value()) {
    row.peer = peer->contender.name;
    row.peer_version = peer->contender.version;
  }
  SEGUE_ASSIGN_OR_RETURN(
      const GpuComparison comparison,
      MeasureOnGpu(ours, peer.has_value() ? &peer->program : nullptr, options.measure, stream));
  std::vector<Row> rows = RowsOf(comparison, shape.Operations(), kTera, row);
  if (one.Text("refresh", "0") == "1") {
    SEGUE_ASSIGN_OR_RETURN(Row refresh, MeasureRefresh(one, &operands, stream));
    rows.push_back(std::move(refresh));
  }
  if (one.Text("reversed", "0") == "1") {
    SEGUE_ASSIGN_OR_RETURN(std::vector<Row> reversed, MeasureReversed(one, shape, options, stream));
    Append(std::move(reversed), &rows);
  }
  return rows;
}

Result<std::vector<Row>> BenchGpuInPlace(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const AttentionCase shape, ReadAttentionCase(one));
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  SEGUE_ASSIGN_OR_RETURN(AttentionOperands in_place, AttentionOperands::Create(shape, stream));
  SEGUE_RETURN_IF_ERROR(in_place.Verify(one.name, options.threads, stream));
  SEGUE_ASSIGN_OR_RETURN(AttentionOperands joined,
                         AttentionOperands::Create(Concatenated(shape), stream));
  SEGUE_RETURN_IF_ERROR(joined.Verify(one.name + ", concatenated", options.threads, stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram ours, Record(in_place.Attention(), stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram base, Record(joined.Attention(), stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuComparison comparison,
                         MeasureOnGpu(ours, &base, options.measure, stream));
  std::vector<Row> rows = RowsOf(comparison, shape.Operations(), kTera,
                                 {.case_name = one.name,
                                  .variant = kVariant,
                                  .unit = kUnit,
                                  .peer = "segue, one concatenated tensor"});
  for (Row& row : rows) row.ratio = 1 / *row.ratio;
  return rows;
}

}  // namespace segue::bench
