// Normalisation on the GPU: against float64, against the reference on the host, and the fused
// kernels against the plain ones.
#include "gpu/rows_rig.h"
#include "kernels/gate_residual.h"
#include "kernels/layer_norm.h"
#include "kernels/modulated_norm.h"
#include "kernels/rms_norm.h"

namespace segue::kernels {
namespace {

constexpr float kEps = 1e-6f;

// Random rows, some of them far from 0 and some much larger than the rest.
Values RandomRows(int64_t rows, int64_t cols, uint32_t seed) {
  Values values = RandomValues(rows, cols, seed);
  for (int64_t row = 0; row < rows; ++row) {
    const float scale = row % 3 == 1 ? 300.0f : 1.0f;
    const float center = row % 4 == 2 ? 5.0f : 0.0f;
    for (int64_t i = 0; i < cols; ++i) {
      values.Row(row)[i] = RoundToBF16(values.Row(row)[i] * scale + center);
    }
    if (row % 5 == 0 && cols > 3) values.Row(row)[3] = 2048.0f;
  }
  return values;
}

struct Statistics {
  double mean = 0;
  double inverse = 0;
};
Statistics RowStatistics(const float* x, int64_t cols, bool centered) {
  Statistics statistics;
  for (int64_t i = 0; i < cols; ++i) statistics.mean += centered ? x[i] / double(cols) : 0.0;
  double squares = 0;
  for (int64_t i = 0; i < cols; ++i) {
    squares += (x[i] - statistics.mean) * (x[i] - statistics.mean);
  }
  statistics.inverse = 1.0 / std::sqrt(squares / double(cols) + double{kEps});
  return statistics;
}

constexpr int64_t kWidths[] = {1, 7, 8, 64, 250, 256, 264, 3072, 4096, 4104, 8192, 8200};

class RowsNormsGpu : public testing::Test {
 protected:
  // Norm of rows of `cols`; an index table of 3 rows.
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }

  ThreadPool pool_{2};
  Context on_host_{.stream = Stream::Cpu(pool_)};
};

TEST_F(RowsNormsGpu, LayerNormAgainstFloat64AndTheHost) {
  for (const int64_t cols : kWidths) {
    const Values x = RandomRows(13, cols, 1);
    Values table = RandomValues(3, 2 * cols, 2);  // scale | shift
    const std::vector<int32_t> index = RandomIndex(13, 3, 3);
    const DeviceArray<int32_t> device_index(index);
    const DeviceMatrix device_x(x, 8);
    const DeviceMatrix device_table(table, 0);
    std::vector<double> want;
    for (int64_t row = 0; row < x.rows; ++row) {
      const Statistics statistics = RowStatistics(x.Row(row), cols, true);
      const float* scale = table.Row(index[row]);
      for (int64_t i = 0; i < cols; ++i) {
        want.push_back((x.Row(row)[i] - statistics.mean) * statistics.inverse * (1.0 + scale[i]) +
                       scale[cols + i]);
      }
    }
    for (const Rounding rounding : kRoundings) {
      std::vector<std::vector<uint16_t>> bits;
      Values got;
      for (const bool reference : {false, true}) {
        const DeviceMatrix y = DeviceMatrix::Poisoned(13, cols, 16);
        RowTable scale = device_table.Table(device_index.data());
        RowTable shift = scale;
        shift.data = static_cast<const uint16_t*>(scale.data) + cols;
        ASSERT_EQ(Text(LayerNorm({.x = device_x.View(),
                                  .y = y.View(),
                                  .eps = kEps,
                                  .scale = scale,
                                  .shift = shift,
                                  .rounding = rounding},
                                 OnGpu(reference))),
                  "");
        ASSERT_EQ(Finish(), "");
        EXPECT_TRUE(y.ChangedOnly(0, cols));
        bits.push_back(y.Bits());
        got = y.Get();
      }
      EXPECT_EQ(bits[0], bits[1]) << cols;
      // Absolute: where shift cancels the rest. In steps there are three roundings more.
      const double worst = rounding == Rounding::kNone ? WorstError(got, want, kHalfUlp, 1e-4)
                                                       : WorstError(got, want, 4 * kHalfUlp, 0.1);
      EXPECT_LE(worst, 1) << cols;
      if (rounding == Rounding::kNone) continue;
      Values host = x;
      ASSERT_TRUE(LayerNorm({.x = host.View(),
                             .y = host.View(),
                             .eps = kEps,
                             .scale = {.data = table.data.data(),
                                       .rows = 3,
                                       .stride = 2 * cols,
                                       .index = index.data()},
                             .shift = {.data = table.data.data() + cols,
                                       .rows = 3,
                                       .stride = 2 * cols,
                                       .index = index.data()},
                             .rounding = rounding},
                            on_host_)
                      .ok());
      // Sums in another order move a rounding of LN(x) now and then, by a place, which the
      // addition of the shift can turn into more places of a small result.
      const Distance distance = Compare(got, host);
      EXPECT_LE(distance.differ, 2 + distance.count / 500) << cols;
    }
  }
}

TEST_F(RowsNormsGpu, LayerNormWithoutModulation) {
  for (const int64_t cols : {5, 384, 1000}) {
    const Values x = RandomRows(9, cols, 4);
    const DeviceMatrix y(x, 3);
    ASSERT_EQ(Text(LayerNorm({.x = y.View(), .y = y.View()}, OnGpu())), "");
    ASSERT_EQ(Finish(), "");
    EXPECT_TRUE(y.ChangedOnly(0, cols));
    std::vector<double> want;
    for (int64_t row = 0; row < x.rows; ++row) {
      const Statistics statistics = RowStatistics(x.Row(row), cols, true);
      for (int64_t i = 0; i < cols; ++i) {
        want.push_back((x.Row(row)[i] - statistics.mean) * statistics.inverse);
      }
    }
    EXPECT_LE(WorstError(y.Get(), want, kHalfUlp, 1e-5), 1);
  }
}

TEST_F(RowsNormsGpu, RmsNormOfEveryWeightType) {
  for (const int64_t cols : kWidths) {
    const Values x = RandomRows(9, cols, 5);
    const Values weight = RandomValues(1, cols, 6);
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      std::vector<uint16_t> halves;
      std::vector<double> scale;
      for (const float value : weight.data) {
        halves.push_back(dtype == DType::kF16 ? FloatToF16(value) : FloatToBF16(value));
        scale.push_back(dtype == DType::kF16 ? F16ToFloat(halves.back()) : value);
      }
      const DeviceArray<uint16_t> device_halves(halves);
      const DeviceArray<float> device_floats(weight.data);
      const WeightView view = {.data = dtype == DType::kF32
                                           ? static_cast<const void*>(device_floats.data())
                                           : device_halves.data(),
                               .dtype = dtype,
                               .shape = {cols}};
      std::vector<double> want;
      for (int64_t row = 0; row < x.rows; ++row) {
        const Statistics statistics = RowStatistics(x.Row(row), cols, false);
        for (int64_t i = 0; i < cols; ++i) {
          want.push_back(x.Row(row)[i] * statistics.inverse * scale[i]);
        }
      }
      for (const Rounding rounding : kRoundings) {
        std::vector<std::vector<uint16_t>> bits;
        for (const bool reference : {false, true}) {
          const DeviceMatrix y(x, 8);
          ASSERT_EQ(
              Text(RmsNorm(
                  {.x = y.View(), .weight = view, .y = y.View(), .eps = kEps, .rounding = rounding},
                  OnGpu(reference))),
              "");
          ASSERT_EQ(Finish(), "");
          EXPECT_TRUE(y.ChangedOnly(0, cols));
          bits.push_back(y.Bits());
          EXPECT_LE(WorstError(y.Get(), want, kHalfUlp, 1e-30),
                    rounding == Rounding::kNone ? 1 : 2.02)
              << cols << " " << DTypeName(dtype);
        }
        EXPECT_EQ(bits[0], bits[1]) << cols;
      }
    }
  }
}

// Operands of ModulatedNorm's two streams, and its results.
struct NormCase {
  int64_t rows[2];
  int64_t cols;
  bool gated[2] = {true, true};
  bool y_is_branch = false;
};

class NormOperands {
 public:
  NormOperands(const NormCase& shape, const Values (&h)[2], const Values (&branch)[2])
      : shape_(shape),
        table_(RandomValues(5, 3 * shape.cols, 20), 8),
        index_{DeviceArray<int32_t>(RandomIndex(shape.rows[0], 5, 21)),
               DeviceArray<int32_t>(RandomIndex(shape.rows[1], 5, 22))},
        h_{DeviceMatrix(h[0], 0), DeviceMatrix(h[1], 24)},
        branch_{DeviceMatrix(branch[0], 8), DeviceMatrix(branch[1], 0)},
        y_{DeviceMatrix::Poisoned(shape.rows[0], shape.cols, 16),
           DeviceMatrix::Poisoned(shape.rows[1], shape.cols, 0)} {}

  std::string Run(Rounding rounding, const Context& context) {
    std::vector<ModulatedNormStream> streams;
    for (int i = 0; i < 2; ++i) {
      const auto slice = [&](int64_t part) {
        RowTable table = table_.Table(index_[i].data());
        table.data = static_cast<const uint16_t*>(table.data) + part * shape_.cols;
        return table;
      };
      ModulatedNormStream stream = {.h = h_[i].View(),
                                    .scale = slice(1),
                                    .shift = slice(2),
                                    .y = shape_.y_is_branch ? branch_[i].View() : y_[i].View()};
      if (shape_.gated[i]) {
        stream.branch = branch_[i].View();
        stream.gate = slice(0);
      }
      streams.push_back(stream);
    }
    const Status status =
        ModulatedNorm({.streams = streams, .eps = kEps, .rounding = rounding}, context);
    return status.ok() ? Finish() : Text(status);
  }

  std::vector<std::vector<uint16_t>> Bits() const {
    return {h_[0].Bits(),      h_[1].Bits(), branch_[0].Bits(),
            branch_[1].Bits(), y_[0].Bits(), y_[1].Bits()};
  }
  const DeviceMatrix& h(int stream) const { return h_[stream]; }
  const DeviceMatrix& y(int stream) const {
    return shape_.y_is_branch ? branch_[stream] : y_[stream];
  }

 private:
  NormCase shape_;
  DeviceMatrix table_;
  DeviceArray<int32_t> index_[2];
  DeviceMatrix h_[2];
  DeviceMatrix branch_[2];
  DeviceMatrix y_[2];
};

TEST_F(RowsNormsGpu, FusedIsComposed) {
  const NormCase cases[] = {{{65, 5}, 3072},
                            {{3, 0}, 3072},
                            {{0, 2}, 64, {true, true}, true},
                            {{1, 1}, 8, {false, true}},
                            {{7, 9}, 1000, {true, false}, true},
                            {{2, 3}, 4096},
                            {{5, 3}, 4104, {true, true}, true},
                            {{3, 2}, 8192, {false, false}},
                            {{2, 2}, 8200},
                            {{4, 2}, 60},
                            {{0, 0}, 64}};
  for (const NormCase& shape : cases) {
    const Values h[2] = {RandomRows(shape.rows[0], shape.cols, 7),
                         RandomRows(shape.rows[1], shape.cols, 8)};
    const Values branch[2] = {RandomRows(shape.rows[0], shape.cols, 9),
                              RandomRows(shape.rows[1], shape.cols, 10)};
    for (const Rounding rounding : kRoundings) {
      NormOperands fused(shape, h, branch);
      NormOperands composed(shape, h, branch);
      KernelLog log;
      Context context = OnGpu();
      context.log = &log;
      ASSERT_EQ(fused.Run(rounding, context), "");
      ASSERT_EQ(composed.Run(rounding, OnGpu(true)), "");
      EXPECT_EQ(fused.Bits(), composed.Bits()) << shape.rows[0] << " x " << shape.cols;
      for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE(fused.h(i).ChangedOnly(0, shape.cols));
        EXPECT_TRUE(fused.y(i).ChangedOnly(0, shape.cols));
      }
      const auto entry = log.Snapshot().at("modulated_norm").front();
      EXPECT_EQ(entry.kernel, shape.cols % 8 == 0 && shape.cols <= 8192 ? "cuda" : "composed");
    }
  }
}

// A row's bytes are its own: not those of other rows, their number, or what they hold.
TEST_F(RowsNormsGpu, RowsDoNotTouchEachOther) {
  const NormCase shape = {{40, 6}, 3072};
  const Values h[2] = {RandomRows(40, 3072, 11), RandomRows(6, 3072, 12)};
  const Values branch[2] = {RandomRows(40, 3072, 13), RandomRows(6, 3072, 14)};
  NormOperands all(shape, h, branch);
  ASSERT_EQ(all.Run(Rounding::kBF16, OnGpu()), "");
  const Values want = all.y(0).Get();

  Values poisoned = h[0];
  for (int64_t row = 0; row < 40; row += 2) {
    for (int64_t i = 0; i < 3072; ++i) poisoned.Row(row)[i] = i % 2 == 0 ? NAN : INFINITY;
  }
  NormOperands half(shape, {poisoned, h[1]}, branch);
  ASSERT_EQ(half.Run(Rounding::kBF16, OnGpu()), "");
  const Values got = half.y(0).Get();
  for (int64_t row = 1; row < 40; row += 2) {
    EXPECT_TRUE(std::equal(got.Row(row), got.Row(row) + 3072, want.Row(row))) << row;
    EXPECT_TRUE(std::isnan(got.Row(row - 1)[0]));
  }

  const auto first = [](const Values& values, int64_t rows) {
    return Values{.data = {values.data.begin(), values.data.begin() + rows * values.cols},
                  .rows = rows,
                  .cols = values.cols};
  };
  NormOperands alone({{1, 0}, 3072}, {first(h[0], 1), first(h[1], 0)},
                     {first(branch[0], 1), first(branch[1], 0)});
  ASSERT_EQ(alone.Run(Rounding::kBF16, OnGpu()), "");
  const Values one = alone.y(0).Get();
  EXPECT_TRUE(std::equal(one.data.begin(), one.data.end(), want.Row(0)));
}

}  // namespace
}  // namespace segue::kernels
