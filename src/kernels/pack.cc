#include "kernels/pack.h"

#include <cstdint>
#include <string>
#include <utility>

#include "kernels/check.h"
#include "kernels/cpu/pack_rows.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/pack/pack.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kPack[] = "pack rows";
constexpr char kScatter[] = "scatter rows";
constexpr int64_t kMaxRows = INT32_MAX;  // what cu_seqlens can count
constexpr int64_t kMaxRowElements = int64_t{1} << 20;

constexpr Kernel<PackParams> kPackKernels[] = {
    {"cuda", cuda::NeedsCuda<PackParams>, cuda::PackRows},
    {"cpu", NeedsCpu<PackParams>, cpu::PackRows},
    {"ref", NeedsCpu<PackParams>, RefPackRows, kReference},
};

constexpr Kernel<PackParams> kScatterKernels[] = {
    {"cuda", cuda::NeedsCuda<PackParams>, cuda::ScatterRows},
    {"cpu", NeedsCpu<PackParams>, cpu::ScatterRows},
    {"ref", NeedsCpu<PackParams>, RefScatterRows, kReference},
};

bool IsMultiple(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

int64_t PaddedCount(const PackParams& params) {
  return params.batch * (params.prefix_rows + params.main_rows);
}

// Packed rows in use, as far as the host can see.
int64_t HostPackedRows(const PackParams& params, const Context& context) {
  const bool visible = context.stream.device() == DeviceKind::kCpu;
  return visible && params.packed_count != nullptr ? *params.packed_count : params.packed_rows;
}

Status CheckShape(const char* op, const PackParams& params) {
  if (params.tensor_count < 1 || params.tensor_count > kMaxPackTensors) {
    return ArgumentError(op, "tensor_count", std::to_string(params.tensor_count), "1 to 3");
  }
  if (params.element_type != DType::kBF16 && params.element_type != DType::kF16 &&
      params.element_type != DType::kF32) {
    return ArgumentError(op, "element_type", DTypeName(params.element_type), "BF16, F16 or F32");
  }
  if (params.index_type != DType::kI32 && params.index_type != DType::kI64) {
    return ArgumentError(op, "index_type", DTypeName(params.index_type), "I32 or I64");
  }
  const std::pair<const char*, int64_t> extents[] = {{"batch", params.batch},
                                                     {"prefix_rows", params.prefix_rows},
                                                     {"main_rows", params.main_rows},
                                                     {"packed_rows", params.packed_rows}};
  for (const auto& [name, extent] : extents) {
    if (extent < 0 || extent > kMaxRows) {
      return ArgumentError(op, name, std::to_string(extent), "0 to 2^31 - 1");
    }
  }
  int64_t padded = 0;
  if (__builtin_mul_overflow(params.batch, params.prefix_rows + params.main_rows, &padded) ||
      padded > kMaxRows) {
    return ArgumentError(op, "batch",
                         std::to_string(params.batch) + " sequences of " +
                             std::to_string(params.prefix_rows + params.main_rows) + " rows",
                         "at most 2^31 - 1 rows");
  }
  return {};
}

// The span of `count` steps of `stride` and what lies behind the last; -1 where int64 cannot hold
// its bytes.
int64_t Span(int64_t count, int64_t stride, int64_t last) {
  int64_t elements = 0;
  if (count == 0) return 0;
  if (__builtin_mul_overflow(count - 1, stride, &elements) ||
      __builtin_add_overflow(elements, last, &elements) || elements > INT64_MAX / 8) {
    return -1;
  }
  return elements;
}

// What a padded tensor must hold.
struct Need {
  const char* op;
  int32_t tensor;
  int64_t batch;
  int64_t row_elements;
  DType element_type;
};

Error TensorError(const Need& need, const char* part, std::string got, std::string wanted) {
  const std::string name = "tensors[" + std::to_string(need.tensor) + "]." + part;
  return ArgumentError(need.op, name.c_str(), std::move(got), std::move(wanted));
}

Status CheckPointer(const Need& need, const char* part, const void* data) {
  if (data != nullptr && IsMultiple(data, SizeOf(need.element_type))) return {};
  return TensorError(need, part, data == nullptr ? "null" : "a pointer between two elements",
                     "a pointer to elements");
}

// `rows` has `count` rows for each sequence, none of which overlap.
Status CheckRows(const Need& need, const char* part, const PaddedRows& rows, int64_t count) {
  if (need.batch == 0 || count == 0) return {};
  SEGUE_RETURN_IF_ERROR(CheckPointer(need, part, rows.data));
  const int64_t rows_span = Span(count, rows.row_stride, need.row_elements);
  const int64_t batch_stride =
      rows.batch_stride == 0 && rows_span >= 0 ? count * rows.row_stride : rows.batch_stride;
  const int64_t batch_span = Span(need.batch, batch_stride, need.row_elements);
  // Rows of a sequence side by side and sequences behind one another, or the reverse.
  const bool apart = (count == 1 || rows.row_stride >= need.row_elements) &&
                     (need.batch == 1 || batch_stride >= rows_span ||
                      (batch_stride >= need.row_elements && rows.row_stride >= batch_span));
  if (apart && rows_span >= 0 && batch_span >= 0 &&
      Span(need.batch, batch_stride, rows_span) >= 0) {
    return {};
  }
  return TensorError(need, part,
                     "rows " + std::to_string(rows.row_stride) + " apart, sequences " +
                         std::to_string(batch_stride) + " apart",
                     std::to_string(need.batch) + " x " + std::to_string(count) + " rows of " +
                         std::to_string(need.row_elements) + " elements that do not overlap");
}

Status CheckTensor(const char* op, const PackParams& params, int32_t index) {
  const PackTensor& tensor = params.tensors[index];
  const Need need{op, index, params.batch, tensor.row_elements, params.element_type};
  if (tensor.row_elements <= 0 || tensor.row_elements % 8 != 0 ||
      tensor.row_elements > kMaxRowElements) {
    return TensorError(need, "row_elements", std::to_string(tensor.row_elements),
                       "a multiple of 8 from 8 to 2^20");
  }
  SEGUE_RETURN_IF_ERROR(CheckRows(need, "prefix", tensor.prefix, params.prefix_rows));
  SEGUE_RETURN_IF_ERROR(CheckRows(need, "main", tensor.main, params.main_rows));
  if (params.packed_rows == 0) return {};
  SEGUE_RETURN_IF_ERROR(CheckPointer(need, "packed", tensor.packed));
  if ((params.packed_rows > 1 && tensor.packed_row_stride < tensor.row_elements) ||
      Span(params.packed_rows, tensor.packed_row_stride, tensor.row_elements) < 0) {
    return TensorError(need, "packed_row_stride", std::to_string(tensor.packed_row_stride),
                       "at least " + std::to_string(tensor.row_elements));
  }
  return {};
}

// An index array and where its entries must lie.
struct Entries {
  const char* argument;
  const void* data;
  int64_t count;
  int64_t lowest;
  int64_t limit;
};

template <typename T>
Status CheckEntries(const char* op, const Entries& entries) {
  const T* values = static_cast<const T*>(entries.data);
  for (int64_t i = 0; i < entries.count; ++i) {
    if (values[i] < entries.lowest || values[i] >= entries.limit) {
      return ArgumentError(
          op, entries.argument, std::to_string(values[i]) + " at position " + std::to_string(i),
          std::to_string(entries.lowest) + " to " + std::to_string(entries.limit - 1));
    }
  }
  return {};
}

// `entries.data` is there; on the CPU its first `checked` entries lie in range.
Status CheckIndex(const char* op, const PackParams& params, const Context& context, Entries entries,
                  int64_t checked) {
  SEGUE_RETURN_IF_ERROR(CheckPresent(op, entries.argument, entries.data, entries.count));
  if (!IsMultiple(entries.data, SizeOf(params.index_type))) {
    return ArgumentError(op, entries.argument, "a pointer between two indices",
                         "an aligned pointer");
  }
  if (context.stream.device() != DeviceKind::kCpu) return {};
  entries.count = checked;
  return params.index_type == DType::kI64 ? CheckEntries<int64_t>(op, entries)
                                          : CheckEntries<int32_t>(op, entries);
}

// Everything but the indices.
Status CheckParams(const char* op, const PackParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckShape(op, params));
  for (int32_t i = 0; i < params.tensor_count; ++i) {
    SEGUE_RETURN_IF_ERROR(CheckTensor(op, params, i));
  }
  if (params.packed_count != nullptr && context.stream.device() == DeviceKind::kCpu &&
      (*params.packed_count < 0 || *params.packed_count > params.packed_rows)) {
    return ArgumentError(op, "packed_count", std::to_string(*params.packed_count),
                         "0 to " + std::to_string(params.packed_rows));
  }
  return {};
}

}  // namespace

Status PackRows(const PackParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckParams(kPack, params, context));
  const Entries index{"index", params.index, params.packed_rows, 0, PaddedCount(params)};
  SEGUE_RETURN_IF_ERROR(CheckIndex(kPack, params, context, index, HostPackedRows(params, context)));
  if (params.packed_rows == 0) return {};
  return Dispatch<PackParams>(kPack, kPackKernels, params, context);
}

Status ScatterRows(const PackParams& params, const Context& context) {
  SEGUE_RETURN_IF_ERROR(CheckParams(kScatter, params, context));
  const int64_t padded = PaddedCount(params);
  const Entries inverse{"inverse", params.inverse, padded, -1, HostPackedRows(params, context)};
  SEGUE_RETURN_IF_ERROR(CheckIndex(kScatter, params, context, inverse, padded));
  if (padded == 0) return {};
  return Dispatch<PackParams>(kScatter, kScatterKernels, params, context);
}

}  // namespace segue::kernels
