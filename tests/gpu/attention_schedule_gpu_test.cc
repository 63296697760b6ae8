// The refresh kernel's bytes against the host builder's.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu/attention_batch.h"
#include "gpu/gpu_rig.h"
#include "kernels/attention_schedule.h"
#include "kernels/attention_sm90.h"
#include "kernels/refresh_schedule.h"

namespace segue::kernels {
namespace {

std::string Describe(const ScheduleShape& shape, int32_t sequences) {
  return std::to_string(sequences) + " sequences of " + std::to_string(shape.capacity.segments) +
         " segments, " + std::to_string(shape.q_heads) + " heads, causal " +
         std::to_string(shape.causal) + ", " + std::to_string(shape.ctas) + " CTAs, capacity " +
         std::to_string(shape.capacity.sequences) + " and " + std::to_string(shape.capacity.work);
}

TEST(AttentionScheduleGpu, DeviceAndHostAgreeOn1000Layouts) {
  SEGUE_SKIP_WITHOUT_GPU();
  constexpr int32_t kSequenceCapacity = 300;
  constexpr int32_t kSegmentCapacity = 32;
  constexpr int32_t kWorkCapacity = 40000;
  GpuMemory rows_memory(int64_t{kSequenceCapacity} * kSegmentCapacity *
                        int64_t{sizeof(SegmentRows)});
  GpuMemory count_memory(4);
  GpuMemory schedule_memory(ScheduleBytes({kSequenceCapacity, kSegmentCapacity, kWorkCapacity}));
  std::mt19937 random(31);
  const auto below = [&random](int32_t n) { return static_cast<int32_t>(random() % n); };
  const int32_t edges[] = {0, 0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 175, 176, 177, 353, 1000};
  int with_errors = 0;
  int with_halves = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    ScheduleShape shape{};
    const int32_t sequences = trial % 10 == 0 ? below(kSequenceCapacity) : below(20);
    const int32_t segments = trial % 7 == 0 ? 1 + below(kSegmentCapacity) : 1 + below(4);
    shape.capacity = {std::max(1, sequences + below(4)), segments, 1 + below(kWorkCapacity)};
    shape.q_heads = 1 + below(24);
    shape.causal = below(2);
    shape.ctas = 1 + below(140);
    shape.sources = 1 + below(kMaxSources);
    for (SourceRows& source : shape.source_rows) source = {5000, 5000};
    shape.lse_rows = below(4) == 0 ? below(20000) : INT32_MAX;
    const bool equal = below(3) == 0;
    std::vector<SegmentRows> rows;
    for (int32_t i = 0; i < sequences * segments; ++i) {
      if (equal && i >= segments) {
        rows.push_back(rows[i - segments]);
        continue;
      }
      rows.push_back({below(shape.sources), below(4000), edges[random() % std::size(edges)],
                      below(4000), edges[random() % std::size(edges)]});
      if (below(2000) == 0) rows.back().q_rows = -1;
      if (below(2000) == 0) rows.back().kv_begin = 4999;
      if (below(2000) == 0) rows.back().source = kMaxSources;
    }
    const int32_t count = below(50) == 0 ? shape.capacity.sequences + 1 : sequences;
    const auto bytes = static_cast<size_t>(ScheduleBytes(shape.capacity));
    std::vector<uint8_t> host(bytes);
    BuildSchedule(shape, rows.data(), count, host.data());

    if (!rows.empty()) {
      ASSERT_EQ(cudaMemcpy(rows_memory.data(), rows.data(), rows.size() * sizeof(SegmentRows),
                           cudaMemcpyHostToDevice),
                cudaSuccess);
    }
    count_memory.Write(&count);
    ASSERT_EQ(cudaMemset(schedule_memory.data(), 0xa5, bytes), cudaSuccess);
    const Status status =
        RefreshSchedule(shape, static_cast<const SegmentRows*>(rows_memory.data()),
                        static_cast<const int32_t*>(count_memory.data()), schedule_memory.data(),
                        Stream::Cuda(nullptr));
    ASSERT_TRUE(status.ok()) << status.error().Message();
    std::vector<uint8_t> device(bytes);
    ASSERT_EQ(cudaMemcpy(device.data(), schedule_memory.data(), bytes, cudaMemcpyDeviceToHost),
              cudaSuccess);
    ScheduleHeader header;
    std::memcpy(&header, host.data(), sizeof(header));
    with_errors += header.error != kScheduleOk ? 1 : 0;
    with_halves += header.error == kScheduleOk && header.dynamic == 0 ? 1 : 0;
    if (device != host) {
      const auto at = std::mismatch(host.begin(), host.end(), device.begin()).first - host.begin();
      FAIL() << "trial " << trial << ": byte " << at << " of " << bytes << " (work begins at "
             << WorkOffset(shape.capacity) << "): " << Describe(shape, sequences);
    }
  }
  // The random layouts reached what they are there for.
  EXPECT_GT(with_errors, 50);
  EXPECT_GT(with_halves, 50);
}

}  // namespace
}  // namespace segue::kernels
