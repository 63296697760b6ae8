#include "model/layers/linear.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "model/rank_group.h"
#include "model/weights/tensor_file.h"

namespace segue::model {
namespace {

class LinearTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 3, kIn = 6, kHidden = 8, kOut = 4;

  void SetUp() override {
    // Of this process alone: the tests run side by side.
    directory_ = testing::TempDir() + "segue_linear_test_" + std::to_string(getpid());
    std::filesystem::create_directories(directory_);
    Fill(up_weight_, kHidden * kIn, 1);
    Fill(up_bias_, kHidden, 2);
    Fill(down_weight_, kOut * kHidden, 3);
    Fill(down_bias_, kOut, 4);
    Fill(x_, kRows * kIn, 5);
    const auto view = [](std::vector<float>& values, const Shape& shape) {
      return WeightView{.data = values.data(), .dtype = DType::kF32, .shape = shape};
    };
    ASSERT_TRUE(WriteTensorFile(directory_ + "/model.safetensors",
                                {{"up.weight", view(up_weight_, {kHidden, kIn})},
                                 {"up.bias", view(up_bias_, {kHidden})},
                                 {"down.weight", view(down_weight_, {kOut, kHidden})},
                                 {"down.bias", view(down_bias_, {kOut})}})
                    .ok());
    auto table = TensorTable::Open(directory_, "model", "model");
    ASSERT_TRUE(table.ok()) << table.error().Message();
    table_ = std::make_unique<TensorTable>(std::move(*table));
  }

  void TearDown() override { std::filesystem::remove_all(directory_); }

  static void Fill(std::vector<float>& values, int64_t count, int salt) {
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>((i * 37 + salt * 11) % 17 - 8) / 8.0f);
    }
  }

  // down(up(x)) as one rank sees it. The values are small dyadic numbers: every sum is exact.
  std::vector<float> RunPair(const comm::Communicator& communicator) {
    WeightStore store = WeightStore::Host();
    WeightReader reader(*table_, store);
    const ColumnParallelLinear up(reader, {"up", kIn, kHidden}, communicator);
    const RowParallelLinear down(reader, {"down", kHidden, kOut}, communicator);
    EXPECT_TRUE(reader.Finish().ok());
    EXPECT_EQ(up.local_out_features(), kHidden / communicator.size());
    EXPECT_EQ(down.local_in_features(), kHidden / communicator.size());
    ThreadPool pool(1);
    const ForwardContext context = {.kernels = {.stream = Stream::Cpu(pool)},
                                    .communicator = &communicator};
    std::vector<float> hidden(static_cast<size_t>(kRows * up.local_out_features()));
    std::vector<float> y(kRows * kOut);
    const MatrixView hidden_view = ContiguousMatrix(hidden.data(), kRows, up.local_out_features());
    EXPECT_TRUE(up.Forward(ContiguousMatrix(x_.data(), kRows, kIn), hidden_view, context).ok());
    EXPECT_TRUE(down.Forward(hidden_view, ContiguousMatrix(y.data(), kRows, kOut), context).ok());
    return y;
  }

  std::vector<float> Reference() const {
    std::vector<float> y;
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t o = 0; o < kOut; ++o) {
        double sum = down_bias_[static_cast<size_t>(o)];
        for (int64_t h = 0; h < kHidden; ++h) {
          double unit = up_bias_[static_cast<size_t>(h)];
          for (int64_t i = 0; i < kIn; ++i) {
            unit += double{x_[static_cast<size_t>(r * kIn + i)]} *
                    up_weight_[static_cast<size_t>(h * kIn + i)];
          }
          sum += unit * down_weight_[static_cast<size_t>(o * kHidden + h)];
        }
        y.push_back(static_cast<float>(sum));
      }
    }
    return y;
  }

  std::string directory_;
  std::vector<float> up_weight_, up_bias_, down_weight_, down_bias_, x_;
  std::unique_ptr<TensorTable> table_;
};

// The same weights under two names, and under one.
TEST_F(LinearTest, AGroupReadsMergedAndSeparateLayers) {
  const int64_t half = kHidden / 2;
  const auto part = [](std::vector<float>& values, int64_t begin, const Shape& shape) {
    return WeightView{.data = values.data() + begin, .dtype = DType::kF32, .shape = shape};
  };
  const std::string separate = directory_ + "/separate";
  std::filesystem::create_directories(separate);
  ASSERT_TRUE(WriteTensorFile(separate + "/model.safetensors",
                              {{"a.weight", part(up_weight_, 0, {half, kIn})},
                               {"a.bias", part(up_bias_, 0, {half})},
                               {"b.weight", part(up_weight_, half * kIn, {half, kIn})},
                               {"b.bias", part(up_bias_, half, {half})}})
                  .ok());
  const auto outputs = [&](const TensorTable& table, const comm::Communicator& rank,
                           int64_t first) {
    WeightReader reader(table);
    const ColumnParallelGroup group(
        reader,
        {.names = {"a", "b"}, .merged_name = "up", .in_features = kIn, .out_features = half}, rank);
    EXPECT_EQ(reader.Finish().ok(), true);
    ThreadPool pool(1);
    const int64_t cols = (2 - first) * group.local_out_features();
    std::vector<float> y(static_cast<size_t>(kRows * cols));
    EXPECT_TRUE(group
                    .Forward(ContiguousMatrix(x_.data(), kRows, kIn),
                             ContiguousMatrix(y.data(), kRows, cols), first, /*packed=*/true,
                             {.kernels = {.stream = Stream::Cpu(pool)}, .communicator = &rank})
                    .ok());
    return y;
  };
  auto table = TensorTable::Open(separate, "model", "model");
  ASSERT_TRUE(table.ok()) << table.error().Message();
  RankGroup ranks(2);
  ranks.Run([&](const comm::Communicator& rank) {
    for (const int64_t first : {0, 1}) {
      EXPECT_EQ(outputs(*table_, rank, first), outputs(*table, rank, first)) << first;
    }
  });
  const comm::SingleRank single;
  EXPECT_EQ(outputs(*table_, single, 0), outputs(*table, single, 0));
  EXPECT_NE(outputs(*table_, single, 1), outputs(*table_, single, 0));
}

TEST_F(LinearTest, OneRankComputesTheWholeProduct) {
  EXPECT_EQ(RunPair(comm::SingleRank()), Reference());
}

TEST_F(LinearTest, TwoRanksShareItAndAddTheBiasOnce) {
  RankGroup group(2);
  std::vector<std::vector<float>> y(2);
  group.Run(
      [&](const comm::Communicator& rank) { y[static_cast<size_t>(rank.rank())] = RunPair(rank); });
  EXPECT_EQ(y[0], Reference());
  EXPECT_EQ(y[1], y[0]);
}

TEST_F(LinearTest, ReplicatedLayerComputesAPrefixOfItsOutputs) {
  WeightReader reader(*table_);
  const ReplicatedLinear up(reader, {"up", kIn, kHidden});
  ASSERT_TRUE(reader.Finish().ok());
  ThreadPool pool(1);
  const ForwardContext context = {.kernels = {.stream = Stream::Cpu(pool)}};
  std::vector<float> whole(kRows * kHidden), part(kRows * kHidden, -1.0f);
  const MatrixView x = ContiguousMatrix(x_.data(), kRows, kIn);
  const MatrixView part_view = ContiguousMatrix(part.data(), kRows, kHidden);
  ASSERT_TRUE(up.Forward(x, ContiguousMatrix(whole.data(), kRows, kHidden), context).ok());
  ASSERT_TRUE(up.Forward(x, part_view.Cols(0, 3), context).ok());
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kHidden; ++c) {
      const auto i = static_cast<size_t>(r * kHidden + c);
      EXPECT_EQ(part[i], c < 3 ? whole[i] : -1.0f);
    }
  }
}

TEST_F(LinearTest, MissingTensorsAreNamed) {
  WeightReader reader(*table_);
  const ReplicatedLinear absent(reader, {"sideways", kIn, kHidden});
  const ReplicatedLinear misshapen(reader, {"up", kIn + 1, kHidden});
  const Status status = reader.Finish();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().Message().find("sideways.weight"), std::string::npos);
  EXPECT_NE(status.error().Message().find("up.weight"), std::string::npos);
}

}  // namespace
}  // namespace segue::model
