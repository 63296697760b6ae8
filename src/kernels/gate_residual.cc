#include "kernels/gate_residual.h"

#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "gate_residual";

constexpr Kernel<GateResidualParams> kGateResidualKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, GateResidualParams>,
     cpu::RowsAvx512<&cpu::RowCode::gate_residual, GateResidualParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, GateResidualParams>,
     cpu::RowsAvx2<&cpu::RowCode::gate_residual, GateResidualParams>},
    {"ref", NeedsCpu<GateResidualParams>, RefGateResidual, kReference},
    {"cuda_ref", cuda::NeedsCuda<GateResidualParams>, cuda::RefGateResidual, kReference},
};

}  // namespace

Status GateResidual(const GateResidualParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "h", params.h, params.h.rows, params.h.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.h.rows, params.h.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckRowTable(kOp, "gate", params.gate, params.h, context));
  return Dispatch<GateResidualParams>(kOp, kGateResidualKernels, params, context);
}

}  // namespace segue::kernels
