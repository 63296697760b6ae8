#include "kernels/modulated_norm.h"

#include <string>

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/gate_residual.h"
#include "kernels/layer_norm.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "modulated_norm";

Status RunComposed(const ModulatedNormParams& params, const Context& context) {
  for (const ModulatedNormStream& stream : params.streams) {
    if (stream.branch.data != nullptr) {
      SEGUE_RETURN_IF_ERROR(GateResidual(
          {.y = stream.branch, .gate = stream.gate, .h = stream.h, .rounding = params.rounding},
          context));
    }
    SEGUE_RETURN_IF_ERROR(LayerNorm({.x = stream.h,
                                     .y = stream.y,
                                     .eps = params.eps,
                                     .scale = stream.scale,
                                     .shift = stream.shift,
                                     .rounding = params.rounding},
                                    context));
  }
  return {};
}

const char* AcceptsAll(const ModulatedNormParams&, const Context&) { return nullptr; }

constexpr Kernel<ModulatedNormParams> kModulatedNormKernels[] = {
    {"cuda", cuda::RejectsModulatedNorm, cuda::ModulatedNorm},
    {"composed", AcceptsAll, RunComposed, kReference},
};

Status CheckStream(const ModulatedNormStream& stream, int64_t cols, const Context& context) {
  const MatrixView& h = stream.h;
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "h", h, h.rows, cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", stream.y, h.rows, cols, context));
  SEGUE_RETURN_IF_ERROR(CheckRowTable(kOp, "scale", stream.scale, h, context));
  SEGUE_RETURN_IF_ERROR(CheckRowTable(kOp, "shift", stream.shift, h, context));
  if (stream.branch.data == nullptr) return {};
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "branch", stream.branch, h.rows, cols, context));
  return CheckRowTable(kOp, "gate", stream.gate, h, context);
}

}  // namespace

Status CheckModulatedNorm(const ModulatedNormParams& params, const Context& context) {
  if (params.streams.size() > kMaxNormStreams) {
    return ArgumentError(kOp, "streams", std::to_string(params.streams.size()),
                         "at most " + std::to_string(kMaxNormStreams));
  }
  for (const ModulatedNormStream& stream : params.streams) {
    SEGUE_RETURN_IF_ERROR(CheckStream(stream, params.streams[0].h.cols, context));
  }
  return {};
}

Status ModulatedNorm(const ModulatedNormParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckModulatedNorm(params, context));
  return Dispatch<ModulatedNormParams>(kOp, kModulatedNormKernels, params, context);
}

}  // namespace segue::kernels
