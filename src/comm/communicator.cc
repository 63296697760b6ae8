#include "comm/communicator.h"

namespace segue::comm {

Status SingleRank::AllReduceSum(const MatrixView& values, const Stream& /*stream*/) const {
  if (values.dtype != DType::kF32 && values.dtype != DType::kBF16) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "all-reduce",
                 .argument = "values",
                 .got = DTypeName(values.dtype),
                 .wanted = "F32 or BF16"};
  }
  return {};
}

}  // namespace segue::comm
