// Index, inverse and cu_seqlens of a batch, in two launches.
//
// The padded rows are one line, cut in chunks of kChunk. The first kernel counts the valid rows of
// each chunk; in the second each CTA adds up the counts before its chunk, which are few, and
// numbers its own rows. Nothing depends on the order in which CTAs run.
#include <cuda_runtime.h>

#include "kernels/cuda/pack/launch.h"
#include "kernels/cuda/pack/pack.h"

namespace segue::kernels::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kWarps = kThreads / 32;
constexpr int32_t kChunk = kPackIndexChunk;
static_assert(kChunk % kThreads == 0);

struct Arguments {
  PackIndexParams params;
  int32_t chunks;
  int32_t padded_rows;
};

__device__ int64_t IntegerAt(const void* data, DType type, int64_t i) {
  switch (type) {
    case DType::kI64:
      return static_cast<const int64_t*>(data)[i];
    case DType::kI32:
      return static_cast<const int32_t*>(data)[i];
    default:
      return static_cast<const uint8_t*>(data)[i];
  }
}

__device__ bool IsValid(const PackIndexRows& rows, int64_t sequence, int64_t row) {
  if (rows.lengths != nullptr && row >= IntegerAt(rows.lengths, rows.lengths_type, sequence)) {
    return false;
  }
  return rows.mask == nullptr ||
         IntegerAt(rows.mask, rows.mask_type, sequence * rows.mask_stride + row) != 0;
}

__device__ bool IsValid(const Arguments& arguments, int32_t padded_row) {
  if (padded_row >= arguments.padded_rows) return false;
  const PackIndexParams& params = arguments.params;
  const auto sequence_rows = static_cast<int32_t>(params.prefix.rows + params.main.rows);
  const int32_t sequence = padded_row / sequence_rows;
  const int64_t row = padded_row - sequence * sequence_rows;
  return row < params.prefix.rows ? IsValid(params.prefix, sequence, row)
                                  : IsValid(params.main, sequence, row - params.prefix.rows);
}

// The sum over the CTA, for all of its threads.
__device__ int32_t SumOverCta(int32_t value, int32_t* shared) {
  value = __reduce_add_sync(0xffffffff, value);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  int32_t sum = 0;
  for (int32_t i = 0; i < kWarps; ++i) sum += shared[i];
  __syncthreads();
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    CountKernel(const __grid_constant__ Arguments arguments) {
  __shared__ int32_t shared[kWarps];
  int32_t count = 0;
  for (int32_t i = threadIdx.x; i < kChunk; i += kThreads) {
    count += IsValid(arguments, blockIdx.x * kChunk + i) ? 1 : 0;
  }
  count = SumOverCta(count, shared);
  if (threadIdx.x == 0) arguments.params.scratch[blockIdx.x] = count;
}

__device__ void Store(void* data, DType type, int64_t i, int32_t value) {
  if (type == DType::kI64) {
    static_cast<int64_t*>(data)[i] = value;
  } else {
    static_cast<int32_t*>(data)[i] = value;
  }
}

// `packed` valid rows lie before `padded_row`, which is itself valid or not.
__device__ void WriteRow(const Arguments& arguments, int32_t padded_row, int32_t packed,
                         bool valid) {
  const PackIndexParams& params = arguments.params;
  if (padded_row >= arguments.padded_rows) return;
  valid = valid && packed < params.capacity;
  if (valid && params.index != nullptr) {
    Store(params.index, params.index_type, packed, padded_row);
  }
  if (params.inverse != nullptr) {
    Store(params.inverse, params.index_type, padded_row, valid ? packed : -1);
  }
  const auto sequence_rows = static_cast<int32_t>(params.prefix.rows + params.main.rows);
  if (params.cu_seqlens != nullptr && padded_row % sequence_rows == 0) {
    params.cu_seqlens[padded_row / sequence_rows] =
        static_cast<int32_t>(min(int64_t{packed}, params.capacity));
  }
}

__device__ bool LengthsInRange(const PackIndexRows& rows, int64_t batch) {
  if (rows.lengths == nullptr) return true;
  bool in_range = true;
  for (int64_t i = threadIdx.x; i < batch; i += kThreads) {
    const int64_t length = IntegerAt(rows.lengths, rows.lengths_type, i);
    in_range = in_range && length >= 0 && length <= rows.rows;
  }
  return in_range;
}

// CTA 0: what belongs to no row.
__device__ void WriteTotals(const Arguments& arguments, int32_t total) {
  const PackIndexParams& params = arguments.params;
  const bool in_range =
      LengthsInRange(params.prefix, params.batch) && LengthsInRange(params.main, params.batch);
  const bool lengths_ok = __syncthreads_and(in_range ? 1 : 0) != 0;
  const auto packed = static_cast<int32_t>(min(int64_t{total}, params.capacity));
  if (params.cu_seqlens != nullptr) {
    // Sequences without rows have no row that writes where they begin.
    const int64_t first = arguments.padded_rows == 0 ? 0 : params.batch;
    for (int64_t i = first + threadIdx.x; i <= params.batch; i += kThreads) {
      params.cu_seqlens[i] = packed;
    }
  }
  if (params.error != nullptr && threadIdx.x == 0) {
    *params.error = !lengths_ok               ? kPackIndexLength
                    : total > params.capacity ? kPackIndexCapacity
                                              : kPackIndexOk;
  }
}

__global__ void __launch_bounds__(kThreads)
    NumberKernel(const __grid_constant__ Arguments arguments) {
  __shared__ int32_t shared[kWarps];
  const PackIndexParams& params = arguments.params;
  const auto chunk = static_cast<int32_t>(blockIdx.x);
  int32_t before = 0;
  int32_t all = 0;
  for (int32_t i = threadIdx.x; i < arguments.chunks; i += kThreads) {
    const int32_t count = params.scratch[i];
    before += i < chunk ? count : 0;
    all += count;
  }
  before = SumOverCta(before, shared);
  all = SumOverCta(all, shared);

  const int32_t lane = threadIdx.x % 32;
  const int32_t warp = threadIdx.x / 32;
  for (int32_t i = 0; i < kChunk; i += kThreads) {
    const int32_t row = chunk * kChunk + i + threadIdx.x;
    const bool valid = IsValid(arguments, row);
    const uint32_t in_warp = __ballot_sync(0xffffffff, valid);
    if (lane == 0) shared[warp] = __popc(in_warp);
    __syncthreads();
    int32_t packed = before + __popc(in_warp & ((1u << lane) - 1));
    for (int32_t w = 0; w < kWarps; ++w) {
      packed += w < warp ? shared[w] : 0;
      before += shared[w];
    }
    __syncthreads();
    WriteRow(arguments, row, packed, valid);
  }
  if (params.index != nullptr) {
    // Behind the last packed row: entries that point nowhere.
    for (int64_t i = all + int64_t{chunk} * kThreads + threadIdx.x; i < params.capacity;
         i += int64_t{gridDim.x} * kThreads) {
      Store(params.index, params.index_type, i, -1);
    }
  }
  if (chunk == 0) WriteTotals(arguments, all);
}

}  // namespace

Status PackIndex(const PackIndexParams& params, const Context& context) {
  constexpr char kOp[] = "pack index";
  const int64_t padded_rows = params.batch * (params.prefix.rows + params.main.rows);
  const int64_t chunks = (padded_rows + kChunk - 1) / kChunk;
  const Arguments arguments{params, static_cast<int32_t>(chunks),
                            static_cast<int32_t>(padded_rows)};
  if (chunks > 0) {
    SEGUE_RETURN_IF_ERROR(Enqueue(kOp, CountKernel, {chunks, kThreads, context.stream}, arguments));
  }
  // Without any row there are still totals to write.
  const int64_t ctas = chunks > 0 ? chunks : 1;
  return Enqueue(kOp, NumberKernel, {ctas, kThreads, context.stream}, arguments);
}

}  // namespace segue::kernels::cuda
