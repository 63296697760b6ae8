#include "kernels/activation.h"

#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kActivateOp[] = "activate";
constexpr char kStreamsOp[] = "activate_streams";
constexpr char kSiluMulOp[] = "silu_mul";

constexpr Kernel<ActivationParams> kActivateKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, ActivationParams>,
     cpu::RowsAvx512<&cpu::RowCode::activate, ActivationParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, ActivationParams>,
     cpu::RowsAvx2<&cpu::RowCode::activate, ActivationParams>},
    {"cuda", cuda::RejectsActivate, cuda::Activate},
    {"ref", NeedsCpu<ActivationParams>, RefActivate, kReference},
    {"cuda_ref", cuda::NeedsCuda<ActivationParams>, cuda::RefActivate, kReference},
};

Status RunComposed(const ActivationStreams& params, const Context& context) {
  for (const ActivationParams& stream : params.streams) {
    SEGUE_RETURN_IF_ERROR(Activate(stream, context));
  }
  return {};
}

const char* AcceptsAll(const ActivationStreams&, const Context&) { return nullptr; }

constexpr Kernel<ActivationStreams> kStreamsKernels[] = {
    {"cuda", cuda::RejectsActivateStreams, cuda::ActivateStreams},
    {"composed", AcceptsAll, RunComposed, kReference},
};

constexpr Kernel<SiluMulParams> kSiluMulKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, SiluMulParams>,
     cpu::RowsAvx512<&cpu::RowCode::silu_mul, SiluMulParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, SiluMulParams>,
     cpu::RowsAvx2<&cpu::RowCode::silu_mul, SiluMulParams>},
    {"cuda", cuda::RejectsSiluMul, cuda::SiluMul},
    {"ref", NeedsCpu<SiluMulParams>, RefSiluMul, kReference},
    {"cuda_ref", cuda::NeedsCuda<SiluMulParams>, cuda::RefSiluMul, kReference},
};

Status CheckParams(const char* op, const ActivationParams& params, const Context& context) {
  const MatrixView& x = params.x;
  SEGUE_RETURN_IF_ERROR(CheckMatrix(op, "x", x, x.rows, x.cols, context));
  return CheckMatrix(op, "y", params.y, x.rows, x.cols, context);
}

}  // namespace

Status Activate(const ActivationParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckParams(kActivateOp, params, context));
  return Dispatch<ActivationParams>(kActivateOp, kActivateKernels, params, context);
}

Status ActivateStreams(const ActivationStreams& params, const Context& context) {
  if (params.streams.size() > kMaxActivationStreams) {
    return ArgumentError(kStreamsOp, "streams", std::to_string(params.streams.size()),
                         "at most " + std::to_string(kMaxActivationStreams));
  }
  for (const ActivationParams& stream : params.streams) {
    SEGUE_RETURN_IF_ERROR(CheckParams(kStreamsOp, stream, context));
  }
  return Dispatch<ActivationStreams>(kStreamsOp, kStreamsKernels, params, context);
}

Status SiluMul(const SiluMulParams& params, const Context& context) {
  const MatrixView& y = params.y;
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kSiluMulOp, "y", y, y.rows, y.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kSiluMulOp, "gate", params.gate, y.rows, y.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kSiluMulOp, "up", params.up, y.rows, y.cols, context));
  return Dispatch<SiluMulParams>(kSiluMulOp, kSiluMulKernels, params, context);
}

}  // namespace segue::kernels
