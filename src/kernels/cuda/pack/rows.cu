// Packing and scattering rows.
//
// The rows that are written, tensor after tensor, are one long line of vectors, and a CTA takes the
// next kVectorsPerCta of them whatever the width of a row: every thread has the same number of
// loads in flight, for 8 elements a row as for 8,192. Each vector finds its row by one
// multiplication and reads that row's index, which lies in L1 for all but the first vector of a
// row.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/pack/launch.h"
#include "kernels/cuda/pack/pack.h"
#include "kernels/cuda/pack/vectors.h"

namespace segue::kernels::cuda {
namespace {

// Bytes, not elements. Row r of sequence b, counted through prefix and main, begins at
// origin + b * batch_stride + r * row_stride.
struct Rows {
  uint64_t origin;
  int64_t row_stride;
  int64_t batch_stride;
};

struct Tensor {
  Rows prefix;
  Rows main;
  uint64_t packed;
  int64_t packed_stride;
  uint64_t reciprocal;  // of `vectors` (see Divide)
  uint32_t vectors;     // of a row
};

struct Arguments {
  Tensor tensors[kMaxPackTensors];
  uint32_t first_cta[kMaxPackTensors];  // that works on a tensor; 2^32 - 1 where there is none
  const void* index;                    // or the inverse
  const int32_t* packed_count;
  int32_t* error;
  uint32_t packed_rows;
  uint32_t padded_rows;
  uint32_t prefix_rows;
  uint32_t sequence_rows;        // padded rows of a sequence
  uint64_t sequence_reciprocal;  // of `sequence_rows`
};

// floor(2^64 / divisor) + 1; 0 stands for 2^64, the reciprocal of 1.
uint64_t Reciprocal(uint64_t divisor) { return divisor <= 1 ? 0 : ~uint64_t{0} / divisor + 1; }

// n / divisor, exact while n * divisor < 2^64: the reciprocal is too large by less than 1, which
// adds less than 1 / divisor to the quotient.
__device__ __forceinline__ uint32_t Divide(uint64_t n, uint64_t reciprocal) {
  return static_cast<uint32_t>(reciprocal == 0 ? n : __umul64hi(n, reciprocal));
}

// No row: what an inverse has for padding, and what every other index outside 32 bits becomes.
constexpr uint32_t kHole = 0xffffffff;
constexpr uint32_t kOutside = 0xfffffffe;

template <typename Index>
__device__ __forceinline__ uint32_t LoadIndex(const void* index, uint32_t row) {
  const Index value = device::LoadKept(static_cast<const Index*>(index) + row);
  if (sizeof(Index) == sizeof(uint32_t)) return static_cast<uint32_t>(value);
  if (value == ~Index{0}) return kHole;
  return value > kOutside ? kOutside : static_cast<uint32_t>(value);
}

// The packed rows in use.
__device__ __forceinline__ uint32_t PackedRows(const Arguments& arguments) {
  if (arguments.packed_count == nullptr) return arguments.packed_rows;
  const int32_t count = max(0, *arguments.packed_count);
  return min(static_cast<uint32_t>(count), arguments.packed_rows);
}

// Where row `row` of the padded batch begins.
template <bool kOneSequence>
__device__ __forceinline__ uint64_t PaddedAddress(const Arguments& arguments, const Tensor& tensor,
                                                  uint32_t row) {
  const uint32_t sequence = kOneSequence ? 0 : Divide(row, arguments.sequence_reciprocal);
  if (!kOneSequence) row -= sequence * arguments.sequence_rows;
  const bool in_prefix = row < arguments.prefix_rows;
  const uint64_t origin = in_prefix ? tensor.prefix.origin : tensor.main.origin;
  const int64_t row_stride = in_prefix ? tensor.prefix.row_stride : tensor.main.row_stride;
  const uint64_t address = origin + row * row_stride;
  if (kOneSequence) return address;
  return address + sequence * (in_prefix ? tensor.prefix.batch_stride : tensor.main.batch_stride);
}

template <typename Vector, typename Index, bool kScatter, bool kOneSequence>
__global__ void __launch_bounds__(kMoveThreads, kCtasPerSm)
    MoveRowsKernel(const __grid_constant__ Arguments arguments) {
  // Compared with constants, not looked up one after the other: the first loads wait for this.
  static_assert(kMaxPackTensors == 3);
  const int32_t which = (blockIdx.x >= arguments.first_cta[1] ? 1 : 0) +
                        (blockIdx.x >= arguments.first_cta[2] ? 1 : 0);
  const Tensor tensor = arguments.tensors[which];
  const uint32_t entries = kScatter ? arguments.padded_rows : arguments.packed_rows;  // above 0
  const uint64_t first =
      uint64_t{blockIdx.x - arguments.first_cta[which]} * kVectorsPerCta + threadIdx.x;

  // Indices are there up to the capacity, so they need not wait for the count.
  const uint32_t packed_rows = PackedRows(arguments);
  uint32_t rows[kVectorsPerThread];
  uint32_t sources[kVectorsPerThread];
  uint32_t offsets[kVectorsPerThread];  // in a row, bytes
#pragma unroll
  for (int32_t i = 0; i < kVectorsPerThread; ++i) {
    const uint64_t at = first + i * kMoveThreads;
    rows[i] = Divide(at, tensor.reciprocal);
    offsets[i] = static_cast<uint32_t>(at - uint64_t{rows[i]} * tensor.vectors) * sizeof(Vector);
    sources[i] = LoadIndex<Index>(arguments.index, min(rows[i], entries - 1));
  }

  const uint32_t limit = kScatter ? packed_rows : arguments.padded_rows;
  Vector values[kVectorsPerThread];
#pragma unroll
  for (int32_t i = 0; i < kVectorsPerThread; ++i) {
    const uint64_t row = kScatter ? tensor.packed + sources[i] * tensor.packed_stride
                                  : PaddedAddress<kOneSequence>(arguments, tensor, sources[i]);
    values[i] = device::LoadOrZeros<Vector>(sources[i] < limit ? row + offsets[i] : 0);
  }
  bool wrong = false;
#pragma unroll
  for (int32_t i = 0; i < kVectorsPerThread; ++i) {
    const uint64_t row = kScatter ? PaddedAddress<kOneSequence>(arguments, tensor, rows[i])
                                  : tensor.packed + rows[i] * tensor.packed_stride;
    const bool asked = rows[i] < (kScatter ? arguments.padded_rows : packed_rows);
    if (asked) device::Store(row + offsets[i], values[i]);
    const bool hole = kScatter && sources[i] == kHole;
    wrong |= asked & (sources[i] >= limit) & !hole;
  }
  if (wrong && arguments.error != nullptr) *arguments.error = 1;
}

int64_t BatchStride(const PaddedRows& rows, int64_t count) {
  return rows.batch_stride == 0 ? count * rows.row_stride : rows.batch_stride;
}

// The widest vector, in bytes, that all rows of all tensors are aligned to. Strides that are never
// taken do not count.
uint64_t VectorBytes(const PackParams& params) {
  const auto size = static_cast<int64_t>(SizeOf(params.element_type));
  uint64_t together = sizeof(uint4);
  const auto add = [&together, &params, size](const PaddedRows& rows, int64_t count) {
    if (params.batch == 0 || count == 0) return;
    together |= reinterpret_cast<uint64_t>(rows.data);
    if (count > 1) together |= static_cast<uint64_t>(rows.row_stride * size);
    if (params.batch > 1) together |= static_cast<uint64_t>(BatchStride(rows, count) * size);
  };
  for (int32_t i = 0; i < params.tensor_count; ++i) {
    const PackTensor& tensor = params.tensors[i];
    add(tensor.prefix, params.prefix_rows);
    add(tensor.main, params.main_rows);
    if (params.packed_rows > 0) together |= reinterpret_cast<uint64_t>(tensor.packed);
    if (params.packed_rows > 1) together |= static_cast<uint64_t>(tensor.packed_row_stride * size);
  }
  return together & (~together + 1);
}

// Whether all rows can be numbered as those of one sequence, which saves a division on the way:
// one sequence, or all of them one behind the other in one tensor.
bool IsOneSequence(const PackParams& params) {
  if (params.batch <= 1) return true;
  if (params.prefix_rows > 0 && params.main_rows > 0) return false;
  const bool in_prefix = params.prefix_rows > 0;
  const int64_t count = in_prefix ? params.prefix_rows : params.main_rows;
  for (int32_t i = 0; i < params.tensor_count; ++i) {
    const PaddedRows& rows = in_prefix ? params.tensors[i].prefix : params.tensors[i].main;
    if (BatchStride(rows, count) != count * rows.row_stride) return false;
  }
  return true;
}

// `before`: rows of the sequence that lie before these.
Rows RowsInBytes(const PaddedRows& rows, int64_t count, int64_t before, int64_t size) {
  const int64_t row_stride = rows.row_stride * size;
  return {reinterpret_cast<uint64_t>(rows.data) - static_cast<uint64_t>(before * row_stride),
          row_stride, BatchStride(rows, count) * size};
}

Arguments MakeArguments(const PackParams& params, bool scatter) {
  Arguments arguments{};
  std::fill_n(arguments.first_cta, kMaxPackTensors, 0xffffffffu);
  arguments.index = scatter ? params.inverse : params.index;
  arguments.packed_count = params.packed_count;
  arguments.error = params.error;
  const int64_t sequence_rows = params.prefix_rows + params.main_rows;
  arguments.packed_rows = static_cast<uint32_t>(params.packed_rows);
  arguments.padded_rows = static_cast<uint32_t>(params.batch * sequence_rows);
  arguments.sequence_rows = static_cast<uint32_t>(sequence_rows);
  arguments.sequence_reciprocal = Reciprocal(static_cast<uint64_t>(sequence_rows));
  arguments.prefix_rows = static_cast<uint32_t>(params.prefix_rows);
  if (params.main_rows == 0) arguments.prefix_rows = arguments.padded_rows;
  return arguments;
}

template <typename Vector, typename Index, bool kScatter>
Status Launch(const char* operation, const PackParams& params, const Context& context) {
  const auto size = static_cast<int64_t>(SizeOf(params.element_type));
  Arguments arguments = MakeArguments(params, kScatter);
  int64_t ctas = 0;
  for (int32_t i = 0; i < params.tensor_count; ++i) {
    const PackTensor& from = params.tensors[i];
    const int64_t vectors = from.row_elements * size / int64_t{sizeof(Vector)};
    arguments.tensors[i] = {
        RowsInBytes(from.prefix, params.prefix_rows, 0, size),
        RowsInBytes(from.main, params.main_rows, params.prefix_rows, size),
        reinterpret_cast<uint64_t>(from.packed),
        from.packed_row_stride * size,
        Reciprocal(static_cast<uint64_t>(vectors)),
        static_cast<uint32_t>(vectors),
    };
    arguments.first_cta[i] = static_cast<uint32_t>(ctas);
    const int64_t rows = kScatter ? arguments.padded_rows : arguments.packed_rows;
    ctas += (rows * vectors + kVectorsPerCta - 1) / kVectorsPerCta;
  }
  const auto kernel = IsOneSequence(params) ? MoveRowsKernel<Vector, Index, kScatter, true>
                                            : MoveRowsKernel<Vector, Index, kScatter, false>;
  return Enqueue(operation, kernel, {ctas, kMoveThreads, context.stream}, arguments);
}

template <typename Index, bool kScatter>
Status MoveRows(const char* operation, const PackParams& params, const Context& context) {
  switch (VectorBytes(params)) {
    case 16:
      return Launch<uint4, Index, kScatter>(operation, params, context);
    case 8:
      return Launch<uint2, Index, kScatter>(operation, params, context);
    case 4:
      return Launch<uint32_t, Index, kScatter>(operation, params, context);
    default:
      return Launch<uint16_t, Index, kScatter>(operation, params, context);
  }
}

}  // namespace

const char* RejectsDevice(const Context& context) {
  return context.stream.device() == DeviceKind::kCuda ? nullptr : "works on CUDA memory only";
}

Status PackRows(const PackParams& params, const Context& context) {
  constexpr char kOp[] = "pack rows";
  return params.index_type == DType::kI64 ? MoveRows<uint64_t, false>(kOp, params, context)
                                          : MoveRows<uint32_t, false>(kOp, params, context);
}

Status ScatterRows(const PackParams& params, const Context& context) {
  constexpr char kOp[] = "scatter rows";
  return params.index_type == DType::kI64 ? MoveRows<uint64_t, true>(kOp, params, context)
                                          : MoveRows<uint32_t, true>(kOp, params, context);
}

}  // namespace segue::kernels::cuda
