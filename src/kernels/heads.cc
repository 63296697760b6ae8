#include "kernels/heads.h"

#include <string>

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "prepare_heads";

Status RunComposed(const HeadsParams& params, const Context& context) {
  const auto run = [&](const HeadsStream& stream, const MatrixView& x, const WeightView& weight) {
    RopeTable rope = params.rope;
    rope.index = stream.position;
    return QkNormRope({.x = x,
                       .head_dim = params.head_dim,
                       .weight = weight,
                       .eps = params.eps,
                       .rope = rope,
                       .rounding = params.rounding},
                      context);
  };
  for (const HeadsStream& stream : params.streams) {
    if (stream.q.data != nullptr) {
      SEGUE_RETURN_IF_ERROR(run(stream, stream.q, stream.q_weight));
    }
    SEGUE_RETURN_IF_ERROR(run(stream, stream.k, stream.k_weight));
  }
  return {};
}

const char* AcceptsAll(const HeadsParams&, const Context&) { return nullptr; }

constexpr Kernel<HeadsParams> kHeadsKernels[] = {
    {"cuda", cuda::RejectsPrepareHeads, cuda::PrepareHeads},
    {"composed", AcceptsAll, RunComposed, kReference},
};

Status CheckStream(const HeadsStream& stream, int32_t head_dim, const Context& context) {
  const MatrixView& k = stream.k;
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "k", k, k.rows, k.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckWeight(kOp, "k_weight", stream.k_weight, head_dim));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "position", stream.position, k.rows));
  if (stream.q.data == nullptr) return {};
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "q", stream.q, k.rows, k.cols, context));
  return CheckWeight(kOp, "q_weight", stream.q_weight, head_dim);
}

}  // namespace

Status PrepareHeads(const HeadsParams& params, const Context& context) {
  if (params.streams.size() > kMaxHeadsStreams) {
    return ArgumentError(kOp, "streams", std::to_string(params.streams.size()),
                         "at most " + std::to_string(kMaxHeadsStreams));
  }
  for (const HeadsStream& stream : params.streams) {
    SEGUE_RETURN_IF_ERROR(CheckStream(stream, params.head_dim, context));
  }
  return Dispatch<HeadsParams>(kOp, kHeadsKernels, params, context);
}

}  // namespace segue::kernels
