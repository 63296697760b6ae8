// What is done to each element alone, on the GPU: against float64, against the reference on the
// host, and the fast kernels against the plain ones.
#include "gpu/rows_rig.h"
#include "kernels/activation.h"
#include "kernels/add.h"
#include "kernels/euler_step.h"
#include "kernels/gate_residual.h"

namespace segue::kernels {
namespace {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double Apply(Activation activation, double x) {
  if (activation == Activation::kSilu) return x * Sigmoid(x);
  if (activation == Activation::kNone) return x;
  return x * Sigmoid(2.0 * std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
}

// Every finite bfloat16.
Values AllValues() {
  Values values = {.rows = 255, .cols = 256};
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7f80) != 0x7f80) values.data.push_back(BF16ToFloat(static_cast<uint16_t>(bits)));
  }
  return values;
}

class RowsElementwiseGpu : public testing::Test {
 protected:
  ThreadPool pool_{2};
  Context on_host_{.stream = Stream::Cpu(pool_)};
};

TEST_F(RowsElementwiseGpu, ActivationsOfEveryValue) {
  SEGUE_SKIP_WITHOUT_GPU();
  const Values all = AllValues();
  ASSERT_EQ(static_cast<int64_t>(all.data.size()), all.rows * all.cols);
  for (const Activation activation :
       {Activation::kNone, Activation::kGeluTanh, Activation::kSilu}) {
    std::vector<double> want;
    for (const float x : all.data) want.push_back(Apply(activation, x));
    Values host = all;
    ASSERT_TRUE(Activate({.x = host.View(),
                          .y = host.View(),
                          .activation = activation,
                          .rounding = Rounding::kBF16},
                         on_host_)
                    .ok());
    for (const bool reference : {false, true}) {
      DeviceMatrix x(all, 0);
      ASSERT_EQ(Text(Activate({.x = x.View(), .y = x.View(), .activation = activation},
                              OnGpu(reference))),
                "");
      ASSERT_EQ(Finish(), "");
      Values got = x.Get();
      // Below 1.1e-36 zero is allowed (row_math.h).
      EXPECT_LE(WorstError(got, want, kHalfUlp, 1.1e-36), 1.02);
      for (size_t i = 0; i < got.data.size(); ++i) {
        if (got.data[i] == 0.0f && std::abs(host.data[i]) < 1.1e-36f) got.data[i] = host.data[i];
      }
      const Distance distance = Compare(got, host);
      EXPECT_LE(distance.differ, 16) << static_cast<int>(activation);
      EXPECT_LE(distance.worst, 1);
    }
  }
}

TEST_F(RowsElementwiseGpu, ActivationsOfWhatIsNoNumber) {
  SEGUE_SKIP_WITHOUT_GPU();
  Values odd = RandomValues(1, 8, 1);
  odd.data = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 3e38f, -3e38f, 1e-39f};
  for (float& value : odd.data) value = RoundToBF16(value);
  for (const Activation activation : {Activation::kGeluTanh, Activation::kSilu}) {
    for (const bool reference : {false, true}) {
      DeviceMatrix x(odd, 0);
      ASSERT_EQ(Text(Activate({.x = x.View(), .y = x.View(), .activation = activation},
                              OnGpu(reference))),
                "");
      ASSERT_EQ(Finish(), "");
      const Values got = x.Get();
      EXPECT_EQ(got.data[0], INFINITY);
      EXPECT_TRUE(std::isnan(got.data[1]));  // -infinity x 0, as in torch
      EXPECT_TRUE(std::isnan(got.data[2]));
      EXPECT_EQ(got.data[3], 0.0f);
      EXPECT_EQ(got.data[5], odd.data[5]);
      EXPECT_EQ(got.data[6], 0.0f);
    }
  }
}

// Rows, columns, and gaps of every kind; an offset of 1 leaves only the plain kernel.
struct Layout {
  int64_t rows;
  int64_t cols;
  int64_t padding;
  int64_t offset = 0;
};
constexpr Layout kLayouts[] = {{0, 64, 0},    {1, 8, 0},      {1, 12288, 0},    {3, 8, 8},
                               {7, 264, 24},  {129, 1000, 0}, {33, 3072, 6144}, {5, 40, 3, 0},
                               {4, 64, 0, 1}, {2, 7, 2},      {1030, 520, 8}};

TEST_F(RowsElementwiseGpu, FastActivationsArePlainOnes) {
  SEGUE_SKIP_WITHOUT_GPU();
  for (const Layout& layout : kLayouts) {
    for (const Activation activation :
         {Activation::kNone, Activation::kGeluTanh, Activation::kSilu}) {
      const Values values = RandomValues(layout.rows, layout.cols, 3, 3.0f);
      const DeviceMatrix x(values, layout.padding, layout.offset);
      std::vector<std::vector<uint16_t>> got;
      for (const bool reference : {false, true}) {
        const DeviceMatrix y =
            DeviceMatrix::Poisoned(layout.rows, layout.cols, layout.padding + 8, layout.offset);
        ASSERT_EQ(Text(Activate({.x = x.View(), .y = y.View(), .activation = activation},
                                OnGpu(reference))),
                  "");
        ASSERT_EQ(Finish(), "");
        EXPECT_TRUE(y.ChangedOnly(0, layout.cols));
        got.push_back(y.Bits());
      }
      EXPECT_EQ(got[0], got[1]) << layout.rows << " x " << layout.cols;
    }
  }
}

TEST_F(RowsElementwiseGpu, StreamsInOneLaunch) {
  SEGUE_SKIP_WITHOUT_GPU();
  for (const int64_t text_rows : {0, 1, 37}) {
    for (const int64_t image_rows : {0, 3, 130}) {
      const DeviceMatrix image(RandomValues(image_rows, 1536, 5), 0);
      const DeviceMatrix text(RandomValues(text_rows, 1536, 6), 512);
      std::vector<std::vector<uint16_t>> got;
      for (const bool reference : {false, true}) {
        const DeviceMatrix image_y = DeviceMatrix::Poisoned(image_rows, 1536, 8);
        const DeviceMatrix text_y = DeviceMatrix::Poisoned(text_rows, 1536, 0);
        const std::vector<ActivationParams> streams = {
            {.x = image.View(), .y = image_y.View(), .activation = Activation::kGeluTanh},
            {.x = text.View(), .y = text_y.View(), .activation = Activation::kGeluTanh}};
        KernelLog log;
        Context context = OnGpu(reference);
        context.log = &log;
        ASSERT_EQ(Text(ActivateStreams({.streams = streams}, context)), "");
        ASSERT_EQ(Finish(), "");
        const auto entry = log.Snapshot().at("activate_streams").front();
        EXPECT_EQ(entry.kernel, reference ? "composed" : "cuda");
        got.push_back(image_y.Bits());
        got.push_back(text_y.Bits());
      }
      EXPECT_EQ(got[0], got[2]);
      EXPECT_EQ(got[1], got[3]);
    }
  }
}

TEST_F(RowsElementwiseGpu, SiluMul) {
  SEGUE_SKIP_WITHOUT_GPU();
  for (const Layout& layout : kLayouts) {
    for (const Rounding rounding : kRoundings) {
      const Values gate = RandomValues(layout.rows, layout.cols, 7, 3.0f);
      const Values up = RandomValues(layout.rows, layout.cols, 8);
      const DeviceMatrix device_gate(gate, layout.padding, layout.offset);
      const DeviceMatrix device_up(up, layout.padding, layout.offset);
      std::vector<std::vector<uint16_t>> bits;
      Values got;
      for (const bool reference : {false, true}) {
        const DeviceMatrix y =
            DeviceMatrix::Poisoned(layout.rows, layout.cols, layout.padding, layout.offset);
        ASSERT_EQ(Text(SiluMul({.gate = device_gate.View(),
                                .up = device_up.View(),
                                .y = y.View(),
                                .rounding = rounding},
                               OnGpu(reference))),
                  "");
        ASSERT_EQ(Finish(), "");
        EXPECT_TRUE(y.ChangedOnly(0, layout.cols));
        bits.push_back(y.Bits());
        got = y.Get();
      }
      EXPECT_EQ(bits[0], bits[1]);
      std::vector<double> want;
      for (size_t i = 0; i < gate.data.size(); ++i) {
        want.push_back(Apply(Activation::kSilu, gate.data[i]) * up.data[i]);
      }
      // Two roundings in steps.
      EXPECT_LE(WorstError(got, want, kHalfUlp, 1e-37), rounding == Rounding::kNone ? 1 : 2.01);
      if (rounding == Rounding::kNone) continue;
      Values host = gate;
      Values host_up = up;
      ASSERT_TRUE(
          SiluMul(
              {.gate = host.View(), .up = host_up.View(), .y = host.View(), .rounding = rounding},
              on_host_)
              .ok());
      const Distance distance = Compare(got, host);
      EXPECT_LE(distance.differ, 2 + distance.count / 1000);
      EXPECT_LE(distance.worst, 2);
    }
  }
}

// No reduction and no elementary function: the bytes of the reference on the host.
TEST_F(RowsElementwiseGpu, AddGateAndEulerStep) {
  SEGUE_SKIP_WITHOUT_GPU();
  for (const Layout& layout : kLayouts) {
    const Values a = RandomValues(layout.rows, layout.cols, 9);
    const Values b = RandomValues(layout.rows, layout.cols, 10, 4.0f);
    const Values table = RandomValues(3, layout.cols, 11);
    const std::vector<int32_t> index = RandomIndex(layout.rows, 3, 12);
    const DeviceArray<int32_t> device_index(index);
    const DeviceMatrix device_table(table, 8);
    const DeviceMatrix device_a(a, layout.padding, layout.offset);
    for (const Rounding rounding : kRoundings) {
      DeviceMatrix sum = DeviceMatrix::Poisoned(layout.rows, layout.cols, layout.padding);
      DeviceMatrix gated(b, layout.padding, layout.offset);
      DeviceMatrix stepped(b, layout.padding);
      const float dt = -0.0373f;
      ASSERT_EQ(
          Text(Add(
              {.a = device_a.View(), .b = stepped.View(), .y = sum.View(), .rounding = rounding},
              OnGpu())),
          "");
      ASSERT_EQ(Text(GateResidual({.y = device_a.View(),
                                   .gate = device_table.Table(device_index.data()),
                                   .h = gated.View(),
                                   .rounding = rounding},
                                  OnGpu())),
                "");
      ASSERT_EQ(Text(EulerStep(
                    {.x = stepped.View(), .v = device_a.View(), .dt = dt, .rounding = rounding},
                    OnGpu())),
                "");
      ASSERT_EQ(Finish(), "");
      EXPECT_TRUE(sum.ChangedOnly(0, layout.cols));
      EXPECT_TRUE(gated.ChangedOnly(0, layout.cols));
      EXPECT_TRUE(stepped.ChangedOnly(0, layout.cols));
      Values host_a = a;
      Values host_sum = b;
      Values host_gated = b;
      Values host_stepped = b;
      Values host_table = table;
      ASSERT_TRUE(Add({.a = host_a.View(),
                       .b = host_sum.View(),
                       .y = host_sum.View(),
                       .rounding = rounding},
                      on_host_)
                      .ok());
      ASSERT_TRUE(GateResidual({.y = host_a.View(),
                                .gate = {.data = host_table.data.data(),
                                         .rows = 3,
                                         .stride = layout.cols,
                                         .index = index.data()},
                                .h = host_gated.View(),
                                .rounding = rounding},
                               on_host_)
                      .ok());
      ASSERT_TRUE(
          EulerStep({.x = host_stepped.View(), .v = host_a.View(), .dt = dt, .rounding = rounding},
                    on_host_)
              .ok());
      // Compare rounds what the host left in float32.
      EXPECT_EQ(Compare(sum.Get(), host_sum).differ, 0);
      EXPECT_EQ(Compare(gated.Get(), host_gated).differ, 0);
      EXPECT_EQ(Compare(stepped.Get(), host_stepped).differ, 0);
    }
  }
}

TEST_F(RowsElementwiseGpu, TableIndicesOutOfRangeAreTheNearestRow) {
  SEGUE_SKIP_WITHOUT_GPU();
  const Values h = RandomValues(4, 16, 13);
  const DeviceMatrix table(RandomValues(3, 16, 14), 0);
  const DeviceMatrix y(RandomValues(4, 16, 15), 0);
  const DeviceArray<int32_t> wild({-1, 3, INT32_MAX, INT32_MIN});
  const DeviceArray<int32_t> tame({0, 2, 2, 0});
  std::vector<std::vector<uint16_t>> got;
  for (const DeviceArray<int32_t>* index : {&wild, &tame}) {
    const DeviceMatrix out(h, 0);
    ASSERT_EQ(Text(GateResidual(
                  {.y = y.View(), .gate = table.Table(index->data()), .h = out.View()}, OnGpu())),
              "");
    ASSERT_EQ(Finish(), "");
    got.push_back(out.Bits());
  }
  EXPECT_EQ(got[0], got[1]);
}

}  // namespace
}  // namespace segue::kernels
