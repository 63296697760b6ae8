// Operations that treat each row by itself, on the CPU: shared by rows, vectorised along them.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/finite.h"
#include "kernels/reference.h"

namespace segue::kernels::cpu {

struct RowRange {
  int64_t begin;
  int64_t end;
};

// What is compiled for an instruction set. `scratch` has room for one row of widened weights.
struct RowCode {
  void (*activate)(const ActivationParams& params, RowRange rows, float* scratch);
  void (*add)(const AddParams& params, RowRange rows, float* scratch);
  void (*channel_norm)(const ChannelNormParams& params, RowRange rows, float* scratch);
  void (*gate_residual)(const GateResidualParams& params, RowRange rows, float* scratch);
  void (*layer_norm)(const LayerNormParams& params, RowRange rows, float* scratch);
  void (*qk_norm_rope)(const QkNormRopeParams& params, RowRange rows, float* scratch);
  void (*rms_norm)(const RmsNormParams& params, RowRange rows, float* scratch);
  void (*rope_half)(const RopeHalfParams& params, RowRange rows, float* scratch);
  void (*silu_mul)(const SiluMulParams& params, RowRange rows, float* scratch);
  bool (*finite)(const FiniteParams& params);
};

extern const RowCode kRowsAvx2;
extern const RowCode kRowsAvx512;

// The widest row whose weights fit a worker's scratch.
inline constexpr int64_t kMostWeights = ThreadPool::kScratchBytes / int64_t{sizeof(float)};

// The matrix whose rows are shared among the threads.
inline const MatrixView& RowsOf(const ActivationParams& params) { return params.y; }
inline const MatrixView& RowsOf(const AddParams& params) { return params.y; }
inline const MatrixView& RowsOf(const ChannelNormParams& params) { return params.y; }
inline const MatrixView& RowsOf(const GateResidualParams& params) { return params.h; }
inline const MatrixView& RowsOf(const LayerNormParams& params) { return params.y; }
inline const MatrixView& RowsOf(const QkNormRopeParams& params) { return params.x; }
inline const MatrixView& RowsOf(const RmsNormParams& params) { return params.y; }
inline const MatrixView& RowsOf(const RopeHalfParams& params) { return params.x; }
inline const MatrixView& RowsOf(const SiluMulParams& params) { return params.y; }

// Calls run(rows, scratch) for ranges that cover [0, view.rows), in parallel where it pays.
void ForRowRanges(const MatrixView& view, ThreadPool& pool,
                  const std::function<void(RowRange rows, float* scratch)>& run);

template <CpuIsa kIsa, typename Params>
const char* RejectsRows(const Params& params, const Context& context) {
  if (RowsOf(params).cols > kMostWeights) return "rows too wide for a worker's scratch";
  return MissingIsa(kIsa, context);
}

template <auto kMember, typename Params>
Status RunRows(const RowCode& code, const Params& params, const Context& context) {
  const auto run = [&](RowRange rows, float* scratch) { (code.*kMember)(params, rows, scratch); };
  ForRowRanges(RowsOf(params), context.stream.pool(), std::cref(run));
  return {};
}

template <auto kMember, typename Params>
Status RowsAvx2(const Params& params, const Context& context) {
  return RunRows<kMember>(kRowsAvx2, params, context);
}

template <auto kMember, typename Params>
Status RowsAvx512(const Params& params, const Context& context) {
  return RunRows<kMember>(kRowsAvx512, params, context);
}

}  // namespace segue::kernels::cpu
