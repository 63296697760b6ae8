#include "kernels/layer_norm.h"

#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "layer_norm";

Status CheckModulation(const LayerNormParams& params, const Context& context) {
  if (!params.scale.present() && !params.shift.present()) return {};
  SEGUE_RETURN_IF_ERROR(CheckRowTable(kOp, "scale", params.scale, params.x, context));
  return CheckRowTable(kOp, "shift", params.shift, params.x, context);
}

constexpr Kernel<LayerNormParams> kLayerNormKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, LayerNormParams>,
     cpu::RowsAvx512<&cpu::RowCode::layer_norm, LayerNormParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, LayerNormParams>,
     cpu::RowsAvx2<&cpu::RowCode::layer_norm, LayerNormParams>},
    {"cuda", cuda::RejectsFastLayerNorm, cuda::LayerNorm},
    {"ref", NeedsCpu<LayerNormParams>, RefLayerNorm, kReference},
    {"cuda_ref", cuda::NeedsCuda<LayerNormParams>, cuda::RefLayerNorm, kReference},
};

}  // namespace

Status LayerNorm(const LayerNormParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckModulation(params, context));
  return Dispatch<LayerNormParams>(kOp, kLayerNormKernels, params, context);
}

}  // namespace segue::kernels
