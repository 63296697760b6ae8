#include "kernels/channel_norm.h"

#include "kernels/add.h"
#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/vae/vae.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "channel_norm";

// The sum as an operation of its own.
Status RunComposed(const ChannelNormParams& params, const Context& context) {
  const MatrixView& sum = params.sum.data != nullptr ? params.sum : params.y;
  SEGUE_RETURN_IF_ERROR(
      Add({.a = params.x, .b = params.addend, .y = sum, .rounding = params.rounding}, context));
  ChannelNormParams rest = params;
  rest.x = sum;
  rest.addend = {};
  rest.sum = {};
  return ChannelNorm(rest, context);
}

const char* RejectsComposed(const ChannelNormParams& params, const Context& context) {
  if (params.addend.data == nullptr) return "there is no addend";
  return NeedsCpu(params, context);
}

constexpr Kernel<ChannelNormParams> kChannelNormKernels[] = {
    {"composed", RejectsComposed, RunComposed, kReference},
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, ChannelNormParams>,
     cpu::RowsAvx512<&cpu::RowCode::channel_norm, ChannelNormParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, ChannelNormParams>,
     cpu::RowsAvx2<&cpu::RowCode::channel_norm, ChannelNormParams>},
    {"cuda", cuda::RejectsFastChannelNorm, cuda::ChannelNorm},
    {"ref", NeedsCpu<ChannelNormParams>, RefChannelNorm, kReference},
    {"cuda_ref", cuda::NeedsCuda<ChannelNormParams>, cuda::RefChannelNorm, kReference},
};

// `view` is like x or absent.
Status CheckLikeX(const char* argument, const MatrixView& view, const ChannelNormParams& params,
                  const Context& context) {
  if (view.data == nullptr) return {};
  return CheckMatrix(kOp, argument, view, params.x.rows, params.x.cols, context);
}

}  // namespace

Status ChannelNorm(const ChannelNormParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "x", params.x, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckLikeX("addend", params.addend, params, context));
  SEGUE_RETURN_IF_ERROR(CheckLikeX("sum", params.sum, params, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.x.rows, params.x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckWeight(kOp, "gamma", params.gamma, params.x.cols));
  return Dispatch<ChannelNormParams>(kOp, kChannelNormKernels, params, context);
}

}  // namespace segue::kernels
