#include "bench/gpu_vae.h"

#include <memory>
#include <utility>

#include "bench/gpu.h"
#include "bench/gpu_measure.h"
#include "bench/gpu_peer.h"
#include "device/arena.h"
#include "device/cuda_memory.h"
#include "kernels/convolution_library.h"
#include "kernels/product_library.h"
#include "model/vae/decoder.h"
#include "model/weights/weight_store.h"

namespace segue::bench {
namespace {

using model::VaeConfig;
using model::VaeDecoder;
using model::VaeWorkspace;

constexpr double kTera = 1e12;
constexpr int64_t kProductWorkspace = int64_t{32} << 20;
constexpr uint64_t kSeed = 11;

// Operations of convolutions and of the attention's two products; a multiplication and an addition
// count as two.
double Operations(const VaeConfig& config, int64_t pixels) {
  double pairs = 0;
  const auto convolve = [&pairs](int64_t at, int64_t in, int64_t out, int64_t taps) {
    pairs += static_cast<double>(at * in * out * taps);
  };
  const int64_t top = config.base_dim * config.dim_mult.back();
  int64_t at = pixels;
  convolve(at, config.z_dim, config.z_dim, 1);
  convolve(at, config.z_dim, top, 9);
  for (int i = 0; i < 4; ++i) convolve(at, top, top, 9);
  convolve(at, top, 4 * top, 1);
  pairs += 2.0 * static_cast<double>(at) * static_cast<double>(at) * static_cast<double>(top);
  int64_t in = top;
  for (size_t i = 0; i < config.dim_mult.size(); ++i) {
    const int64_t out = config.base_dim * config.dim_mult[config.dim_mult.size() - 1 - i];
    if (in != out) convolve(at, in, out, 1);
    convolve(at, in, out, 9);
    for (int64_t j = 0; j < 2 * config.num_res_blocks + 1; ++j) convolve(at, out, out, 9);
    in = out;
    if (i + 1 == config.dim_mult.size()) break;
    at *= 4;
    convolve(at, in, in / 2, 9);
    in /= 2;
  }
  convolve(at, in, config.input_channels, 9);
  return 2 * pairs;
}

// A decoder, its libraries and its tensors.
class Decode {
 public:
  static Result<std::unique_ptr<Decode>> Create(int64_t width, int64_t height,
                                                const GpuStream& stream);

  Status Enqueue(void* stream) const {
    arena_->Release(0);
    return decoder_->Forward(latents_, height_, width_, samples_, *arena_, Context(stream));
  }
  Result<std::vector<uint16_t>> Samples() const {
    std::vector<uint16_t> values(static_cast<size_t>(samples_.rows * samples_.cols));
    SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
    SEGUE_RETURN_IF_ERROR(Download(values.data(), samples_.data, samples_memory_.bytes()));
    return values;
  }
  Status PoisonSamples() const { return FillBytes(samples_.data, 0xff, samples_memory_.bytes()); }
  double operations() const { return Operations(decoder_->config(), height_ * width_); }
  int64_t workspace_bytes() const { return arena_->capacity_bytes(); }

 private:
  Status Load(const GpuStream& stream);
  Status MakeTensors(const GpuStream& stream);
  model::ForwardContext Context(void* stream) const {
    return {.kernels = {.stream = Stream::Cuda(stream),
                        .products = products_.get(),
                        .convolutions = convolutions_.get()},
            .rounding = kernels::Rounding::kBF16};
  }

  int64_t height_ = 0;  // of the latents
  int64_t width_ = 0;
  CudaMemory memory_{0};
  GpuBuffer product_memory_, convolution_memory_, latents_memory_, samples_memory_;
  std::unique_ptr<kernels::ProductLibrary> products_;
  std::unique_ptr<kernels::ConvolutionLibrary> convolutions_;
  std::unique_ptr<model::WeightStore> store_;
  std::unique_ptr<VaeDecoder> decoder_;
  std::unique_ptr<Arena> arena_;
  MatrixView latents_;
  MatrixView samples_;
};

Status Decode::Load(const GpuStream& stream) {
  const auto table = model::TensorTable::Random(kSeed, "vae");
  store_ = std::make_unique<model::WeightStore>(
      model::WeightStore::Device(memory_, {.kind = DeviceKind::kCuda}));
  for (int pass = 0; pass < 2; ++pass) {
    model::WeightReader reader(table, *store_);
    decoder_ = std::make_unique<VaeDecoder>(VaeConfig{}, reader);
    SEGUE_RETURN_IF_ERROR(reader.Finish());
    if (pass == 0) SEGUE_RETURN_IF_ERROR(store_->Allocate());
  }
  const auto report = store_->Load();
  if (!report) return report.error();
  return decoder_->ReorderWeights(memory_, Context(stream.get()).kernels);
}

Status Decode::MakeTensors(const GpuStream& stream) {
  const VaeConfig& config = decoder_->config();
  const int64_t scale = config.spatial_scale();
  const int64_t pixels = height_ * width_;
  const int64_t picture = pixels * scale * scale;
  SEGUE_ASSIGN_OR_RETURN(latents_memory_, GpuBuffer::Allocate(2 * pixels * config.z_dim));
  SEGUE_ASSIGN_OR_RETURN(samples_memory_, GpuBuffer::Allocate(2 * picture * config.input_channels));
  latents_ = ContiguousMatrix(latents_memory_.data(), DType::kBF16, pixels, config.z_dim);
  samples_ = ContiguousMatrix(samples_memory_.data(), DType::kBF16, picture, config.input_channels);
  SEGUE_RETURN_IF_ERROR(FillNormal(latents_.data, pixels * config.z_dim, kSeed, stream));
  Arena counting;
  VaeWorkspace::LayOut(counting, config, height_, width_, DType::kBF16);
  SEGUE_ASSIGN_OR_RETURN(Arena arena, Arena::Create(memory_, counting.used_bytes()));
  arena_ = std::make_unique<Arena>(std::move(arena));
  return SynchronizeGpu();
}

Result<std::unique_ptr<Decode>> Decode::Create(int64_t width, int64_t height,
                                               const GpuStream& stream) {
  auto decode = std::make_unique<Decode>();
  decode->width_ = width / 8;
  decode->height_ = height / 8;
  SEGUE_ASSIGN_OR_RETURN(decode->product_memory_, GpuBuffer::Allocate(kProductWorkspace));
  SEGUE_ASSIGN_OR_RETURN(decode->convolution_memory_,
                         GpuBuffer::Allocate(kernels::ConvolutionLibrary::kWorkspaceBytes));
  auto products = kernels::ProductLibrary::Create({.workspace = decode->product_memory_.data(),
                                                   .workspace_bytes = kProductWorkspace,
                                                   .memory = &decode->memory_});
  if (!products) return products.error();
  decode->products_ = std::move(*products);
  auto convolutions =
      kernels::ConvolutionLibrary::Create({.workspace = decode->convolution_memory_.data(),
                                           .workspace_bytes = decode->convolution_memory_.bytes()});
  if (!convolutions) return convolutions.error();
  decode->convolutions_ = std::move(*convolutions);
  SEGUE_RETURN_IF_ERROR(decode->Load(stream));
  SEGUE_RETURN_IF_ERROR(decode->MakeTensors(stream));
  const auto shapes = decode->decoder_->Products(decode->height_, decode->width_);
  SEGUE_RETURN_IF_ERROR(decode->products_->Warm(shapes, Stream::Cuda(stream.get())));
  return decode;
}

Status Verify(const Decode& decode, const std::vector<uint16_t>& wanted, const std::string& name) {
  SEGUE_ASSIGN_OR_RETURN(const std::vector<uint16_t> got, decode.Samples());
  bool finite = true;
  for (const uint16_t bits : wanted) finite = finite && (bits & 0x7f80) != 0x7f80;
  if (finite && got == wanted) return {};
  return Error{.code = ErrorCode::kInternal,
               .operation = "verify decoding",
               .argument = "case " + name,
               .got = finite ? "other bytes from a graph" : "samples that are no numbers",
               .wanted = "the eager call's bytes"};
}

}  // namespace

Result<std::vector<Row>> BenchGpuVae(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const int64_t width, one.Integer("width"));
  SEGUE_ASSIGN_OR_RETURN(const int64_t height, one.Integer("height"));
  if (width < 16 || height < 16 || width % 16 != 0 || height % 16 != 0) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "read benchmark suite",
                 .argument = "case " + one.name,
                 .got = std::to_string(width) + " x " + std::to_string(height),
                 .wanted = "multiples of 16"};
  }
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<Decode> decode,
                         Decode::Create(width, height, stream));
  SEGUE_RETURN_IF_ERROR(decode->Enqueue(stream.get()));
  SEGUE_ASSIGN_OR_RETURN(const std::vector<uint16_t> wanted, decode->Samples());
  SEGUE_RETURN_IF_ERROR(decode->PoisonSamples());
  const GpuContender ours = {
      .name = "segue", .version = "", .enqueue = [&decode](void* to, int64_t) {
        return decode->Enqueue(to);
      }};
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram program, Record(ours, stream));
  SEGUE_RETURN_IF_ERROR(program.Launch(stream));
  SEGUE_RETURN_IF_ERROR(Verify(*decode, wanted, one.name));
  Row row = {.case_name = one.name, .variant = "cudnn", .unit = "TFLOP/s"};
  row.note = std::to_string(decode->workspace_bytes() >> 20) + " MiB of maps";
  const std::vector<std::string> peer = {"vae", "--width", std::to_string(width), "--height",
                                         std::to_string(height)};
  SEGUE_ASSIGN_OR_RETURN(const GpuComparison comparison,
                         MeasureBesidePython(program, peer, options, stream, &row));
  return RowsOf(comparison, decode->operations(), kTera, std::move(row));
}

}  // namespace segue::bench
