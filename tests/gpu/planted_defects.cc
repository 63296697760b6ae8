// Runs the attention kernel once with the defect that one of compute-sanitizer's tools is for, or
// with none. tools/sanitize runs it under that tool.
//
// usage: test_gpu_defects none|memcheck|racecheck|initcheck|synccheck|synccheck-block
// Exit status: 0; 1 where a call fails or, without a defect, an output is wrong; 2 for a mistake in
// the arguments; 77 without a GPU.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "gpu/defective_attention.h"
#include "gpu/gpu_memory.h"
#include "kernels/attention_sm90.h"

namespace segue::kernels {
namespace {

constexpr int32_t kHeads = 2;
constexpr int32_t kDim = 128;
constexpr int32_t kSequences = 4;
constexpr int32_t kQueries = 70;  // of a sequence
constexpr int32_t kKeys = 100;
constexpr int32_t kQRows = kSequences * kQueries;
constexpr int32_t kKvRows = kSequences * kKeys;

// Of every element of a sequence's V, and so of its outputs.
float ValueOf(int32_t sequence) { return 1.0f + 0.25f * static_cast<float>(sequence); }

int Fail(const std::string& what) {
  std::fprintf(stderr, "test_gpu_defects: %s\n", what.c_str());
  return 1;
}

ScheduleShape Shape() {
  ScheduleShape shape{};
  shape.q_heads = kHeads;
  shape.ctas = 1;  // one after the other, so that slots are used again
  shape.sources = 1;
  shape.source_rows[0] = {kQRows, kKvRows};
  shape.lse_rows = kQRows;
  shape.capacity = {kSequences, 1, 64};
  return shape;
}

// Every memory ends where what it holds does; of the schedule, only the entries in use are written.
struct Memory {
  GpuMemory q{int64_t{kQRows} * kHeads * kDim * 2};
  GpuMemory k{int64_t{kKvRows} * kHeads * kDim * 2};
  GpuMemory v{int64_t{kKvRows} * kHeads * kDim * 2};
  GpuMemory o{int64_t{kQRows} * kHeads * kDim * 2};
  GpuMemory lse{int64_t{kQRows} * kHeads * 4};
  GpuMemory schedule{ScheduleBytes(Shape().capacity)};
  GpuMemory counters{8};

  void Write() {
    std::vector<uint16_t> values(int64_t{kQRows} * kHeads * kDim, FloatToBF16(0.5f));
    q.Write(values.data());
    values.assign(int64_t{kKvRows} * kHeads * kDim, FloatToBF16(0.25f));
    k.Write(values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = FloatToBF16(ValueOf(static_cast<int32_t>(i / (kKeys * kHeads * kDim))));
    }
    v.Write(values.data());
    const int32_t zeros[2] = {0, 0};
    counters.Write(zeros);
    std::vector<SegmentRows> rows(kSequences);
    for (int32_t i = 0; i < kSequences; ++i) {
      rows[i] = {0, i * kQueries, kQueries, i * kKeys, kKeys};
    }
    std::vector<uint8_t> bytes(static_cast<size_t>(ScheduleBytes(Shape().capacity)));
    BuildSchedule(Shape(), rows.data(), kSequences, bytes.data());
    ScheduleHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const int64_t used = WorkOffset(Shape().capacity) + header.work * int64_t{sizeof(WorkItem)};
    cudaMemcpy(schedule.data(), bytes.data(), static_cast<size_t>(used), cudaMemcpyHostToDevice);
  }

  AttentionSm90Params Params() const {
    AttentionSm90Params params;
    AttentionSm90Source& source = params.sources[0];
    source.q = q.data();
    source.k = k.data();
    source.v = v.data();
    source.o = o.data();
    source.q_row_stride = source.k_row_stride = source.v_row_stride = source.o_row_stride =
        int64_t{kHeads} * kDim;
    source.q_rows = kQRows;
    source.kv_rows = kKvRows;
    params.source_count = 1;
    params.schedule = schedule.data();
    params.capacity = Shape().capacity;
    params.counters = static_cast<int32_t*>(counters.data());
    params.lse = static_cast<float*>(lse.data());
    params.lse_stride = kQRows;
    params.q_heads = params.kv_heads = kHeads;
    params.head_dim = kDim;
    params.ctas = Shape().ctas;
    params.softmax_scale = 1.0f / std::sqrt(static_cast<float>(kDim));
    return params;
  }
};

int Run(int32_t defect) {
  Memory memory;
  memory.Write();
  if (const cudaError_t status = PlantDefect(defect); status != cudaSuccess) {
    return Fail(cudaGetErrorString(status));
  }
  const Status status = AttentionSm90(memory.Params(), Stream::Cuda(nullptr));
  if (!status.ok()) return Fail(status.error().Message());
  const cudaError_t finished = cudaDeviceSynchronize();
  if (defect != 0) return 0;  // what it did is the tool's to say
  if (finished != cudaSuccess) return Fail(cudaGetErrorString(finished));
  std::vector<uint16_t> outputs(int64_t{kQRows} * kHeads * kDim);
  memory.o.Read(outputs.data());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto row = static_cast<int32_t>(i / (kHeads * kDim));
    if (outputs[i] != FloatToBF16(ValueOf(row / kQueries))) {
      return Fail("row " + std::to_string(row) + " is wrong");
    }
  }
  return 0;
}

}  // namespace
}  // namespace segue::kernels

int main(int argc, char** argv) {
  constexpr const char* kDefects[] = {"none",      "memcheck",  "racecheck",
                                      "initcheck", "synccheck", "synccheck-block"};
  const auto* found =
      argc != 2 ? std::end(kDefects)
                : std::find_if(std::begin(kDefects), std::end(kDefects),
                               [&](const char* name) { return std::strcmp(name, argv[1]) == 0; });
  if (found == std::end(kDefects)) {
    std::fputs("usage: test_gpu_defects none", stderr);
    for (size_t i = 1; i < std::size(kDefects); ++i) std::fprintf(stderr, "|%s", kDefects[i]);
    std::fputs("\n", stderr);
    return 2;
  }
  if (const std::string reason = segue::kernels::NoGpuReason(); !reason.empty()) {
    std::fprintf(stderr, "test_gpu_defects: skipped: %s\n", reason.c_str());
    return 77;
  }
  return segue::kernels::Run(static_cast<int32_t>(found - std::begin(kDefects)));
}
