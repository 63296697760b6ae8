#include "kernels/channel_norm.h"

#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "channel_norm";

constexpr Kernel<ChannelNormParams> kChannelNormKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, ChannelNormParams>,
     cpu::RowsAvx512<&cpu::RowCode::channel_norm, ChannelNormParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, ChannelNormParams>,
     cpu::RowsAvx2<&cpu::RowCode::channel_norm, ChannelNormParams>},
    {"ref", NeedsCpu<ChannelNormParams>, RefChannelNorm, kReference},
};

}  // namespace

Status ChannelNorm(const ChannelNormParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckWeight(kOp, "gamma", params.gamma, params.x.cols));
  return Dispatch<ChannelNormParams>(kOp, kChannelNormKernels, params, context);
}

}  // namespace segue::kernels
