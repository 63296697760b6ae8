#include "attention/backends/schedule_upload.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace segue::attention {
namespace {

using kernels::ScheduleShape;

// A schedule that arrives in copies is that of the host in every byte that the kernel reads,
// whatever was in the workspace.
TEST(ScheduleUpload, BringsEveryByteInUse) {
  std::mt19937 random(41);
  const auto below = [&random](int32_t n) { return static_cast<int32_t>(random() % n); };
  kernels::ScheduleBuilder builder;
  ScheduleUpload upload;
  bool one_copy = false;
  bool three_copies = false;
  for (int trial = 0; trial < 300; ++trial) {
    ScheduleShape shape{};
    const int32_t segments = 1 + below(32);
    const int32_t sequences = below(12);
    shape.capacity = {trial % 2 == 0 ? 12 : 2048, segments, 2000};
    shape.q_heads = 1 + below(3);
    shape.causal = below(2);
    shape.ctas = 132;
    shape.sources = 1;
    shape.source_rows[0] = {1000, 1000};
    shape.lse_rows = INT32_MAX;
    std::vector<SegmentRows> rows;
    for (int32_t i = 0; i < sequences * segments; ++i) {
      rows.push_back({0, below(300), below(200), below(300), below(200)});
    }
    const kernels::ScheduleHeader header = builder.Measure(shape, rows.data(), sequences);
    ASSERT_EQ(header.error, kernels::kScheduleOk);
    const auto bytes = static_cast<size_t>(kernels::ScheduleBytes(shape.capacity));
    std::vector<uint8_t> device(bytes, 0xa5);
    upload.LayOut(shape.capacity, sequences, header.work, device.data());
    std::vector<uint8_t> host(static_cast<size_t>(upload.bytes()), 0x5a);
    builder.Write(upload.PartsIn(host.data()));
    for (const UploadRing::Copy& copy : upload.copies()) {
      ASSERT_GE(copy.from, 0);
      ASSERT_LE(copy.from + copy.bytes, upload.bytes());
      ASSERT_LE(static_cast<uint8_t*>(copy.to) + copy.bytes, device.data() + bytes);
      std::memcpy(copy.to, host.data() + copy.from, static_cast<size_t>(copy.bytes));
    }
    std::vector<uint8_t> whole(bytes);
    BuildSchedule(shape, rows.data(), sequences, whole.data());
    const auto same = [&](int64_t offset, int64_t count) {
      return std::memcmp(&device[offset], &whole[offset], static_cast<size_t>(count)) == 0;
    };
    EXPECT_TRUE(same(0, kernels::SequencesOffset() + sequences * 16)) << "trial " << trial;
    EXPECT_TRUE(same(kernels::SegmentsOffset(shape.capacity), int64_t{sequences} * segments * 32))
        << "trial " << trial;
    EXPECT_TRUE(same(kernels::WorkOffset(shape.capacity), int64_t{header.work} * 16))
        << "trial " << trial;
    one_copy = one_copy || upload.copies().size() == 1;
    three_copies = three_copies || upload.copies().size() == 3;
  }
  EXPECT_TRUE(one_copy);
  EXPECT_TRUE(three_copies);
}

}  // namespace
}  // namespace segue::attention
