#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <vector>

namespace segue::comm {
namespace {

TEST(SingleRank, IsTheWholeGroup) {
  const SingleRank single;
  EXPECT_EQ(single.rank(), 0);
  EXPECT_EQ(single.size(), 1);
}

TEST(SingleRank, SumOfOneRankIsItsValue) {
  ThreadPool pool(1);
  std::vector<float> values = {1.5f, -2.0f, 0.0f, 1e30f};
  const std::vector<float> before = values;
  const SingleRank single;
  ASSERT_TRUE(single
                  .AllReduceSum(ContiguousMatrix(values.data(), 2, 2),
                                kernels::Context{.stream = Stream::Cpu(pool)})
                  .ok());
  EXPECT_EQ(values, before);
  // A GPU's partial sums.
  const MatrixView halves = {
      .data = values.data(), .dtype = DType::kBF16, .rows = 2, .cols = 4, .stride = 4};
  EXPECT_TRUE(single.AllReduceSum(halves, kernels::Context{.stream = Stream::Cpu(pool)}).ok());
  EXPECT_EQ(values, before);
}

TEST(SingleRank, RefusesOtherDtypes) {
  ThreadPool pool(1);
  std::vector<uint16_t> values(4);
  const MatrixView view = {
      .data = values.data(), .dtype = DType::kF16, .rows = 2, .cols = 2, .stride = 2};
  const Status status =
      SingleRank().AllReduceSum(view, kernels::Context{.stream = Stream::Cpu(pool)});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().Message(), "all-reduce: values: got F16, wanted F32 or BF16");
}

}  // namespace
}  // namespace segue::comm
