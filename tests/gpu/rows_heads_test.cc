// Query and key heads on the GPU: against float64, against the reference on the host, and the fused
// kernel against the plain one.
#include "gpu/rows_rig.h"
#include "kernels/heads.h"
#include "kernels/rope.h"

namespace segue::kernels {
namespace {

constexpr float kEps = 1e-6f;
constexpr int64_t kPositions = 50;

std::vector<float> Angles(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> angle(-3.2f, 3.2f);
  std::vector<float> angles;
  for (int64_t i = 0; i < count; ++i) angles.push_back(angle(engine));
  return angles;
}

// Cosines and sines of random angles, on both sides.
class RopeOperands {
 public:
  explicit RopeOperands(int32_t head_dim)
      : cos_(Angles(kPositions * head_dim / 2, 1)),
        sin_(cos_),
        device_cos_(Turned(&cos_, [](float x) { return std::cos(x); })),
        device_sin_(Turned(&sin_, [](float x) { return std::sin(x); })) {}

  RopeTable OnHost(const int32_t* index) const {
    return {.cos = cos_.data(), .sin = sin_.data(), .positions = kPositions, .index = index};
  }
  RopeTable OnDevice(const int32_t* index) const {
    return {.cos = device_cos_.data(),
            .sin = device_sin_.data(),
            .positions = kPositions,
            .index = index};
  }

 private:
  template <class Function>
  static const std::vector<float>& Turned(std::vector<float>* angles, Function function) {
    for (float& angle : *angles) angle = function(angle);
    return *angles;
  }

  std::vector<float> cos_;
  std::vector<float> sin_;
  DeviceArray<float> device_cos_;
  DeviceArray<float> device_sin_;
};

// A bfloat16 weight on both sides.
class HeadWeight {
 public:
  HeadWeight(int64_t count, uint32_t seed)
      : values_(RandomValues(1, count, seed, 0.3f, 1.0f)), bits_(Bits()), device_(bits_) {}
  WeightView OnHost() const {
    return {.data = bits_.data(), .dtype = DType::kBF16, .shape = {values_.cols}};
  }
  WeightView OnDevice() const {
    return {.data = device_.data(), .dtype = DType::kBF16, .shape = {values_.cols}};
  }
  double At(int64_t i) const { return values_.data[i]; }

 private:
  std::vector<uint16_t> Bits() const {
    std::vector<uint16_t> bits;
    for (const float value : values_.data) bits.push_back(FloatToBF16(value));
    return bits;
  }
  Values values_;
  std::vector<uint16_t> bits_;
  DeviceArray<uint16_t> device_;
};

class RowsHeadsGpu : public testing::Test {
 protected:
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }

  ThreadPool pool_{2};
  Context on_host_{.stream = Stream::Cpu(pool_)};
};

TEST_F(RowsHeadsGpu, QkNormRopeAgainstFloat64AndTheHost) {
  for (const int32_t dim : {2, 8, 40, 64, 96, 128, 256, 320}) {
    constexpr int64_t kRows = 7;
    constexpr int64_t kHeads = 3;
    const Values x = RandomValues(kRows, kHeads * dim, 2, 4.0f);
    const HeadWeight weight(dim, 3);
    const RopeOperands rope(dim);
    const std::vector<int32_t> index = RandomIndex(kRows, kPositions, 4);
    const DeviceArray<int32_t> device_index(index);
    std::vector<double> want;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t head = 0; head < kHeads; ++head) {
        const float* from = x.Row(row) + head * dim;
        double squares = 0;
        for (int32_t i = 0; i < dim; ++i) squares += double{from[i]} * from[i];
        const double inverse = 1.0 / std::sqrt(squares / dim + double{kEps});
        for (int32_t k = 0; k < dim / 2; ++k) {
          const double a = from[2 * k] * inverse * weight.At(2 * k);
          const double b = from[2 * k + 1] * inverse * weight.At(2 * k + 1);
          const double cos = rope.OnHost(nullptr).cos[index[row] * dim / 2 + k];
          const double sin = rope.OnHost(nullptr).sin[index[row] * dim / 2 + k];
          want.push_back(a * cos - b * sin);
          want.push_back(a * sin + b * cos);
        }
      }
    }
    for (const Rounding rounding : kRoundings) {
      const DeviceMatrix device_x(x, 2 * kHeads * dim);
      ASSERT_EQ(Text(QkNormRope({.x = device_x.View(),
                                 .head_dim = dim,
                                 .weight = weight.OnDevice(),
                                 .eps = kEps,
                                 .rope = rope.OnDevice(device_index.data()),
                                 .rounding = rounding},
                                OnGpu())),
                "");
      ASSERT_EQ(Finish(), "");
      EXPECT_TRUE(device_x.ChangedOnly(0, kHeads * dim));
      // Absolute: where the two products cancel. In steps both were rounded before.
      EXPECT_LE(
          WorstError(device_x.Get(), want, kHalfUlp, rounding == Rounding::kNone ? 1e-6 : 0.05), 1)
          << dim;
      if (rounding == Rounding::kNone) continue;
      Values host = x;
      ASSERT_TRUE(QkNormRope({.x = host.View(),
                              .head_dim = dim,
                              .weight = weight.OnHost(),
                              .eps = kEps,
                              .rope = rope.OnHost(index.data()),
                              .rounding = rounding},
                             on_host_)
                      .ok());
      // The sum's order moves a rounding of x / rms now and then.
      const Distance distance = Compare(device_x.Get(), host);
      EXPECT_LE(distance.differ, 2 + distance.count / 500) << dim;
    }
  }
}

// The rotation alone has no sums: the bytes of the host. Without an index row m has position m.
TEST_F(RowsHeadsGpu, RotationAloneIsTheHosts) {
  for (const Rounding rounding : kRoundings) {
    for (const int32_t dim : {8, 16, 64, 128}) {
      const Values x = RandomValues(11, 2 * dim, 5);
      const RopeOperands rope(dim);
      const DeviceMatrix adjacent(x, 8);
      ASSERT_EQ(Text(QkNormRope({.x = adjacent.View(),
                                 .head_dim = dim,
                                 .rope = rope.OnDevice(nullptr),
                                 .rounding = rounding},
                                OnGpu())),
                "");
      Values host = x;
      ASSERT_TRUE(QkNormRope({.x = host.View(),
                              .head_dim = dim,
                              .rope = rope.OnHost(nullptr),
                              .rounding = rounding},
                             on_host_)
                      .ok());
      EXPECT_EQ(Compare(adjacent.Get(), host).differ, 0);
      for (const int64_t offset : {0, 1}) {
        std::vector<std::vector<uint16_t>> bits;
        for (const bool reference : {false, true}) {
          const DeviceMatrix half(x, 8, offset);
          ASSERT_EQ(Text(RopeHalf({.x = half.View(),
                                   .head_dim = dim,
                                   .rope = rope.OnDevice(nullptr),
                                   .rounding = rounding},
                                  OnGpu(reference))),
                    "");
          ASSERT_EQ(Finish(), "");
          EXPECT_TRUE(half.ChangedOnly(0, 2 * dim));
          bits.push_back(half.Bits());
          Values host_half = x;
          ASSERT_TRUE(RopeHalf({.x = host_half.View(),
                                .head_dim = dim,
                                .rope = rope.OnHost(nullptr),
                                .rounding = rounding},
                               on_host_)
                          .ok());
          EXPECT_EQ(Compare(half.Get(), host_half).differ, 0);
        }
        EXPECT_EQ(bits[0], bits[1]);
      }
    }
  }
}

struct HeadsCase {
  int64_t rows[2];
  int64_t heads;
  int32_t dim;
  bool text_queries = true;
};

// q | k | v of both streams.
class HeadsOperands {
 public:
  explicit HeadsOperands(const HeadsCase& shape)
      : shape_(shape),
        width_(shape.heads * shape.dim),
        rope_(shape.dim),
        weights_{HeadWeight(shape.dim, 10), HeadWeight(shape.dim, 11), HeadWeight(shape.dim, 12),
                 HeadWeight(shape.dim, 13)},
        position_{DeviceArray<int32_t>(RandomIndex(shape.rows[0], kPositions, 14)),
                  DeviceArray<int32_t>(RandomIndex(shape.rows[1], kPositions, 15))},
        fused_{DeviceMatrix(RandomValues(shape.rows[0], 3 * width_, 16), 0),
               DeviceMatrix(RandomValues(shape.rows[1], 3 * width_, 17), 8)} {}

  Status Enqueue(Rounding rounding, const Context& context) {
    std::vector<HeadsStream> streams;
    for (int i = 0; i < 2; ++i) {
      HeadsStream stream = {.k = fused_[i].View().Cols(width_, width_),
                            .k_weight = weights_[2 * i + 1].OnDevice(),
                            .position = position_[i].data()};
      if (i == 0 || shape_.text_queries) {
        stream.q = fused_[i].View().Cols(0, width_);
        stream.q_weight = weights_[2 * i].OnDevice();
      }
      streams.push_back(stream);
    }
    return PrepareHeads({.streams = streams,
                         .head_dim = shape_.dim,
                         .eps = kEps,
                         .rope = rope_.OnDevice(nullptr),
                         .rounding = rounding},
                        context);
  }
  std::string Run(Rounding rounding, const Context& context) {
    const Status status = Enqueue(rounding, context);
    return status.ok() ? Finish() : Text(status);
  }
  const DeviceMatrix& fused(int stream) const { return fused_[stream]; }
  DeviceArray<int32_t>& position(int stream) { return position_[stream]; }
  void Reset() {
    for (int i = 0; i < 2; ++i) {
      fused_[i].Set(RandomValues(shape_.rows[i], 3 * width_, 16 + static_cast<uint32_t>(i)));
    }
  }

 private:
  HeadsCase shape_;
  int64_t width_;
  RopeOperands rope_;
  HeadWeight weights_[4];
  DeviceArray<int32_t> position_[2];
  DeviceMatrix fused_[2];
};

TEST_F(RowsHeadsGpu, FusedIsComposedAndValuesStay) {
  const HeadsCase cases[] = {{{70, 9}, 24, 128}, {{5, 3}, 24, 128, false}, {{0, 4}, 4, 64},
                             {{3, 0}, 5, 40},    {{1, 1}, 1, 8},           {{9, 2}, 3, 256},
                             {{4, 4}, 28, 128},  {{2, 3}, 7, 96, false},   {{6, 1}, 40, 16},
                             {{2, 2}, 2, 320},   {{2, 2}, 2, 12},          {{0, 0}, 2, 64}};
  for (const HeadsCase& shape : cases) {
    for (const Rounding rounding : kRoundings) {
      HeadsOperands fused(shape);
      HeadsOperands composed(shape);
      KernelLog log;
      Context context = OnGpu();
      context.log = &log;
      ASSERT_EQ(fused.Run(rounding, context), "");
      ASSERT_EQ(composed.Run(rounding, OnGpu(true)), "");
      const int64_t width = shape.heads * shape.dim;
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(fused.fused(i).Bits(), composed.fused(i).Bits()) << shape.dim;
        const int64_t first = i == 0 || shape.text_queries ? 0 : width;
        EXPECT_TRUE(fused.fused(i).ChangedOnly(first, 2 * width - first));
      }
      const auto entry = log.Snapshot().at("prepare_heads").front();
      EXPECT_EQ(entry.kernel, shape.dim % 8 == 0 && shape.dim <= 256 ? "cuda" : "composed");
    }
  }
}

TEST_F(RowsHeadsGpu, PositionsOutOfRangeAreTheNearest) {
  HeadsOperands wild({{4, 0}, 2, 128});
  HeadsOperands tame({{4, 0}, 2, 128});
  const auto last = static_cast<int32_t>(kPositions - 1);
  wild.position(0).Set({-1, INT32_MIN, last + 1, INT32_MAX});
  tame.position(0).Set({0, 0, last, last});
  ASSERT_EQ(wild.Run(Rounding::kBF16, OnGpu()), "");
  ASSERT_EQ(tame.Run(Rounding::kBF16, OnGpu()), "");
  EXPECT_EQ(wild.fused(0).Bits(), tame.fused(0).Bits());
}

// Captured once, replayed with other positions: an eager call's bytes.
TEST_F(RowsHeadsGpu, GraphReplaysWithOtherPositions) {
  const HeadsCase shape = {{33, 5}, 24, 128};
  HeadsOperands captured(shape);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(captured.Run(Rounding::kBF16, OnGpu()), "");  // loads the code
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  const Status enqueued = captured.Enqueue(Rounding::kBF16, {.stream = Stream::Cuda(stream)});
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(Text(enqueued), "");
  size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 1u);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (uint32_t replay = 0; replay < 3; ++replay) {
    HeadsOperands eager(shape);
    captured.Reset();
    for (int i = 0; i < 2; ++i) {
      const auto position = RandomIndex(shape.rows[i], kPositions, 30 + replay);
      captured.position(i).Set(position);
      eager.position(i).Set(position);
    }
    ASSERT_EQ(eager.Run(Rounding::kBF16, OnGpu()), "");
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    ASSERT_EQ(Finish(), "");
    for (int i = 0; i < 2; ++i) EXPECT_EQ(captured.fused(i).Bits(), eager.fused(i).Bits());
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace segue::kernels
