#include "kernels/row_index.h"

#include "kernels/check.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "row_index";

constexpr Kernel<RowIndexParams> kRowIndexKernels[] = {
    {"ref", NeedsCpu<RowIndexParams>, RefRowIndex, kReference},
    {"cuda_ref", cuda::RejectsRowIndex, cuda::RefRowIndex, kReference},
};

}  // namespace

Status RowIndex(const RowIndexParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(
      CheckIndices(kOp, "slot", params.slot, params.count, params.slots, context));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "entry", params.entry, params.slots));
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "index", params.index, params.count));
  return Dispatch<RowIndexParams>(kOp, kRowIndexKernels, params, context);
}

}  // namespace segue::kernels
