// What happens when memory runs out or a network's values go wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "comm/communicator.h"
#include "device/failing_memory.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/engine_memory.h"
#include "runtime/pipeline.h"
#include "segue/engine.h"

namespace segue::runtime {
namespace {

std::string TinyModel() { return std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model"; }

// Host memory that refuses its n-th allocation.
class FailingMemory final : public DeviceMemory {
 public:
  void FailAt(int allocation) { fail_at_ = allocation; }
  int allocations() const { return allocations_; }
  int live() const { return live_; }

  void* Allocate(int64_t bytes) override {
    if (++allocations_ == fail_at_) return nullptr;
    ++live_;
    return HostMemory().Allocate(bytes);
  }
  void Free(void* pointer) override {
    --live_;
    HostMemory().Free(pointer);
  }

 private:
  int fail_at_ = 0;
  int allocations_ = 0;
  int live_ = 0;
};

class PipelineTest : public testing::Test {
 protected:
  void SetUp() override {
    auto checkpoint = model::Checkpoint::Open(TinyModel());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
    checkpoint_ = std::make_unique<model::Checkpoint>(std::move(*checkpoint));
    auto model = model::QwenImage::Load(*checkpoint_, single_, store_);
    ASSERT_TRUE(model.ok()) << model.error().Message();
    model_ = std::move(*model);
    pipeline_ = std::make_unique<HostPipeline>(
        *model_,
        model::ForwardContext{.kernels = {.stream = Stream::Cpu(pool_)}, .communicator = &single_},
        memory_);
  }

  RequestState MakeState(RequestId id = 1) const {
    Request request;
    // Large enough that each stage's workspace outgrows the one before it.
    request.width = 160;
    request.height = 160;
    request.steps = 2;
    request.guidance = 2.0;
    RequestState state;
    state.id = id;
    state.settings =
        *ResolveSettings(request, checkpoint_->defaults(), checkpoint_->dit_config().in_channels);
    state.schedule = *MakeNoiseSchedule(checkpoint_->flow_match_config(), 2, 100);
    const auto tokenizer = model::Tokenizer::Load(checkpoint_->tokenizer_directory());
    state.prompts = {*tokenizer->EncodePrompt("a cat"), *tokenizer->EncodePrompt(" ")};
    return state;
  }

  // Runs what is left to run: a stage that failed left its request as it was.
  Status Run(RequestState& state) {
    if (state.times.encode_s == 0) SEGUE_RETURN_IF_ERROR(pipeline_->Encode(state));
    RequestState* request = &state;
    while (!state.done()) {
      state.status = {};
      pipeline_->Denoise({&request, 1});
      SEGUE_RETURN_IF_ERROR(state.status);
    }
    return pipeline_->Decode(state);
  }

  FailingMemory memory_;
  comm::SingleRank single_;
  ThreadPool pool_{2};
  std::unique_ptr<model::Checkpoint> checkpoint_;
  model::WeightStore store_ = model::WeightStore::Host();
  std::unique_ptr<const model::QwenImage> model_;
  std::unique_ptr<HostPipeline> pipeline_;
};

TEST_F(PipelineTest, EveryAllocationMayFail) {
  RequestState good = MakeState();
  ASSERT_TRUE(Run(good).ok());
  const int allocations = memory_.allocations();
  ASSERT_EQ(allocations, 4);  // the request's own, then one a stage
  for (int k = 1; k <= allocations; ++k) {
    SetUp();  // a pipeline without a workspace
    good.memory = Arena();
    ASSERT_EQ(memory_.live(), 0);
    const int before = memory_.allocations();
    memory_.FailAt(before + k);
    RequestState state = MakeState();
    const Status status = Run(state);
    ASSERT_FALSE(status.ok()) << k;
    EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
    const Status again = Run(state);
    ASSERT_TRUE(again.ok()) << k << ": " << again.error().Message();
    EXPECT_EQ(state.image.rgb, good.image.rgb);
  }
}

TEST_F(PipelineTest, WhatDoesNotFitTogetherRunsAlone) {
  RequestState alone = MakeState();
  ASSERT_TRUE(Run(alone).ok());
  SetUp();
  RequestState first = MakeState(1);
  RequestState second = MakeState(2);
  ASSERT_TRUE(pipeline_->Encode(first).ok());
  ASSERT_TRUE(pipeline_->Encode(second).ok());
  const std::vector<RequestState*> both = {&first, &second};
  memory_.FailAt(memory_.allocations() + 1);  // of the first step: the forward of both
  pipeline_->Denoise(both);
  ASSERT_TRUE(first.status.ok() && second.status.ok());
  // What does not fit is not asked for at every step.
  const int allocations = memory_.allocations();
  while (!first.done()) {
    pipeline_->Denoise(both);
    ASSERT_TRUE(first.status.ok() && second.status.ok());
  }
  EXPECT_EQ(memory_.allocations(), allocations);
  EXPECT_TRUE(second.done());
  for (RequestState* request : both) {
    ASSERT_TRUE(pipeline_->Decode(*request).ok());
    EXPECT_EQ(request->image.rgb, alone.image.rgb);
  }

  // With memory for neither, each has its error and has not moved.
  SetUp();
  RequestState refused = MakeState();
  ASSERT_TRUE(pipeline_->Encode(refused).ok());
  RequestState* request = &refused;
  memory_.FailAt(memory_.allocations() + 1);
  pipeline_->Denoise({&request, 1});
  ASSERT_FALSE(refused.status.ok());
  EXPECT_EQ(refused.status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(refused.step, 0);
}

bool HasNumber(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The whole engine, loading included; random weights are copies, each an allocation.
TEST(EngineMemory, EveryAllocationMayFail) {
  Request request;
  request.prompt = "a cat";
  request.width = request.height = 160;
  request.steps = 2;
  request.guidance = 2.0;
  for (const std::optional<uint64_t> seed :
       {std::optional<uint64_t>(), std::optional<uint64_t>(1)}) {
    const EngineOptions options = {
        .model_directory = TinyModel(), .threads = 1, .random_weights = seed};
    const auto good = (*Engine::Load(options))->Generate(request);
    ASSERT_TRUE(good.ok()) << good.error().Message();
    int refused_loads = 0;
    int refused_requests = 0;
    for (int64_t k = 0;; ++k) {
      segue::FailingMemory memory(HostMemory(), k);
      {
        auto engine = EngineLoader::Load(options, {.host = &memory});
        if (!engine.ok()) {
          EXPECT_EQ(engine.error().code, ErrorCode::kOutOfMemory);
          EXPECT_TRUE(HasNumber(engine.error().wanted)) << engine.error().Message();
          EXPECT_EQ(memory.live(), 0) << k;
          ++refused_loads;
          continue;
        }
        auto picture = (*engine)->Generate(request);
        if (!picture.ok()) {
          EXPECT_EQ(picture.error().code, ErrorCode::kOutOfMemory);
          EXPECT_TRUE(HasNumber(picture.error().wanted)) << picture.error().Message();
          ++refused_requests;
          picture = (*engine)->Generate(request);
        }
        ASSERT_TRUE(picture.ok()) << k << ": " << picture.error().Message();
        EXPECT_EQ(picture->image.rgb, good->image.rgb) << k;
      }
      EXPECT_EQ(memory.live(), 0) << k;
      if (!memory.refused()) break;
    }
    EXPECT_EQ(refused_requests, 4);  // the request's own, then one a stage
    EXPECT_EQ(refused_loads > 0, seed.has_value());
  }
}

// A copy of the tiny checkpoint in which one value of a tensor is infinite.
std::string SpoiledModel(const std::string& component, const std::string& stem,
                         const std::string& tensor) {
  const std::string directory = testing::TempDir() + "segue_spoiled_" + component;
  std::filesystem::remove_all(directory);
  std::filesystem::copy(TinyModel(), directory, std::filesystem::copy_options::recursive);
  const auto table = model::TensorTable::Open(directory + "/" + component, stem, component);
  EXPECT_TRUE(table.ok());
  for (const model::TensorTable::Item& item : table->items()) {
    if (item.entry->name != tensor) continue;
    std::fstream file(item.file->path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(item.entry->offset);
    const uint32_t infinity = 0x7f800000u;
    const uint16_t half_infinity = *item.entry->dtype == DType::kF16 ? 0x7c00u : 0x7f80u;
    if (*item.entry->dtype == DType::kF32) {
      file.write(reinterpret_cast<const char*>(&infinity), sizeof(infinity));
    } else {
      file.write(reinterpret_cast<const char*>(&half_infinity), sizeof(half_infinity));
    }
    return directory;
  }
  ADD_FAILURE() << "no tensor " << tensor;
  return directory;
}

Error ErrorOf(const std::string& directory) {
  auto engine = Engine::Load({.model_directory = directory, .threads = 1});
  EXPECT_TRUE(engine.ok()) << engine.error().Message();
  if (!engine.ok()) return {};
  Request request;
  request.prompt = "a cat";
  request.width = request.height = 16;
  request.steps = 2;
  const auto picture = (*engine)->Generate(request);
  EXPECT_FALSE(picture.ok());
  return picture.ok() ? Error{} : picture.error();
}

TEST(NonFinite, ATextEmbeddingIsAnErrorBeforeDenoising) {
  const Error error = ErrorOf(SpoiledModel("text_encoder", "model", "model.norm.weight"));
  EXPECT_EQ(error.code, ErrorCode::kNonFinite);
  EXPECT_EQ(error.operation, "encode prompt");
  EXPECT_EQ(error.argument, "prompt embedding");
}

TEST(NonFinite, AVelocityIsAnErrorWithItsStep) {
  const Error error =
      ErrorOf(SpoiledModel("transformer", "diffusion_pytorch_model", "proj_out.bias"));
  EXPECT_EQ(error.code, ErrorCode::kNonFinite);
  EXPECT_EQ(error.operation, "denoise");
  EXPECT_EQ(error.argument, "step 1 of 2: velocity");
}

TEST(NonFinite, ASampleIsAnErrorAndNotABlackPicture) {
  const Error error =
      ErrorOf(SpoiledModel("vae", "diffusion_pytorch_model", "decoder.conv_out.bias"));
  EXPECT_EQ(error.code, ErrorCode::kNonFinite);
  EXPECT_EQ(error.operation, "decode latents");
}

}  // namespace
}  // namespace segue::runtime
