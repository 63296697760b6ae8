// The whole picture decoder on a GPU, against the same network in float32 on the host: as near as
// the host's rounding to bfloat16 in the reference's places, and the same bytes however it runs.
#include <cmath>
#include <thread>

#include "comm/communicator.h"
#include "device/gpu_graph.h"
#include "gpu/emoji_model.h"
#include "gpu/vae_rig.h"
#include "model/vae/decoder.h"
#include "model/weights/checkpoint.h"
#include "model/weights/weight_store.h"

namespace segue::model {
namespace {

using kernels::DeviceMatrix;
using kernels::Rounding;
using kernels::VaeRig;

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return sum;
}

// One set of weights in a decoder on the host and in one on the GPU.
class Decoders {
 public:
  Decoders(VaeRig& rig, const VaeConfig& config, const TensorTable& table)
      : rig_(rig), gpu_store_(WeightStore::Device(rig.memory, {.kind = DeviceKind::kCuda})) {
    cpu_ = Build(config, table, cpu_store_);
    Build(config, table, gpu_store_);
    EXPECT_TRUE(gpu_store_.Allocate().ok());
    gpu_ = Build(config, table, gpu_store_);
    const auto report = gpu_store_.Load();
    EXPECT_TRUE(report.ok());
    EXPECT_EQ(Text(gpu_->ReorderWeights(rig.memory, rig.On())), "");
    EXPECT_EQ(rig.Finish(), "");
  }

  std::vector<float> OnCpu(const std::vector<float>& latents, int64_t height, int64_t width,
                           Rounding rounding) const {
    const VaeConfig& config = cpu_->config();
    std::vector<float> from = latents;
    std::vector<float> samples(static_cast<size_t>(64 * height * width * 3));
    ThreadPool pool(static_cast<int>(std::thread::hardware_concurrency()));
    Arena counting;
    VaeWorkspace::LayOut(counting, config, height, width);
    auto arena = Arena::Create(HostMemory(), counting.used_bytes());
    EXPECT_TRUE(arena.ok());
    const ForwardContext context = {.kernels = {.stream = Stream::Cpu(pool)}, .rounding = rounding};
    EXPECT_EQ(Text(cpu_->Forward(
                  ContiguousMatrix(from.data(), height * width, config.z_dim), height, width,
                  ContiguousMatrix(samples.data(), 64 * height * width, 3), *arena, context)),
              "");
    return samples;
  }

  enum class How : uint8_t { kEager, kReference, kGraph };
  std::vector<float> OnGpu(const std::vector<float>& latents, int64_t height, int64_t width,
                           How how) const {
    const VaeConfig& config = gpu_->config();
    const DeviceMatrix from({.data = latents, .rows = height * width, .cols = config.z_dim}, 0);
    const DeviceMatrix samples = DeviceMatrix::Poisoned(64 * height * width, 3, 0);
    Arena counting;
    VaeWorkspace::LayOut(counting, config, height, width, DType::kBF16);
    // Poisoned, with canaries in front and behind.
    const DeviceBytes memory(counting.used_bytes() + 2 * kGuardBytes);
    auto* begin = static_cast<uint8_t*>(memory.data()) + kGuardBytes;
    GivenMemory given(begin);
    auto arena = Arena::Create(given, counting.used_bytes());
    EXPECT_TRUE(arena.ok());
    if (how == How::kReference) {
      EXPECT_EQ(Text(rig_.products->Warm(gpu_->Products(height, width), rig_.stream->stream())),
                "");
    }
    const ForwardContext context = {.kernels = rig_.On(how == How::kReference),
                                    .rounding = Rounding::kBF16};
    const auto enqueue = [&] {
      return gpu_->Forward(from.View(), height, width, samples.View(), *arena, context);
    };
    if (how == How::kGraph) {
      const auto graph = GpuGraph::Capture(*rig_.stream, enqueue);
      EXPECT_TRUE(graph.ok()) << graph.error().Message();
      if (graph) {
        EXPECT_EQ(graph->nodes().copies, 0);
        EXPECT_EQ(Text(graph->Launch(*rig_.stream)), "");
      }
      EXPECT_EQ(rig_.Finish(), "");
    } else {
      EXPECT_EQ(Text(enqueue()), "");
      EXPECT_EQ(rig_.Finish(), "");
    }
    EXPECT_TRUE(samples.CanariesLive());
    const std::vector<uint8_t> canaries(kGuardBytes, 0xff);
    EXPECT_EQ(Read(memory.data(), kGuardBytes), canaries);
    EXPECT_EQ(Read(begin + counting.used_bytes(), kGuardBytes), canaries);
    return samples.Get().data;
  }

 private:
  static constexpr int64_t kGuardBytes = 256;

  // Somebody else's memory.
  class GivenMemory final : public DeviceMemory {
   public:
    explicit GivenMemory(void* memory) : memory_(memory) {}
    void* Allocate(int64_t) override { return memory_; }
    void Free(void*) override {}

   private:
    void* memory_;
  };

  static std::unique_ptr<VaeDecoder> Build(const VaeConfig& config, const TensorTable& table,
                                           WeightStore& store) {
    WeightReader reader(table, store);
    auto decoder = std::make_unique<VaeDecoder>(config, reader);
    EXPECT_EQ(Text(reader.Finish()), "");
    return decoder;
  }

  VaeRig& rig_;
  WeightStore cpu_store_ = WeightStore::Host();
  WeightStore gpu_store_;
  std::unique_ptr<VaeDecoder> cpu_;
  std::unique_ptr<VaeDecoder> gpu_;
};

std::vector<float> Latents(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> latents;
  for (int64_t i = 0; i < count; ++i) latents.push_back(RoundToBF16(normal(engine)));
  return latents;
}

// Over `inputs` latents of a size.
void ExpectRight(const Decoders& decoders, int64_t height, int64_t width, uint32_t inputs) {
  SCOPED_TRACE(std::to_string(height) + " x " + std::to_string(width));
  double error = 0;
  double allowed = 0;
  for (uint32_t seed = 0; seed < inputs; ++seed) {
    const std::vector<float> latents = Latents(16 * height * width, seed);
    const auto exact = decoders.OnCpu(latents, height, width, Rounding::kNone);
    const auto rounded = decoders.OnCpu(latents, height, width, Rounding::kBF16);
    const auto got = decoders.OnGpu(latents, height, width, Decoders::How::kEager);
    error += SquaredError(got, exact);
    allowed += SquaredError(rounded, exact);
    EXPECT_EQ(decoders.OnGpu(latents, height, width, Decoders::How::kGraph), got);
    EXPECT_EQ(decoders.OnGpu(latents, height, width, Decoders::How::kReference), got);
  }
  EXPECT_LE(std::sqrt(error), 1.1 * std::sqrt(allowed));
  const auto samples = static_cast<double>(inputs * 64 * height * width * 3);
  testing::Test::RecordProperty("rms_error", std::to_string(std::sqrt(error / samples)));
  testing::Test::RecordProperty("rms_error_of_host_rounding",
                                std::to_string(std::sqrt(allowed / samples)));
}

TEST(VaeDecoderGpu, OfTheEmojiModel) {
  VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  const auto checkpoint = Checkpoint::Open(EmojiModel());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
  const Decoders decoders(rig, checkpoint->vae_config(), checkpoint->vae());
  ExpectRight(decoders, 16, 16, 8);
  ExpectRight(decoders, 2, 6, 40);
  ExpectRight(decoders, 26, 42, 2);
}

TEST(VaeDecoderGpu, OfFullSize) {
  VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  const Decoders decoders(rig, VaeConfig{}, TensorTable::Random(3, "vae"));
  ExpectRight(decoders, 32, 32, 1);
  ExpectRight(decoders, 26, 42, 1);
}

// Sizes of pictures: the host would take minutes, so only that the bytes do not change.
TEST(VaeDecoderGpu, OfFullSizeAtFullSizes) {
  VaeRig rig;
  SEGUE_SKIP_WITHOUT_VAE(rig);
  const Decoders decoders(rig, VaeConfig{}, TensorTable::Random(4, "vae"));
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{128, 128}, {104, 166}}) {
    const std::vector<float> latents = Latents(16 * height * width, 9);
    const auto got = decoders.OnGpu(latents, height, width, Decoders::How::kEager);
    for (const float value : got) ASSERT_TRUE(std::isfinite(value));
    EXPECT_EQ(decoders.OnGpu(latents, height, width, Decoders::How::kGraph), got);
  }
}

}  // namespace
}  // namespace segue::model
