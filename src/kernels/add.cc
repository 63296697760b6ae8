#include "kernels/add.h"

#include "kernels/check.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "add";

constexpr Kernel<AddParams> kAddKernels[] = {
    {"avx512", cpu::RejectsRows<CpuIsa::kAvx512, AddParams>,
     cpu::RowsAvx512<&cpu::RowCode::add, AddParams>},
    {"avx2", cpu::RejectsRows<CpuIsa::kAvx2, AddParams>,
     cpu::RowsAvx2<&cpu::RowCode::add, AddParams>},
    {"ref", NeedsCpu<AddParams>, RefAdd, kReference},
    {"cuda_ref", cuda::NeedsCuda<AddParams>, cuda::RefAdd, kReference},
};

}  // namespace

Status Add(const AddParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "y", params.y, params.y.rows, params.y.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "a", params.a, params.y.rows, params.y.cols, context));
  SEGUE_RETURN_IF_ERROR(CheckMatrix(kOp, "b", params.b, params.y.rows, params.y.cols, context));
  return Dispatch<AddParams>(kOp, kAddKernels, params, context);
}

}  // namespace segue::kernels
