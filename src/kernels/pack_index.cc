#include "kernels/pack_index.h"

#include <cstdint>
#include <string>
#include <utility>

#include "kernels/check.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/pack/pack.h"
#include "kernels/pack.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "pack index";
constexpr int64_t kMaxRows = int64_t{1} << 30;

constexpr Kernel<PackIndexParams> kPackIndexKernels[] = {
    {"cuda", cuda::NeedsCuda<PackIndexParams>, cuda::PackIndex},
    {"ref", NeedsCpu<PackIndexParams>, RefPackIndex, kReference},
};

bool IsInteger(DType type) { return type == DType::kI32 || type == DType::kI64; }

// `name` is "prefix" or "main".
Error RowsError(const std::string& name, const char* field, std::string got, std::string wanted) {
  return ArgumentError(kOp, (name + "." + field).c_str(), std::move(got), std::move(wanted));
}

bool IsAligned(const void* pointer, DType type) {
  return reinterpret_cast<uintptr_t>(pointer) % SizeOf(type) == 0;
}

Status CheckRows(const char* name, const PackIndexRows& rows, int64_t batch) {
  if (rows.rows < 0 || rows.rows > kMaxRows) {
    return RowsError(name, "rows", std::to_string(rows.rows), "0 to 2^30");
  }
  if (rows.mask != nullptr) {
    if (rows.mask_type != DType::kU8 && !IsInteger(rows.mask_type)) {
      return RowsError(name, "mask_type", DTypeName(rows.mask_type), "U8, I32 or I64");
    }
    if (batch > 1 && (rows.mask_stride < rows.rows || rows.mask_stride > kMaxRows)) {
      return RowsError(name, "mask_stride", std::to_string(rows.mask_stride),
                       std::to_string(rows.rows) + " to 2^30");
    }
    if (!IsAligned(rows.mask, rows.mask_type)) {
      return RowsError(name, "mask", "a pointer between two elements", "an aligned pointer");
    }
  }
  if (rows.lengths != nullptr) {
    if (!IsInteger(rows.lengths_type)) {
      return RowsError(name, "lengths_type", DTypeName(rows.lengths_type), "I32 or I64");
    }
    if (!IsAligned(rows.lengths, rows.lengths_type)) {
      return RowsError(name, "lengths", "a pointer between two elements", "an aligned pointer");
    }
  }
  return {};
}

// In host memory: every length lies in [0, rows].
Status CheckLengths(const char* name, const PackIndexRows& rows, int64_t batch) {
  if (rows.lengths == nullptr) return {};
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t length = IndexAt(rows.lengths, rows.lengths_type, i);
    if (length < 0 || length > rows.rows) {
      return RowsError(name, "lengths",
                       std::to_string(length) + " at position " + std::to_string(i),
                       "0 to " + std::to_string(rows.rows));
    }
  }
  return {};
}

Status CheckOutputs(const PackIndexParams& params) {
  if (!IsInteger(params.index_type)) {
    return ArgumentError(kOp, "index_type", DTypeName(params.index_type), "I32 or I64");
  }
  if (params.capacity < 0) {
    return ArgumentError(kOp, "capacity", std::to_string(params.capacity), "0 or more");
  }
  if (!IsAligned(params.index, params.index_type) ||
      !IsAligned(params.inverse, params.index_type) || !IsAligned(params.cu_seqlens, DType::kI32)) {
    return ArgumentError(kOp, "index, inverse or cu_seqlens", "a pointer between two elements",
                         "aligned pointers");
  }
  return {};
}

}  // namespace

Status PackIndex(const PackIndexParams& params, const Context& context) {
  if (params.batch < 0 || params.batch > kMaxRows) {
    return ArgumentError(kOp, "batch", std::to_string(params.batch), "0 to 2^30");
  }
  SEGUE_RETURN_IF_ERROR(CheckRows("prefix", params.prefix, params.batch));
  SEGUE_RETURN_IF_ERROR(CheckRows("main", params.main, params.batch));
  const int64_t padded_rows = params.batch * (params.prefix.rows + params.main.rows);
  if (padded_rows > kMaxRows) {
    return ArgumentError(kOp, "batch x rows", std::to_string(padded_rows), "at most 2^30");
  }
  SEGUE_RETURN_IF_ERROR(CheckOutputs(params));
  if (context.stream.device() == DeviceKind::kCpu) {
    SEGUE_RETURN_IF_ERROR(CheckLengths("prefix", params.prefix, params.batch));
    SEGUE_RETURN_IF_ERROR(CheckLengths("main", params.main, params.batch));
  } else {
    SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "scratch", params.scratch, padded_rows));
  }
  return Dispatch<PackIndexParams>(kOp, kPackIndexKernels, params, context);
}

}  // namespace segue::kernels
