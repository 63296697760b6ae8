#include "bench/gpu_text.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "bench/gpu.h"
#include "bench/gpu_measure.h"
#include "bench/gpu_peer.h"
#include "comm/communicator.h"
#include "device/transfer.h"
#include "model/text_encoder/text_encoder.h"
#include "model/weights/weight_store.h"
#include "runtime/gpu_resources.h"

namespace segue::bench {
namespace {

constexpr double kGiga = 1e9;
constexpr uint64_t kSeed = 13;

// models/qwen_image/text_encoder/config.json.
constexpr model::TextEncoderConfig kQwenImage = {.hidden_size = 3584,
                                                 .intermediate_size = 18944,
                                                 .num_hidden_layers = 28,
                                                 .num_attention_heads = 28,
                                                 .num_key_value_heads = 4,
                                                 .vocab_size = 152064,
                                                 .max_position_embeddings = 128000,
                                                 .rms_norm_eps = 1e-6};

struct Setup {
  int64_t tokens = 0;
  int64_t layers = 0;
  std::string peer_mode;
};

Result<Setup> ReadSetup(const Case& one) {
  Setup setup;
  SEGUE_ASSIGN_OR_RETURN(setup.tokens, one.Integer("tokens"));
  SEGUE_ASSIGN_OR_RETURN(setup.layers, one.Integer("layers"));
  setup.peer_mode = one.Text("peer_mode", "eager");
  const bool known = setup.peer_mode == "eager" || setup.peer_mode == "default";
  if (known && setup.layers > 0 && setup.tokens > 0 &&
      setup.tokens <= kQwenImage.max_position_embeddings) {
    return setup;
  }
  return Error{.code = ErrorCode::kInvalidArgument,
               .operation = "read benchmark suite",
               .argument = "case " + one.name,
               .got = "peer_mode=" + setup.peer_mode + " and counts",
               .wanted = "eager or default, and counts above 0"};
}

// An encoder and the tensors of one prompt.
class Encode {
 public:
  static Result<std::unique_ptr<Encode>> Create(const Setup& setup, const GpuStream& stream);

  Status Enqueue(void* stream, bool reference) {
    arena_.Release(output_end_);
    const model::TextSequence sequence = {.ids = ids_, .dropped = 0, .output = output_};
    return encoder_->Forward({&sequence, 1}, arena_,
                             {.kernels = {.stream = Stream::Cuda(stream),
                                          .reference_only = reference,
                                          .products = &gpu_->products()},
                              .rounding = kernels::Rounding::kBF16,
                              .communicator = &single_});
  }
  Result<std::vector<float>> Output(const GpuStream& stream) const {
    return ReadMatrix(output_, Stream::Cuda(stream.get()));
  }
  // Of the layers; the embedding's are looked up, not read through.
  double weight_bytes() const {
    const model::TextEncoderConfig& config = encoder_->config();
    const auto embedding = static_cast<double>(2 * config.vocab_size * config.hidden_size);
    return static_cast<double>(store_->bytes(model::WeightGroup::kResident)) - embedding;
  }

 private:
  Status Load(const model::TextEncoderConfig& config);

  std::unique_ptr<runtime::GpuResources> gpu_;
  comm::SingleRank single_;
  std::unique_ptr<model::WeightStore> store_;
  std::unique_ptr<model::TextEncoder> encoder_;
  std::vector<int32_t> ids_;
  Arena arena_;
  MatrixView output_;
  int64_t output_end_ = 0;
};

Status Encode::Load(const model::TextEncoderConfig& config) {
  const auto table = model::TensorTable::Random(kSeed, "text_encoder");
  store_ = std::make_unique<model::WeightStore>(
      model::WeightStore::Device(gpu_->memory(), {.kind = DeviceKind::kCuda}));
  for (int pass = 0; pass < 2; ++pass) {
    model::WeightReader reader(table, *store_);
    encoder_ = std::make_unique<model::TextEncoder>(
        config, reader,
        model::TextEncoderNames{.prefix = "model.", .embedding = "model.embed_tokens.weight"},
        single_);
    SEGUE_RETURN_IF_ERROR(reader.Finish());
    if (pass == 0) SEGUE_RETURN_IF_ERROR(store_->Allocate());
  }
  const auto report = store_->Load();
  return report.ok() ? Status() : Status(report.error());
}

Result<std::unique_ptr<Encode>> Encode::Create(const Setup& setup, const GpuStream& stream) {
  auto encode = std::make_unique<Encode>();
  SEGUE_ASSIGN_OR_RETURN(encode->gpu_, runtime::GpuResources::Create(0, ""));
  model::TextEncoderConfig config = kQwenImage;
  config.num_hidden_layers = setup.layers;
  SEGUE_RETURN_IF_ERROR(encode->Load(config));
  encode->ids_.resize(static_cast<size_t>(setup.tokens));
  std::iota(encode->ids_.begin(), encode->ids_.end(), 0);

  Arena counting;
  const model::Placement& placement = encode->gpu_->placement();
  counting.TakeMatrix("output", setup.tokens, config.hidden_size, DType::kBF16);
  model::TextEncoderWorkspace::LayOut(counting, config, placement, {&setup.tokens, 1});
  SEGUE_ASSIGN_OR_RETURN(encode->arena_,
                         Arena::Create(encode->gpu_->memory(), counting.peak_bytes()));
  encode->output_ =
      encode->arena_.TakeMatrix("output", setup.tokens, config.hidden_size, DType::kBF16);
  encode->output_end_ = encode->arena_.Mark();
  SEGUE_RETURN_IF_ERROR(encode->gpu_->products().Warm(encode->encoder_->Products(setup.tokens),
                                                      Stream::Cuda(stream.get())));
  return encode;
}

// The fast kernels' bytes beside the plain ones'.
Status Verify(const Case& one, Encode& encode, const GpuStream& stream) {
  SEGUE_RETURN_IF_ERROR(encode.Enqueue(stream.get(), true));
  SEGUE_ASSIGN_OR_RETURN(const std::vector<float> wanted, encode.Output(stream));
  SEGUE_RETURN_IF_ERROR(encode.Enqueue(stream.get(), false));
  SEGUE_ASSIGN_OR_RETURN(const std::vector<float> got, encode.Output(stream));
  const bool finite =
      std::all_of(wanted.begin(), wanted.end(), [](float value) { return value - value == 0.0f; });
  if (finite && got == wanted) return {};
  return Error{.code = ErrorCode::kInternal,
               .operation = "verify encoding",
               .argument = "case " + one.name,
               .got = finite ? "bytes that differ from the plain kernels'" : "no numbers",
               .wanted = "the same bytes, all finite"};
}

}  // namespace

Result<std::vector<Row>> BenchGpuText(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const Setup setup, ReadSetup(one));
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  SEGUE_ASSIGN_OR_RETURN(const std::unique_ptr<Encode> encode, Encode::Create(setup, stream));
  SEGUE_RETURN_IF_ERROR(Verify(one, *encode, stream));
  const GpuContender ours = {
      .name = "segue", .version = "", .enqueue = [&encode](void* to, int64_t) {
        return encode->Enqueue(to, false);
      }};
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram program, RunEagerly(ours, stream));
  Row row = {.case_name = one.name, .variant = "eager", .unit = "GB/s"};
  row.note = "the reference kernels' bytes";
  SEGUE_ASSIGN_OR_RETURN(
      const GpuComparison comparison,
      MeasureBesidePython(
          program, {"text", "--tokens", std::to_string(setup.tokens), "--mode", setup.peer_mode},
          options, stream, &row));
  return RowsOf(comparison, encode->weight_bytes(), kGiga, std::move(row));
}

}  // namespace segue::bench
