#include "kernels/rms_norm.h"

#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "rms_norm";

constexpr Kernel<RmsNormParams> kRmsNormKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, RmsNormParams>,
     cpu::RowsAvx512<&cpu::RowCode::rms_norm, RmsNormParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, RmsNormParams>,
     cpu::RowsAvx2<&cpu::RowCode::rms_norm, RmsNormParams>},
    {"cuda", cuda::RejectsFastRmsNorm, cuda::RmsNorm},
    {"ref", NeedsCpu<RmsNormParams>, RefRmsNorm, kReference},
    {"cuda_ref", cuda::NeedsCuda<RmsNormParams>, cuda::RefRmsNorm, kReference},
};

}  // namespace

Status RmsNorm(const RmsNormParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckWeight(kOp, "weight", params.weight, params.x.cols));
  return Dispatch<RmsNormParams>(kOp, kRmsNormKernels, params, context);
}

}  // namespace segue::kernels
