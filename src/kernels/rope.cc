#include "kernels/rope.h"

#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kQkNormRopeOp[] = "qk_norm_rope";
constexpr char kRopeHalfOp[] = "rope_half";

Status CheckHeads(const char* op, const MatrixView& x, int32_t head_dim, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(op, "x", x, x.rows, x.cols, context));
  if (head_dim > 0 && head_dim % 2 == 0 && x.cols % head_dim == 0) return {};
  return ArgumentError(op, "head_dim", std::to_string(head_dim),
                       "an even divisor of " + std::to_string(x.cols));
}

Status CheckRope(const char* op, const RopeTable& rope, int64_t rows, const Context& context) {
  const int64_t reach = rope.index == nullptr ? rows : 0;
  if (rope.cos == nullptr || rope.sin == nullptr || rope.positions < reach) {
    return ArgumentError(op, "rope", std::to_string(rope.positions) + " positions",
                         "cosines and sines of at least " + std::to_string(reach));
  }
  if (rope.index == nullptr) return {};
  return CheckIndices(op, "rope index", rope.index, rows, rope.positions, context);
}

constexpr Kernel<QkNormRopeParams> kQkNormRopeKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, QkNormRopeParams>,
     cpu::RowsAvx512<&cpu::RowCode::qk_norm_rope, QkNormRopeParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, QkNormRopeParams>,
     cpu::RowsAvx2<&cpu::RowCode::qk_norm_rope, QkNormRopeParams>},
    {"ref", NeedsCpu<QkNormRopeParams>, RefQkNormRope, kReference},
    {"cuda_ref", cuda::RejectsQkNormRope, cuda::RefQkNormRope, kReference},
};

constexpr Kernel<RopeHalfParams> kRopeHalfKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, RopeHalfParams>,
     cpu::RowsAvx512<&cpu::RowCode::rope_half, RopeHalfParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, RopeHalfParams>,
     cpu::RowsAvx2<&cpu::RowCode::rope_half, RopeHalfParams>},
    {"cuda", cuda::RejectsFastRopeHalf, cuda::RopeHalf},
    {"ref", NeedsCpu<RopeHalfParams>, RefRopeHalf, kReference},
    {"cuda_ref", cuda::RejectsRopeHalf, cuda::RefRopeHalf, kReference},
};

}  // namespace

Status QkNormRope(const QkNormRopeParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckHeads(kQkNormRopeOp, params.x, params.head_dim, context));
  if (params.weight.present()) {
    SEGUE_RETURN_IF_ERROR(CheckWeight(kQkNormRopeOp, "weight", params.weight, params.head_dim));
  }
  if (params.rope.present()) {
    SEGUE_RETURN_IF_ERROR(CheckRope(kQkNormRopeOp, params.rope, params.x.rows, context));
  }
  return Dispatch<QkNormRopeParams>(kQkNormRopeOp, kQkNormRopeKernels, params, context);
}

Status RopeHalf(const RopeHalfParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckHeads(kRopeHalfOp, params.x, params.head_dim, context));
  SEGUE_RETURN_IF_ERROR(CheckRope(kRopeHalfOp, params.rope, params.x.rows, context));
  return Dispatch<RopeHalfParams>(kRopeHalfOp, kRopeHalfKernels, params, context);
}

}  // namespace segue::kernels
