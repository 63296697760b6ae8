// What the CUDA kernels of this folder do not serve, and why.
#include <cstdint>

#include "kernels/cuda/alignment.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/rows/rows.h"

namespace segue::kernels::cuda {
namespace {

constexpr char kUnaligned[] = "rows are not aligned to 16 bytes";
constexpr char kTooManyRows[] = "there are more than 2^31 - 1 rows";

constexpr int64_t kMaxNormCols = 8192;      // what a CTA keeps in registers
constexpr int64_t kMaxGroupElements = 256;  // the vectors of a warp

const char* RejectsWeight(const WeightView& weight) {
  if (weight.dtype != DType::kBF16) return "weights are not bfloat16";
  return IsAligned(weight.data) ? nullptr : "weights are not aligned to 16 bytes";
}

const char* RejectsNormCols(int64_t cols) {
  return cols <= kMaxNormCols ? nullptr : "rows are longer than 8192";
}

const char* RejectsNormStream(const ModulatedNormStream& stream) {
  const bool gated = stream.branch.data != nullptr;
  if (!IsAligned(stream.h) || !IsAligned(stream.y) || (gated && !IsAligned(stream.branch))) {
    return kUnaligned;
  }
  if (!IsAligned(stream.scale) || !IsAligned(stream.shift) || (gated && !IsAligned(stream.gate))) {
    return "modulation is not aligned to 16 bytes";
  }
  return RejectsNormCols(stream.h.cols);
}

const char* RejectsRopeTable(const RopeTable& rope) {
  if (!rope.present() || rope.positions == 0) return "there is no rotation";
  return IsAligned(rope.cos) && IsAligned(rope.sin) ? nullptr
                                                    : "angles are not aligned to 16 bytes";
}

const char* RejectsHeadsPart(const MatrixView& x, const WeightView& weight, int32_t head_dim) {
  if (x.cols % head_dim != 0) return "rows are not whole heads";
  if (!IsAligned(x)) return kUnaligned;
  return RejectsWeight(weight);
}

const char* RejectsNoPositions(const RopeTable& rope, int64_t rows) {
  return rope.present() && rope.positions == 0 && rows > 0 ? "there are no positions" : nullptr;
}

}  // namespace

const char* RejectsEmbedding(const EmbeddingParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  return params.table.shape[0] == 0 && params.y.rows > 0 ? "the table is empty" : nullptr;
}

const char* RejectsQkNormRope(const QkNormRopeParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  return RejectsNoPositions(params.rope, params.x.rows);
}

const char* RejectsRopeHalf(const RopeHalfParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  return RejectsNoPositions(params.rope, params.x.rows);
}

const char* RejectsRowIndex(const RowIndexParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  return params.slots <= 0 && params.count > 0 ? "there are no slots" : nullptr;
}

const char* RejectsUnpackLatents(const UnpackLatentsParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  return params.mean != nullptr && params.grid.cols > kMaxLatentChannels
             ? "there are more than 64 channels"
             : nullptr;
}

const char* RejectsActivate(const ActivationParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (params.x.rows > INT32_MAX) return kTooManyRows;
  return IsAligned(params.x) && IsAligned(params.y) ? nullptr : kUnaligned;
}

const char* RejectsActivateStreams(const ActivationStreams& params, const Context& context) {
  for (const ActivationParams& stream : params.streams) {
    if (const char* reason = RejectsActivate(stream, context)) return reason;
    if (stream.activation != params.streams[0].activation) return "activations differ";
  }
  return RejectsDevice(context);
}

const char* RejectsSiluMul(const SiluMulParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (params.y.rows > INT32_MAX) return kTooManyRows;
  return IsAligned(params.gate) && IsAligned(params.up) && IsAligned(params.y) ? nullptr
                                                                               : kUnaligned;
}

const char* RejectsFastLayerNorm(const LayerNormParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (!params.scale.present()) return "there is no modulation";
  return RejectsNormStream(
      {.h = params.x, .scale = params.scale, .shift = params.shift, .y = params.y});
}

const char* RejectsModulatedNorm(const ModulatedNormParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  for (const ModulatedNormStream& stream : params.streams) {
    if (const char* reason = RejectsNormStream(stream)) return reason;
  }
  return nullptr;
}

const char* RejectsFastRmsNorm(const RmsNormParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (!IsAligned(params.x) || !IsAligned(params.y)) return kUnaligned;
  if (const char* reason = RejectsWeight(params.weight)) return reason;
  return RejectsNormCols(params.x.cols);
}

const char* RejectsPrepareHeads(const HeadsParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (params.head_dim < kVectorElements || params.head_dim % kVectorElements != 0 ||
      params.head_dim > kMaxGroupElements) {
    return "head_dim is not a multiple of 8 up to 256";
  }
  if (const char* reason = RejectsRopeTable(params.rope)) return reason;
  for (const HeadsStream& stream : params.streams) {
    const char* reason = RejectsHeadsPart(stream.k, stream.k_weight, params.head_dim);
    if (reason == nullptr && stream.q.data != nullptr) {
      reason = RejectsHeadsPart(stream.q, stream.q_weight, params.head_dim);
    }
    if (reason != nullptr) return reason;
  }
  return nullptr;
}

const char* RejectsFastRopeHalf(const RopeHalfParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (params.head_dim % (2 * kVectorElements) != 0) return "head_dim is not a multiple of 16";
  if (!IsAligned(params.x)) return kUnaligned;
  return RejectsRopeTable(params.rope);
}

const char* RejectsFastSamplerStep(const SamplerStepParams& params, const Context& context) {
  if (const char* reason = RejectsDevice(context)) return reason;
  if (params.velocity.cols > kMaxGroupElements) return "there are more than 256 channels";
  return IsAligned(params.velocity) && IsAligned(params.latents) ? nullptr : kUnaligned;
}

}  // namespace segue::kernels::cuda
