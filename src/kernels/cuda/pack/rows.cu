// Packing and scattering rows.
//
// The rows that are written, tensor after tensor, are one long line of vectors, and a CTA takes the
// next kVectorsPerCta of them whatever the width of a row: every thread has the same number of
// loads in flight, for 8 elements a row as for 8,192. Each vector finds its row by one
// multiplication and reads that row's index, which lies in L1 for all but the first vector of a
// row.
//
// Wide rows of 16-byte vectors are cut into pieces instead, a warp moves one, and all of it is in
// flight at once: one row number, one index and two addresses a warp, so that little but memory is
// waited for. Up to 5,280 pieces (132 SMs of 40 warps) are one wave, which pays the latency of the
// index once.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/global_memory.h"
#include "kernels/cuda/pack/launch.h"
#include "kernels/cuda/pack/pack.h"
#include "kernels/cuda/pack/vectors.h"

namespace segue::kernels::cuda {
namespace {

// Bytes, not elements. Row r of sequence b, counted through prefix and main, begins at
// origin + b * batch_stride + r * row_stride.
//
// What a warp needs before its first load comes first: arguments arrive by lines of 64 bytes, each
// waited for where it is first read, and begin 16 bytes into one. With a single tensor of rows of
// one piece in one sequence that is two lines, this struct one of them.
struct Tensor {
  uint64_t packed;
  int64_t packed_stride;
  uint64_t reciprocal;     // of `vectors`, of wide rows of `pieces` (see Divide)
  uint32_t vectors;        // of a row
  uint32_t piece_vectors;  // of a wide row's piece but the last, a multiple of a warp
  uint64_t prefix_origin;
  int64_t prefix_row_stride;
  uint64_t main_origin;
  int64_t main_row_stride;
  int64_t prefix_batch_stride;
  int64_t main_batch_stride;
  uint32_t pieces;  // of a wide row
};

struct Arguments {
  const void* index;  // or the inverse
  const int32_t* packed_count;
  int32_t* error;
  uint32_t packed_rows;
  uint32_t padded_rows;
  uint32_t prefix_rows;
  uint32_t first_cta[kMaxPackTensors];  // that works on a tensor; 2^32 - 1 where there is none
  Tensor tensors[kMaxPackTensors];
  uint64_t sequence_reciprocal;  // of `sequence_rows`
  uint32_t sequence_rows;        // padded rows of a sequence
};
static_assert(offsetof(Arguments, tensors) == 48 && offsetof(Tensor, prefix_batch_stride) == 64);

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
  const uint64_t origin = in_prefix ? tensor.prefix_origin : tensor.main_origin;
  const int64_t row_stride = in_prefix ? tensor.prefix_row_stride : tensor.main_row_stride;
  const uint64_t address = origin + row * row_stride;
  if (kOneSequence) return address;
  return address + sequence * (in_prefix ? tensor.prefix_batch_stride : tensor.main_batch_stride);
}

// The tensor that this CTA works on. Compared with constants, not looked up one after the other:
// the first loads wait for this.
__device__ __forceinline__ int32_t TensorOf(const Arguments& arguments) {
  static_assert(kMaxPackTensors == 3);
  return (blockIdx.x >= arguments.first_cta[1] ? 1 : 0) +
         (blockIdx.x >= arguments.first_cta[2] ? 1 : 0);
}

template <typename Vector, typename Index, bool kScatter, bool kOneSequence>
__global__ void __launch_bounds__(kMoveThreads, kCtasPerSm)
    MoveRowsKernel(const __grid_constant__ Arguments arguments) {
  const int32_t which = TensorOf(arguments);
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

// A lane has kPieceVectorsPerLane vectors of its warp's piece.
template <typename Index, bool kScatter, bool kOneSequence, bool kOneTensor>
__global__ void __launch_bounds__(kMoveThreads, kWideCtasPerSm)
    MoveWideRowsKernel(const __grid_constant__ Arguments arguments) {
  const int32_t which = kOneTensor ? 0 : TensorOf(arguments);
  const Tensor& tensor = arguments.tensors[which];
  const uint32_t cta = kOneTensor ? blockIdx.x : blockIdx.x - arguments.first_cta[which];
  const uint64_t piece = uint64_t{cta} * kPiecesPerCta + threadIdx.x / kWarp;
  const uint32_t row = Divide(piece, tensor.reciprocal);
  const uint32_t entries = kScatter ? arguments.padded_rows : arguments.packed_rows;  // above 0
  const uint32_t source = LoadIndex<Index>(arguments.index, min(row, entries - 1));
  if (threadIdx.x % kWarp == 0 && row < min(arguments.packed_rows, arguments.padded_rows)) {
    // While the index is on its way. The row of this number is read by this warp or another one,
    // and lies most often in the page that this one needs.
    device::Prefetch(kScatter ? tensor.packed + row * tensor.packed_stride
                              : PaddedAddress<kOneSequence>(arguments, tensor, row));
  }
  const uint32_t packed_rows = PackedRows(arguments);
  if (row >= (kScatter ? arguments.padded_rows : packed_rows)) return;

  const bool whole = tensor.reciprocal == 0;  // rows of one piece
  const uint32_t part = whole ? 0 : static_cast<uint32_t>(piece - uint64_t{row} * tensor.pieces);
  const uint32_t begin = part * tensor.piece_vectors + threadIdx.x % kWarp;
  const uint32_t end = min((part + 1) * tensor.piece_vectors, tensor.vectors);
  const uint64_t offset = uint64_t{begin} * sizeof(uint4);
  const uint32_t packed_row = kScatter ? source : row;
  const uint32_t padded_row = kScatter ? row : source;
  const uint64_t in_packed = tensor.packed + offset + packed_row * tensor.packed_stride;
  const uint64_t in_padded = PaddedAddress<kOneSequence>(arguments, tensor, padded_row) + offset;
  const uint64_t from = kScatter ? in_packed : in_padded;
  const uint64_t to = kScatter ? in_padded : in_packed;

  const bool there = source < (kScatter ? packed_rows : arguments.padded_rows);
  uint4 values[kPieceVectorsPerLane];
#pragma unroll
  for (int32_t i = 0; i < kPieceVectorsPerLane; ++i) {
    values[i] = device::LoadIf(there && begin + i * kWarp < end, from + i * kWarp * sizeof(uint4));
  }
#pragma unroll
  for (int32_t i = 0; i < kPieceVectorsPerLane; ++i) {
    if (begin + i * kWarp < end) device::Store(to + i * kWarp * sizeof(uint4), values[i]);
  }
  const bool hole = kScatter && source == kHole;
  if (!there && !hole && arguments.error != nullptr) *arguments.error = 1;
}

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

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

Tensor MakeTensor(const PackParams& params, const PackTensor& from, int64_t vectors, bool wide) {
  const auto size = static_cast<int64_t>(SizeOf(params.element_type));
  const int64_t pieces = RoundUp(vectors, kMaxPieceVectors) / kMaxPieceVectors;
  Tensor tensor{};
  tensor.packed = reinterpret_cast<uint64_t>(from.packed);
  tensor.packed_stride = from.packed_row_stride * size;
  tensor.reciprocal = Reciprocal(static_cast<uint64_t>(wide ? pieces : vectors));
  tensor.vectors = static_cast<uint32_t>(vectors);
  tensor.piece_vectors = static_cast<uint32_t>(RoundUp((vectors + pieces - 1) / pieces, kWarp));
  tensor.prefix_origin = reinterpret_cast<uint64_t>(from.prefix.data);
  tensor.prefix_row_stride = from.prefix.row_stride * size;
  tensor.prefix_batch_stride = BatchStride(from.prefix, params.prefix_rows) * size;
  tensor.main_row_stride = from.main.row_stride * size;
  tensor.main_batch_stride = BatchStride(from.main, params.main_rows) * size;
  // Rows are counted from the prefix's first.
  tensor.main_origin = reinterpret_cast<uint64_t>(from.main.data) -
                       static_cast<uint64_t>(params.prefix_rows * tensor.main_row_stride);
  tensor.pieces = static_cast<uint32_t>(pieces);
  return tensor;
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

// Whether every row fills most of a warp's vectors.
bool IsWide(const PackParams& params) {
  const auto size = static_cast<int64_t>(SizeOf(params.element_type));
  for (int32_t i = 0; i < params.tensor_count; ++i) {
    const int64_t bytes = params.tensors[i].row_elements * size;
    if (bytes < kMinWideVectors * int64_t{sizeof(uint4)}) return false;
  }
  return true;
}

template <typename Index, bool kScatter>
auto WideKernel(const PackParams& params) {
  if (params.tensor_count == 1) {
    return IsOneSequence(params) ? MoveWideRowsKernel<Index, kScatter, true, true>
                                 : MoveWideRowsKernel<Index, kScatter, false, true>;
  }
  return IsOneSequence(params) ? MoveWideRowsKernel<Index, kScatter, true, false>
                               : MoveWideRowsKernel<Index, kScatter, false, false>;
}

template <typename Vector, typename Index, bool kScatter>
Status Launch(const char* operation, const PackParams& params, const Context& context) {
  const auto size = static_cast<int64_t>(SizeOf(params.element_type));
  const bool wide = sizeof(Vector) == sizeof(uint4) && IsWide(params);
  Arguments arguments = MakeArguments(params, kScatter);
  int64_t ctas = 0;
  for (int32_t i = 0; i < params.tensor_count; ++i) {
    const PackTensor& from = params.tensors[i];
    const int64_t vectors = from.row_elements * size / int64_t{sizeof(Vector)};
    arguments.tensors[i] = MakeTensor(params, from, vectors, wide);
    arguments.first_cta[i] = static_cast<uint32_t>(ctas);
    const int64_t rows = kScatter ? arguments.padded_rows : arguments.packed_rows;
    const int64_t work = rows * (wide ? int64_t{arguments.tensors[i].pieces} : vectors);
    const int64_t of_cta = wide ? kPiecesPerCta : kVectorsPerCta;
    ctas += (work + of_cta - 1) / of_cta;
  }
  auto kernel = IsOneSequence(params) ? MoveRowsKernel<Vector, Index, kScatter, true>
                                      : MoveRowsKernel<Vector, Index, kScatter, false>;
  if (wide) kernel = WideKernel<Index, kScatter>(params);
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
