#include "kernels/finite.h"

#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "finite";

Status RunAvx512(const FiniteParams& params, const Context&) {
  *params.all_finite = cpu::kRowsAvx512.finite(params);
  return {};
}

Status RunAvx2(const FiniteParams& params, const Context&) {
  *params.all_finite = cpu::kRowsAvx2.finite(params);
  return {};
}

constexpr Kernel<FiniteParams> kFiniteKernels[] = {
    {"avx512", cpu::NeedsAvx512<FiniteParams>, RunAvx512},
    {"avx2", cpu::NeedsAvx2<FiniteParams>, RunAvx2},
    {"ref", NeedsCpu<FiniteParams>, RefFinite, kReference},
    {"cuda_ref", cuda::NeedsCuda<FiniteParams>, cuda::RefFinite, kReference},
};

}  // namespace

Status Finite(const FiniteParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "all_finite", params.all_finite, 1));
  return Dispatch<FiniteParams>(kOp, kFiniteKernels, params, context);
}

}  // namespace segue::kernels
