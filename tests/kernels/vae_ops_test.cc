// What the picture decoder's operations do on the host: sums before a norm, refusals, sizes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/add.h"
#include "kernels/channel_norm.h"
#include "kernels/conv2d.h"
#include "kernels/convolution_weight.h"
#include "kernels/test_support.h"
#include "kernels/upsample.h"
#include "kernels/wide_attention.h"

namespace segue::kernels {
namespace {

std::string Text(const Status& status) { return status.ok() ? "" : status.error().Message(); }

TEST(VaeOps, ANormAddsFirst) {
  ThreadPool pool(1);
  for (const bool reference : {false, true}) {
    const Context context = {.stream = Stream::Cpu(pool), .reference_only = reference};
    for (const Rounding rounding : {Rounding::kNone, Rounding::kBF16, Rounding::kBF16Once}) {
      for (const bool keeps_sum : {false, true}) {
        Matrix x = RandomMatrix(5, 19, 3, 1);
        Matrix addend = RandomMatrix(5, 19, 2, 2);
        const Weight gamma = RandomWeight(DType::kBF16, {19}, 3);
        Matrix sum = RandomMatrix(5, 19, 1, 4);
        Matrix wanted = RandomMatrix(5, 19, 1, 5);
        ASSERT_EQ(
            Text(Add({.a = x.View(), .b = addend.View(), .y = sum.View(), .rounding = rounding},
                     context)),
            "");
        ASSERT_EQ(Text(ChannelNorm({.x = sum.View(),
                                    .gamma = gamma.view,
                                    .y = wanted.View(),
                                    .silu = true,
                                    .rounding = rounding},
                                   context)),
                  "");
        // In place: the sum over x, or without one the norm over the addend.
        Matrix y = keeps_sum ? RandomMatrix(5, 19, 1, 6) : addend;
        ASSERT_EQ(Text(ChannelNorm({.x = x.View(),
                                    .addend = keeps_sum ? addend.View() : y.View(),
                                    .sum = keeps_sum ? x.View() : MatrixView{},
                                    .gamma = gamma.view,
                                    .y = y.View(),
                                    .silu = true,
                                    .rounding = rounding},
                                   context)),
                  "");
        for (int64_t row = 0; row < 5; ++row) {
          for (int64_t col = 0; col < 19; ++col) {
            EXPECT_EQ(y.View().Row<float>(row)[col], wanted.View().Row<float>(row)[col]);
            if (!keeps_sum) continue;
            EXPECT_EQ(x.View().Row<float>(row)[col], sum.View().Row<float>(row)[col]);
          }
        }
      }
    }
  }
}

TEST(VaeOps, TheHostRefusesWhatIsForGpus) {
  ThreadPool pool(1);
  const Context context = {.stream = Stream::Cpu(pool)};
  Matrix x = RandomMatrix(6, 8, 0, 1);
  Matrix y = RandomMatrix(24, 8, 0, 2);
  const Status doubled = Upsample({.x = x.View(), .height = 2, .width = 3, .y = y.View()}, context);
  EXPECT_NE(Text(doubled).find("works on a GPU's memory only"), std::string::npos);

  const Weight weight = RandomWeight(DType::kBF16, {8, 3, 3, 8}, 3);
  Conv2dParams params = {.x = x.View(),
                         .height = 2,
                         .width = 3,
                         .weight = weight.view,
                         .order = WeightOrder::kOutTapsIn,
                         .y = y.View().Rows(0, 6)};
  EXPECT_NE(Text(Conv2d(params, context)).find("a GPU's order"), std::string::npos);
  params.order = WeightOrder::kOutInTaps;
  EXPECT_NE(Text(Conv2d(params, context)).find("[8, 8, (kt,) k, k]"), std::string::npos);

  std::vector<uint16_t> to(576);
  EXPECT_NE(Text(ReorderConvolutionWeight({.weight = weight.view, .y = to.data()}, context))
                .find("works on a GPU's memory only"),
            std::string::npos);
  EXPECT_EQ(TapsFirst({4, 5, 3, 2, 1}), (Shape{4, 2, 1, 5}));
}

TEST(VaeOps, ChunksOfQueriesFitAndAreAlike) {
  EXPECT_EQ(WideAttentionRowBytes(1), 128);
  EXPECT_EQ(WideAttentionRowBytes(16384), 65536);
  EXPECT_EQ(WideAttentionChunk(100, 64, 100 * 256), 100);
  for (const int64_t queries : {1000, 16384, 27556}) {
    for (const int64_t most : {1, 100, 5376, 5568}) {
      const int64_t bytes = most * WideAttentionRowBytes(queries) + 7;
      const int64_t chunk = WideAttentionChunk(queries, queries, bytes);
      EXPECT_GE(chunk, 1);
      EXPECT_LE(chunk * WideAttentionRowBytes(queries), bytes);
      const int64_t chunks = (queries + chunk - 1) / chunk;
      EXPECT_EQ(chunks, (queries + most - 1) / most) << queries << ", " << most;
    }
  }
  EXPECT_EQ(WideAttentionChunk(16384, 16384, int64_t{5376} * 65536), 4096);
}

}  // namespace
}  // namespace segue::kernels
