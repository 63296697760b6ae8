// A checkpoint's networks, run one at a time on inputs of the test's choice.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/span.h"
#include "comm/communicator.h"
#include "device/thread_pool.h"
#include "model/qwen_image.h"
#include "model/tokenizer/tokenizer.h"
#include "model/weights/checkpoint.h"
#include "parity/golden.h"

namespace segue::parity {

struct StageOptions {
  int threads = 2;
  bool bf16_rounding = false;
  bool reference_kernels = false;
};

// One sequence of a packed transformer forward.
struct SequenceInput {
  int32_t grid_height = 0;
  int32_t grid_width = 0;
  float timestep = 0;          // as fed, in 0..1
  std::vector<float> latents;  // [grid_height * grid_width, in_channels]
  std::vector<float> text;     // [text rows, joint_attention_dim]
};

// The sequences of batch `b` of a golden file that write_transformer of cases.py made.
std::vector<SequenceInput> RecordedSequences(const Golden& golden, int b,
                                             const model::DitConfig& config);

struct DecodedPicture {
  std::vector<float> samples;  // [height * width, 3], in -1..1
  std::vector<uint8_t> pixels;
};

// Every method fails the running test and returns empty values when a forward errs.
class Stages {
 public:
  // Null, with a failure, when the checkpoint does not load.
  static std::unique_ptr<Stages> Load(const GoldenModel& model, const StageOptions& options = {});

  const model::Checkpoint& checkpoint() const { return checkpoint_; }
  const model::Tokenizer& tokenizer() const { return tokenizer_; }

  // Text rows of all prompts, encoded together: [rows of prompt i, hidden_size].
  std::vector<std::vector<float>> EncodePrompts(Span<const std::string> prompts);
  // The same for token ids, of which the first `dropped` rows are left out.
  std::vector<std::vector<float>> EncodeIds(Span<const std::vector<int32_t>> ids, int64_t dropped);
  // Velocities of all sequences, in one packed forward.
  std::vector<std::vector<float>> Velocities(Span<const SequenceInput> sequences);
  // A picture from packed latents [width / 16 * height / 16, channels].
  DecodedPicture Decode(const std::vector<float>& latents, int width, int height);

 private:
  Stages(model::Checkpoint checkpoint, model::Tokenizer tokenizer, const StageOptions& options);
  model::ForwardContext Context();

  model::Checkpoint checkpoint_;
  model::Tokenizer tokenizer_;
  StageOptions options_;
  ThreadPool pool_;
  comm::SingleRank communicator_;
  model::WeightStore store_ = model::WeightStore::Host();
  std::unique_ptr<const model::QwenImage> model_;
};

}  // namespace segue::parity
