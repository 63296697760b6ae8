#include "kernels/activation.h"

#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kActivateOp[] = "activate";
constexpr char kSiluMulOp[] = "silu_mul";

constexpr Kernel<ActivationParams> kActivateKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, ActivationParams>,
     cpu::RowsAvx512<&cpu::RowCode::activate, ActivationParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, ActivationParams>,
     cpu::RowsAvx2<&cpu::RowCode::activate, ActivationParams>},
    {"ref", NeedsCpu<ActivationParams>, RefActivate, kReference},
};

constexpr Kernel<SiluMulParams> kSiluMulKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, SiluMulParams>,
     cpu::RowsAvx512<&cpu::RowCode::silu_mul, SiluMulParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, SiluMulParams>,
     cpu::RowsAvx2<&cpu::RowCode::silu_mul, SiluMulParams>},
    {"ref", NeedsCpu<SiluMulParams>, RefSiluMul, kReference},
};

}  // namespace

Status Activate(const ActivationParams& params, const Context& context) {
  const MatrixView& x = params.x;
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kActivateOp, "x", x, x.rows, x.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kActivateOp, "y", params.y, x.rows, x.cols, context));
  return Dispatch<ActivationParams>(kActivateOp, kActivateKernels, params, context);
}

Status SiluMul(const SiluMulParams& params, const Context& context) {
  const MatrixView& y = params.y;
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kSiluMulOp, "y", y, y.rows, y.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kSiluMulOp, "gate", params.gate, y.rows, y.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kSiluMulOp, "up", params.up, y.rows, y.cols, context));
  return Dispatch<SiluMulParams>(kSiluMulOp, kSiluMulKernels, params, context);
}

}  // namespace segue::kernels
