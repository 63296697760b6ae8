// The step that a GPU records, run on the host beside the pipeline that knows every length.
#include "runtime/recorded_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/transfer.h"
#include "model/tokenizer/tokenizer.h"
#include "model/weights/checkpoint.h"
#include "runtime/modulation_cache.h"
#include "runtime/pipeline.h"

namespace segue::runtime {
namespace {

struct Wish {
  std::string prompt;
  int width = 32;
  int height = 32;
  int steps = 3;
  double guidance = 1;
};

class RecordedStepTest : public testing::Test {
 protected:
  void SetUp() override {
    auto checkpoint =
        model::Checkpoint::Open(std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
    checkpoint_ = std::make_unique<model::Checkpoint>(std::move(*checkpoint));
    auto model = model::QwenImage::Load(*checkpoint_, single_, store_);
    ASSERT_TRUE(model.ok()) << model.error().Message();
    model_ = std::move(*model);
    pipeline_ = std::make_unique<HostPipeline>(*model_, context_, HostMemory());
    auto cache = ModulationCache::Create(model_->dit(), 1, 16, HostMemory());
    ASSERT_TRUE(cache.ok()) << cache.error().Message();
    modulation_ = std::make_unique<ModulationCache>(std::move(*cache));
  }

  std::unique_ptr<RequestState> Encoded(const Wish& wish, RequestId id) {
    Request request = {.width = wish.width,
                       .height = wish.height,
                       .steps = wish.steps,
                       .guidance = wish.guidance,
                       .seed = id};
    auto state = std::make_unique<RequestState>();
    state->id = id;
    state->settings =
        *ResolveSettings(request, checkpoint_->defaults(), checkpoint_->dit_config().in_channels);
    state->schedule = *MakeNoiseSchedule(checkpoint_->flow_match_config(), wish.steps,
                                         state->settings.image_rows());
    const auto tokenizer = model::Tokenizer::Load(checkpoint_->tokenizer_directory());
    state->prompts.push_back(*tokenizer->EncodePrompt(wish.prompt));
    if (state->settings.guided) state->prompts.push_back(*tokenizer->EncodePrompt(" "));
    const Status status = pipeline_->Encode(*state);
    EXPECT_TRUE(status.ok()) << status.error().Message();
    return state;
  }

  // One step of all, in memory that was full of NaN; the requests' latents are updated.
  void Advance(const std::vector<RequestState*>& requests) {
    auto step = RecordedStep::Create(model_->dit(), 1, ShapeOf(requests), "");
    ASSERT_TRUE(step.ok()) << step.error().Message();
    auto arena = Arena::Create(HostMemory(), step->bytes());
    ASSERT_TRUE(arena.ok());
    std::memset(arena->TakeBytes("all", step->bytes()), 0xff, static_cast<size_t>(step->bytes()));
    arena->Release(0);
    const Stream stream = context_.kernels.stream;
    Status status = step->Occupy(*arena, requests, stream);
    ASSERT_TRUE(status.ok()) << status.error().Message();
    std::vector<float> timesteps;
    for (const RequestState* request : requests) {
      timesteps.push_back(ModelTimestep(request->schedule.timesteps[request->step], false));
    }
    const auto rows = modulation_->Rows(timesteps, context_);
    ASSERT_TRUE(rows.ok()) << rows.error().Message();
    const size_t sequences = step->batch().sequences().size();
    std::fill_n(step->blocks().records, sequences, kernels::SamplerRecord{});
    size_t sequence = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const RequestState& request = *requests[i];
      const std::vector<float>& sigmas = request.schedule.sigmas;
      const auto row = [&](size_t s) { return static_cast<int32_t>(step->batch().image_begin(s)); };
      step->blocks().records[i] = {.prompt_row = row(sequence),
                                   .negative_row = request.settings.guided ? row(sequence + 1) : -1,
                                   .rows = static_cast<int32_t>(request.settings.image_rows()),
                                   .guidance = static_cast<float>(request.settings.guidance),
                                   .dt = sigmas[request.step + 1] - sigmas[request.step]};
      for (size_t s = 0; s < request.blocks.text.size(); ++s, ++sequence) {
        step->blocks().modulation[sequence] = (*rows)[i];
        std::memcpy(step->blocks().latents.Row<float>(row(sequence)), request.blocks.latents.data,
                    Bytes(request));
      }
    }
    status = step->EnqueueForward(modulation_->table(), context_);
    ASSERT_TRUE(status.ok()) << status.error().Message();
    status = step->EnqueueSampler(context_);
    ASSERT_TRUE(status.ok()) << status.error().Message();
    for (size_t i = 0; i < requests.size(); ++i) {
      std::memcpy(requests[i]->blocks.latents.data,
                  step->blocks().latents.Row<float>(step->blocks().records[i].prompt_row),
                  Bytes(*requests[i]));
      EXPECT_EQ(step->blocks().not_finite[i], 0);
      ++requests[i]->step;
    }
  }

  static size_t Bytes(const RequestState& request) {
    const MatrixView& latents = request.blocks.latents;
    return static_cast<size_t>(latents.rows * latents.cols) * sizeof(float);
  }

  comm::SingleRank single_;
  ThreadPool pool_{2};
  model::ForwardContext context_{.kernels = {.stream = Stream::Cpu(pool_)},
                                 .communicator = &single_};
  std::unique_ptr<model::Checkpoint> checkpoint_;
  model::WeightStore store_ = model::WeightStore::Host();
  std::unique_ptr<const model::QwenImage> model_;
  std::unique_ptr<HostPipeline> pipeline_;
  std::unique_ptr<ModulationCache> modulation_;
};

// Slots, rows of nobody, kept modulation and records against exact lengths: the same bytes, for
// requests of other sizes, schedules and guidance in one step.
TEST_F(RecordedStepTest, GivesTheHostPipelinesBytes) {
  const std::vector<Wish> wishes = {
      {.prompt = "a cat", .guidance = 3.5},
      {.prompt = "", .width = 48, .height = 16, .steps = 4},
      {.prompt = "a red apple on a blue table, seen from above", .steps = 2, .guidance = 2},
  };
  std::vector<std::unique_ptr<RequestState>> host, recorded;
  std::vector<RequestState*> host_requests, requests;
  for (size_t i = 0; i < wishes.size(); ++i) {
    host.push_back(Encoded(wishes[i], i + 1));
    recorded.push_back(Encoded(wishes[i], i + 1));
    host_requests.push_back(host.back().get());
    requests.push_back(recorded.back().get());
  }
  while (!requests.empty()) {
    pipeline_->Denoise(host_requests);
    ASSERT_NO_FATAL_FAILURE(Advance(requests));
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(host_requests[i]->status.ok()) << host_requests[i]->status.error().Message();
      EXPECT_EQ(std::memcmp(host_requests[i]->blocks.latents.data, requests[i]->blocks.latents.data,
                            Bytes(*requests[i])),
                0)
          << "request " << requests[i]->id << " after step " << requests[i]->step;
    }
    // The shortest schedule leaves first, so that the last steps have another shape.
    std::erase_if(host_requests, [](const RequestState* request) { return request->done(); });
    std::erase_if(requests, [](const RequestState* request) { return request->done(); });
  }
}

TEST_F(RecordedStepTest, ShapesAreSizesAndSlots) {
  const auto guided = Encoded({.prompt = "a cat", .guidance = 2}, 1);
  const auto alone = Encoded({.prompt = "a dog", .width = 48}, 2);
  std::vector<RequestState*> requests = {guided.get(), alone.get()};
  const StepShape shape = ShapeOf(requests);
  EXPECT_EQ(shape.ToString(), "2x2+64 2x2+64 2x3+64 lossless");
  // Another prompt that fits has the same shape; the order of requests matters.
  const auto other = Encoded({.prompt = "a bicycle in the rain", .steps = 9, .guidance = 5}, 3);
  requests[0] = other.get();
  EXPECT_EQ(ShapeOf(requests), shape);
  std::reverse(requests.begin(), requests.end());
  EXPECT_NE(ShapeOf(requests), shape);
}

TEST_F(RecordedStepTest, ABackEndThatCannotServeIsAnError) {
  const auto request = Encoded({.prompt = "x"}, 1);
  RequestState* const one = request.get();
  const auto step = RecordedStep::Create(model_->dit(), 1, ShapeOf({&one, 1}), "sm90");
  ASSERT_FALSE(step.ok());
  EXPECT_NE(step.error().Message().find("sm90"), std::string::npos);
}

}  // namespace
}  // namespace segue::runtime
