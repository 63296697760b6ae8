// Builds a schedule on the device from lengths in device memory: BuildSchedule in parallel.
//
// Every CTA repeats the small part, sorting the sequences by counting in shared memory, and then
// writes its share of the table, so that one launch without any grid-wide barrier does.
#include <cuda_runtime.h>

#include <string>

#include "kernels/refresh_schedule.h"

namespace segue::kernels {
namespace {

constexpr int32_t kThreads = 512;
constexpr int32_t kBlocks = 32;

struct Sorting {
  // By sequence.
  int32_t cost[kMaxSequences];
  int32_t tiles[kMaxSequences];  // query tiles of one head
  int32_t q_rows[kMaxSequences];
  // By rank.
  int32_t begin[kMaxSequences];  // entries of those before
  int32_t sequence[kMaxSequences];
  unsigned long long total_tiles;
  unsigned long long total_rows;
  int32_t unequal;
  int32_t common_cost;  // of the sequences that weigh, if they are equal
  int32_t first_error;  // sequence x 16 + ScheduleError
  ScheduleHeader header;
  int32_t split;
  int32_t total;
};

struct Arguments {
  ScheduleShape shape;
  const SegmentRows* rows;
  const int32_t* sequences;
  uint8_t* schedule;
};

__device__ const SegmentRows* RowsOf(const Arguments& arguments, int32_t sequence) {
  return arguments.rows + int64_t{sequence} * arguments.shape.capacity.segments;
}

__device__ void Measure(const Arguments& arguments, int32_t count, Sorting& sorting) {
  constexpr int32_t kNoError = 0x7fffffff;
  const ScheduleShape& shape = arguments.shape;
  if (threadIdx.x == 0) {
    sorting.total_tiles = 0;
    sorting.total_rows = 0;
    sorting.unequal = 0;
    sorting.common_cost = 0;
    sorting.first_error = kNoError;
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < count; i += kThreads) {
    const SequenceSums sums = SumSequence(RowsOf(arguments, i), shape);
    if (sums.error != kScheduleOk) {
      atomicMin(&sorting.first_error, i * 16 + sums.error);
      continue;
    }
    sorting.cost[i] = SequenceCost(sums, shape.causal);
    sorting.tiles[i] = static_cast<int32_t>(sums.query_tiles);
    sorting.q_rows[i] = static_cast<int32_t>(sums.q_rows);
    if (Weighs(sorting.cost[i], sums.query_tiles)) {
      atomicMax(&sorting.common_cost, sorting.cost[i]);
    }
    atomicAdd(&sorting.total_tiles,
              static_cast<unsigned long long>(sums.query_tiles * shape.q_heads));
    atomicAdd(&sorting.total_rows, static_cast<unsigned long long>(sums.q_rows));
  }
  __syncthreads();
  if (sorting.first_error != kNoError) return;
  for (int32_t i = threadIdx.x; i < count; i += kThreads) {
    if (Weighs(sorting.cost[i], sorting.tiles[i]) && sorting.cost[i] != sorting.common_cost) {
      sorting.unequal = 1;
    }
  }
  __syncthreads();
}

// Thread 0: the header, from the totals.
__device__ void Decide(const ScheduleShape& shape, int32_t count, Sorting& sorting) {
  sorting.split = 0;
  sorting.total = 0;
  if (count < 0 || count > shape.capacity.sequences) {
    sorting.header = {0, 0, kScheduleSequences, 0};
    return;
  }
  if (sorting.first_error != 0x7fffffff) {
    sorting.header = {0, 0, sorting.first_error % 16, sorting.first_error / 16};
    return;
  }
  const auto tiles = static_cast<int64_t>(sorting.total_tiles);
  if (static_cast<int64_t>(sorting.total_rows) > shape.lse_rows) {
    sorting.header = {0, 0, kScheduleLse, count};
    return;
  }
  const int32_t dynamic = shape.causal != 0 || sorting.unequal != 0 ? 1 : 0;
  const int32_t split = SplitTiles(tiles, shape.ctas, dynamic);
  if (tiles + split > shape.capacity.work) {
    sorting.header = {0, 0, kScheduleWork, count};
    return;
  }
  sorting.split = split;
  sorting.total = static_cast<int32_t>(tiles);
  sorting.header = {sorting.total + split, dynamic, kScheduleOk, count};
}

__device__ void WriteRecords(const Arguments& arguments, int32_t count, Sorting& sorting) {
  const ScheduleShape& shape = arguments.shape;
  auto* sequences = reinterpret_cast<SequenceRecord*>(arguments.schedule + SequencesOffset());
  auto* segments =
      reinterpret_cast<SegmentRecord*>(arguments.schedule + SegmentsOffset(shape.capacity));
  for (int32_t i = threadIdx.x; i < shape.capacity.sequences; i += kThreads) {
    const bool used = sorting.header.error == kScheduleOk && i < count;
    SequenceRecord record{0, 0, 0, 0};
    int32_t rank = 0;
    int32_t begin = 0;
    if (used) {
      for (int32_t j = 0; j < count; ++j) {
        if (j < i) record.lse_begin += sorting.q_rows[j];
        if (Precedes(sorting.cost[j], j, sorting.cost[i], i)) {
          ++rank;
          begin += sorting.tiles[j] * shape.q_heads;
        }
      }
      sorting.begin[rank] = begin;
      sorting.sequence[rank] = i;
    }
    if (i % kBlocks != static_cast<int32_t>(blockIdx.x)) continue;
    if (used) {
      const SequenceSums sums = SumSequence(RowsOf(arguments, i), shape);
      record.q_rows = static_cast<int32_t>(sums.q_rows);
      record.kv_rows = static_cast<int32_t>(sums.kv_rows);
      record.key_extent = static_cast<int32_t>(sums.key_extent);
    }
    sequences[i] = record;
    for (int32_t s = 0; s < shape.capacity.segments; ++s) {
      segments[int64_t{i} * shape.capacity.segments + s] =
          used ? MakeSegment(RowsOf(arguments, i), shape.capacity.segments, shape.causal, s)
               : SegmentRecord{};
    }
  }
}

__device__ void WriteWork(const Arguments& arguments, int32_t count, const Sorting& sorting) {
  const ScheduleShape& shape = arguments.shape;
  auto* work = reinterpret_cast<WorkItem*>(arguments.schedule + WorkOffset(shape.capacity));
  for (int32_t i = blockIdx.x * kThreads + threadIdx.x; i < shape.capacity.work;
       i += kBlocks * kThreads) {
    WorkItem item{-1, 0, 0, 0};
    if (i < sorting.header.work) {
      const SplitEntry entry = FindSplit(i, sorting.total, sorting.split);
      // The last rank that begins at or before the tile; those without work begin where it ends.
      int32_t low = 0;
      int32_t high = count;
      while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        (sorting.begin[middle] <= entry.tile ? low : high) = middle;
      }
      const int32_t sequence = sorting.sequence[low];
      item = SequenceWork(sequence, RowsOf(arguments, sequence), shape, sorting.tiles[sequence],
                          entry.tile - sorting.begin[low]);
      item = HalfOf(item, entry.half);
    }
    work[i] = item;
  }
}

__global__ void __launch_bounds__(kThreads)
    RefreshKernel(const __grid_constant__ Arguments arguments) {
  __shared__ Sorting sorting;
  const int32_t count = *arguments.sequences;
  const bool valid = count >= 0 && count <= arguments.shape.capacity.sequences;
  Measure(arguments, valid ? count : 0, sorting);
  if (threadIdx.x == 0) Decide(arguments.shape, count, sorting);
  __syncthreads();
  WriteRecords(arguments, count, sorting);
  __syncthreads();
  WriteWork(arguments, count, sorting);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *reinterpret_cast<ScheduleHeader*>(arguments.schedule) = sorting.header;
  }
}

Error RefreshError(const char* argument, const std::string& got, const char* wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "refresh the attention schedule",
          .argument = argument,
          .got = got,
          .wanted = wanted};
}

}  // namespace

Status RefreshSchedule(const ScheduleShape& shape, const SegmentRows* rows,
                       const int32_t* sequences, void* schedule, const Stream& stream) {
  const ScheduleCapacity& capacity = shape.capacity;
  if (capacity.sequences <= 0 || capacity.sequences > kMaxSequences) {
    return RefreshError("capacity.sequences", std::to_string(capacity.sequences), "1 to 2048");
  }
  if (capacity.segments <= 0 || capacity.segments > kMaxSegments) {
    return RefreshError("capacity.segments", std::to_string(capacity.segments), "1 to 32");
  }
  if (capacity.work < 0 || shape.ctas <= 0 || shape.q_heads <= 0) {
    return RefreshError("shape", "work, CTAs or heads out of range", "positive numbers");
  }
  const Arguments arguments{shape, rows, sequences, static_cast<uint8_t*>(schedule)};
  RefreshKernel<<<kBlocks, kThreads, 0, static_cast<cudaStream_t>(stream.cuda_stream())>>>(
      arguments);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    return RefreshError("launch", cudaGetErrorString(status), "a working CUDA device");
  }
  return {};
}

}  // namespace segue::kernels
