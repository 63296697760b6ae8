// The implicit product gives the reference's bits for every geometry, dtype and number of threads.
#include "kernels/conv2d.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/test_support.h"

namespace segue::kernels {
namespace {

struct Problem {
  int64_t height, width, in, out;
  int64_t taps = 3;
  int64_t frames = 3;  // 0: a weight of rank 4
  bool upsample = false;
  bool residual = false;
  DType dtype = DType::kBF16;
  Rounding rounding = Rounding::kNone;
};

void ExpectReferenceBits(const Problem& p) {
  const Shape shape = p.frames == 0 ? Shape{p.out, p.in, p.taps, p.taps}
                                    : Shape{p.out, p.in, p.frames, p.taps, p.taps};
  const int64_t pixels = p.height * p.width;
  Matrix x = RandomMatrix(pixels, p.in, 3, 1);
  const Weight weight = RandomWeight(p.dtype, shape, 2);
  const Weight bias = RandomWeight(p.dtype, {p.out}, 3);
  Matrix residual = RandomMatrix(pixels * (p.upsample ? 4 : 1), p.out, 1, 4);
  const auto run = [&](const Context& context) {
    Matrix y = RandomMatrix(residual.rows, p.out, 2, 5);
    const Status status = Conv2d({.x = x.View(),
                                  .height = p.height,
                                  .width = p.width,
                                  .weight = weight.view,
                                  .bias = bias.view,
                                  .upsample = p.upsample,
                                  .residual = p.residual ? residual.View() : MatrixView{},
                                  .y = y.View(),
                                  .rounding = p.rounding},
                                 context);
    EXPECT_TRUE(status.ok()) << status.error().Message();
    return y.data;
  };
  ThreadPool one(1);
  ThreadPool three(3);
  const std::vector<float> want = run({.stream = Stream::Cpu(one), .reference_only = true});
  for (const CpuIsa isa : {CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    for (ThreadPool* pool : {&one, &three}) {
      EXPECT_TRUE(SameBits(run({.stream = Stream::Cpu(*pool), .widest_isa = isa}), want))
          << p.height << "x" << p.width << " " << p.in << " to " << p.out << " taps " << p.taps;
    }
  }
}

TEST(Conv2d, GeometriesGiveTheReferenceBits) {
  for (const bool upsample : {false, true}) {
    for (const int64_t in : {1, 3, 16, 20, 33}) {
      ExpectReferenceBits({.height = 5, .width = 7, .in = in, .out = 24, .upsample = upsample});
      ExpectReferenceBits({.height = 1, .width = 1, .in = in, .out = 3, .upsample = upsample});
      ExpectReferenceBits({.height = 3,
                           .width = 40,
                           .in = in,
                           .out = 37,
                           .frames = 0,
                           .upsample = upsample,
                           .residual = true});
    }
  }
}

TEST(Conv2d, DTypesRoundingAndPointwiseKernelsGiveTheReferenceBits) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Rounding rounding : {Rounding::kNone, Rounding::kBF16, Rounding::kBF16Once}) {
      for (const int64_t taps : {1, 3}) {
        for (const int64_t frames : {0, 1, 3}) {
          ExpectReferenceBits({.height = 6,
                               .width = 5,
                               .in = 18,
                               .out = 19,
                               .taps = taps,
                               .frames = frames,
                               .residual = true,
                               .dtype = dtype,
                               .rounding = rounding});
        }
      }
    }
  }
}

TEST(Conv2d, ManyChannelsAreTakenInParts) {
  // 160 output channels of 9 x 384 float32 weights are 2.1 MiB, more than is reordered at once.
  ExpectReferenceBits(
      {.height = 1, .width = 2, .in = 384, .out = 160, .residual = true, .dtype = DType::kF32});
}

TEST(Conv2d, OneHugeChannelIsLeftToTheReference) {
  // 9 x 60,000 float32 weights exceed 2 MiB.
  ExpectReferenceBits(
      {.height = 1, .width = 1, .in = 60000, .out = 1, .frames = 0, .dtype = DType::kF32});
}

TEST(Conv2d, RefusesAKernelOfAnotherSize) {
  ThreadPool pool(1);
  Matrix x = RandomMatrix(4, 2, 0, 1);
  Matrix y = RandomMatrix(4, 3, 0, 1);
  const Weight weight = RandomWeight(DType::kF32, {3, 2, 5, 5}, 1);
  const Status status =
      Conv2d({.x = x.View(), .height = 2, .width = 2, .weight = weight.view, .y = y.View()},
             {.stream = Stream::Cpu(pool)});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().Message(),
            "conv2d: weight: got [3, 2, 5, 5], wanted [3, 2, (kt,) k, k] with k = 1 or 3");
}

}  // namespace
}  // namespace segue::kernels
