// Index, inverse and cu_seqlens against their definition.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/pack_case.h"

namespace segue::kernels {
namespace {

struct Outputs {
  Bytes index;
  Bytes inverse;
  std::vector<int32_t> cu_seqlens;
  int32_t error = -1;
};

// PackIndex on outputs full of canaries.
Status Index(PackIndexParams params, Outputs& outputs) {
  const size_t size = SizeOf(params.index_type);
  outputs.index.assign(params.capacity * size, 0xa5);
  outputs.inverse.assign(params.batch * (params.prefix.rows + params.main.rows) * size, 0xa5);
  outputs.cu_seqlens.assign(params.batch + 1, -7);
  params.index = outputs.index.data();
  params.inverse = outputs.inverse.data();
  params.cu_seqlens = outputs.cu_seqlens.data();
  params.error = &outputs.error;
  ThreadPool pool(1);
  return PackIndex(params, {.stream = Stream::Cpu(pool)});
}

void ExpectIndexOf(const PackIndexParams& params, const std::vector<uint8_t>& joint_mask) {
  const PackCase want({.batch = params.batch,
                       .prefix_rows = params.prefix.rows,
                       .main_rows = params.main.rows,
                       .widths = {}},
                      joint_mask);
  Outputs got;
  const Status status = Index(params, got);
  ASSERT_TRUE(status.ok()) << status.error().Message();
  std::vector<int64_t> index = want.index();
  index.resize(params.capacity, -1);
  EXPECT_EQ(got.index, IndexBytes(index, params.index_type)) << want.Describe();
  EXPECT_EQ(got.inverse, IndexBytes(want.inverse(), params.index_type)) << want.Describe();
  EXPECT_EQ(got.cu_seqlens, want.cu_seqlens()) << want.Describe();
  EXPECT_EQ(got.error, kPackIndexOk);
}

TEST(PackIndex, JointMasks) {
  for (const MaskPattern pattern : kMaskPatterns) {
    for (const DType mask_type : {DType::kU8, DType::kI32, DType::kI64}) {
      for (const DType index_type : {DType::kI32, DType::kI64}) {
        const std::vector<uint8_t> mask = MakeMask(pattern, 3, 40, 7);
        const Bytes bytes =
            mask_type == DType::kU8
                ? mask
                : IndexBytes(std::vector<int64_t>(mask.begin(), mask.end()), mask_type);
        PackIndexParams params{.batch = 3, .index_type = index_type, .capacity = 120};
        params.prefix = {
            .rows = 7, .mask = bytes.data(), .mask_type = mask_type, .mask_stride = 40};
        params.main = {.rows = 33,
                       .mask = bytes.data() + 7 * SizeOf(mask_type),
                       .mask_type = mask_type,
                       .mask_stride = 40};
        ExpectIndexOf(params, mask);
      }
    }
  }
}

// Any value but 0 is valid, also where its low byte is 0.
TEST(PackIndex, MaskValues) {
  const int32_t values[] = {0, 256, -1, 1};
  PackIndexParams params{.batch = 1, .capacity = 4};
  params.main = {.rows = 4, .mask = values, .mask_type = DType::kI32, .mask_stride = 4};
  ExpectIndexOf(params, {0, 1, 1, 1});
}

TEST(PackIndex, Lengths) {
  const int32_t text[] = {0, 3, 5};
  const int64_t image[] = {4, 0, 2};
  PackIndexParams params{.batch = 3, .capacity = 20};
  params.prefix = {.rows = 5, .lengths = text};
  params.main = {.rows = 4};
  ExpectIndexOf(params, {0, 0, 0, 0, 0, 1, 1, 1, 1,  //
                         1, 1, 1, 0, 0, 1, 1, 1, 1,  //
                         1, 1, 1, 1, 1, 1, 1, 1, 1});
  params.main = {.rows = 4, .lengths = image, .lengths_type = DType::kI64};
  ExpectIndexOf(params, {0, 0, 0, 0, 0, 1, 1, 1, 1,  //
                         1, 1, 1, 0, 0, 0, 0, 0, 0,  //
                         1, 1, 1, 1, 1, 1, 1, 0, 0});
  const uint8_t mask[] = {0, 1, 1, 1};
  params.main.mask = mask;
  params.main.mask_stride = 0;
  params.batch = 1;
  ExpectIndexOf(params, {0, 0, 0, 0, 0, 0, 1, 1, 1});
}

TEST(PackIndex, NoRowsAndNoSequences) {
  ExpectIndexOf({.batch = 0, .capacity = 3}, {});
  ExpectIndexOf({.batch = 4, .capacity = 0}, {});
  PackIndexParams params{.batch = 1, .capacity = 1};
  params.main.rows = 1;
  ExpectIndexOf(params, {1});
}

TEST(PackIndex, Refusals) {
  const int32_t lengths[] = {5, 0};
  const int32_t negative[] = {-1, 0};
  const uint8_t mask[10] = {};
  PackIndexParams good{.batch = 2, .capacity = 10};
  good.main = {.rows = 5, .lengths = lengths};
  const auto expect_refused = [](const PackIndexParams& params, const std::string& part) {
    Outputs outputs;
    const Status status = Index(params, outputs);
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_NE(status.error().Message().find(part), std::string::npos) << status.error().Message();
    for (const uint8_t byte : outputs.index) EXPECT_EQ(byte, 0xa5);
    for (const int32_t bound : outputs.cu_seqlens) EXPECT_EQ(bound, -7);
  };
  PackIndexParams bad = good;
  bad.main.lengths = negative;
  expect_refused(bad, "main.lengths: got -1");
  bad = good;
  bad.main.rows = 4;
  expect_refused(bad, "main.lengths: got 5");
  bad = good;
  bad.capacity = 4;
  expect_refused(bad, "capacity");
  bad = good;
  bad.index_type = DType::kF32;
  expect_refused(bad, "index_type");
  bad = good;
  bad.main = {.rows = 5, .mask = mask, .mask_type = DType::kF16, .mask_stride = 5};
  expect_refused(bad, "main.mask_type");
  bad.main = {.rows = 5, .mask = mask, .mask_stride = 4};
  expect_refused(bad, "main.mask_stride");

  ThreadPool pool(1);
  const Context context{.stream = Stream::Cpu(pool)};
  bad = good;
  bad.batch = int64_t{1} << 30;
  EXPECT_FALSE(PackIndex(bad, context).ok());
  bad = good;
  bad.main.rows = -1;
  EXPECT_FALSE(PackIndex(bad, context).ok());
}

}  // namespace
}  // namespace segue::kernels
