// Pictures that several ranks make: the same on all of them, from run to run and in company; close
// to one rank's where sums have another order, equal where they have not. And what happens when a
// rank fails.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/dtype.h"
#include "comm/communicator.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/rank_stages.h"
#include "segue/engine.h"

namespace segue::runtime {
namespace {

std::string Emoji() { return std::string(SEGUE_SOURCE_DIR) + "/models/emoji"; }

// The emoji model's configurations with four heads, for weights out of a seed.
std::string FourHeads() {
  const std::string directory = testing::TempDir() + "segue_four_heads";
  std::filesystem::remove_all(directory);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Emoji())) {
    if (!entry.is_regular_file() || entry.path().extension() == ".safetensors") continue;
    const std::filesystem::path to = directory / std::filesystem::relative(entry.path(), Emoji());
    std::filesystem::create_directories(to.parent_path());
    std::filesystem::copy_file(entry.path(), to);
  }
  const std::string path = directory + "/transformer/config.json";
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::string six = "\"num_attention_heads\": 6";
  text.replace(text.find(six), six.size(), "\"num_attention_heads\": 4");
  std::ofstream(path) << text;
  return directory;
}

Request MakeRequest(const std::string& prompt = "red apple", uint64_t seed = 1) {
  Request request;
  request.prompt = prompt;
  request.negative_prompt = "blurry";
  request.width = 64;
  request.height = 48;
  request.steps = 3;
  request.guidance = 3.0;
  request.seed = seed;
  request.keep_stages = true;
  return request;
}

std::unique_ptr<Engine> Load(EngineOptions options) {
  if (options.model_directory.empty()) options.model_directory = Emoji();
  if (options.threads == 0) options.threads = 2;
  auto engine = Engine::Load(options);
  EXPECT_TRUE(engine.ok()) << engine.error().Message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

Picture Draw(const EngineOptions& options, const Request& request = MakeRequest()) {
  const auto engine = Load(options);
  if (engine == nullptr) return {};
  auto picture = engine->Generate(request);
  EXPECT_TRUE(picture.ok()) << picture.error().Message();
  return picture.ok() ? std::move(*picture) : Picture{};
}

const std::vector<float>& Stage(const Picture& picture, const std::string& name) {
  static const std::vector<float> kNone;
  for (const StageTensor& stage : picture.stages) {
    if (stage.name == name) return stage.values;
  }
  ADD_FAILURE() << "no stage " << name;
  return kNone;
}

double RelativeError(const std::vector<float>& got, const std::vector<float>& wanted) {
  if (got.size() != wanted.size() || got.empty()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(double{got[i]} - wanted[i], 2);
    norm += std::pow(double{wanted[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

void ExpectSame(const Picture& a, const Picture& b) {
  EXPECT_EQ(a.image.rgb, b.image.rgb);
  ASSERT_EQ(a.stages.size(), b.stages.size());
  ASSERT_FALSE(a.stages.empty());
  for (size_t i = 0; i < a.stages.size(); ++i) {
    EXPECT_EQ(a.stages[i].name, b.stages[i].name);
    EXPECT_TRUE(a.stages[i].values == b.stages[i].values) << a.stages[i].name;
  }
}

// float32 sums in another order: what a product's K elements lose against each other, some 1e-7 of
// its norm, through all blocks and steps.
constexpr double kOrderNoise = 1e-5;

void ExpectClose(const Picture& got, const Picture& one) {
  // One rank encodes, and the noise is a function of the seed.
  for (const char* same : {"prompt.embeddings", "negative.embeddings", "noise", "sigmas"}) {
    EXPECT_EQ(Stage(got, same), Stage(one, same)) << same;
  }
  EXPECT_NE(Stage(got, "final_latents"), Stage(one, "final_latents"));
  EXPECT_LT(RelativeError(Stage(got, "final_latents"), Stage(one, "final_latents")), kOrderNoise);
  ASSERT_EQ(got.image.rgb.size(), one.image.rgb.size());
  for (size_t i = 0; i < got.image.rgb.size(); ++i) {
    EXPECT_LE(std::abs(int{got.image.rgb[i]} - int{one.image.rgb[i]}), 1) << i;
  }
}

TEST(Ranks, TensorParallelPicturesDifferByTheOrderOfSumsAlone) {
  const Picture one = Draw({});
  for (const int ranks : {2, 3, 6}) {
    SCOPED_TRACE(ranks);
    const Picture many = Draw({.tensor_parallel = ranks});
    ExpectClose(many, one);
    ExpectSame(many, Draw({.threads = 7, .tensor_parallel = ranks}));
  }
}

TEST(Ranks, FourRanksOfFourHeads) {
  const std::string directory = FourHeads();
  const auto draw = [&](int ranks) {
    return Draw({.model_directory = directory, .random_weights = 5, .tensor_parallel = ranks});
  };
  const Picture one = draw(1);
  ExpectClose(draw(2), one);
  ExpectClose(draw(4), one);
}

TEST(Ranks, ABranchARankGivesTheBytesOfOneRank) {
  ExpectSame(Draw({.cfg_parallel = true}), Draw({}));
  ExpectSame(Draw({.bf16_rounding = true, .cfg_parallel = true}), Draw({.bf16_rounding = true}));
}

TEST(Ranks, BFloat16RoundingSurvivesSums) {
  const Picture one = Draw({.bf16_rounding = true});
  const Picture two = Draw({.bf16_rounding = true, .tensor_parallel = 2});
  // A sum that falls on the other side of a rounding moves by 2^-8 of itself.
  EXPECT_LT(RelativeError(Stage(two, "final_latents"), Stage(one, "final_latents")), 0.02);
  for (const float value : Stage(two, "step.000.latents")) {
    EXPECT_EQ(value, BF16ToFloat(FloatToBF16(value)));
  }
}

TEST(Ranks, CompanyDoesNotChangeAPicture) {
  for (const bool splits : {false, true}) {
    SCOPED_TRACE(splits);
    const EngineOptions options = {.tensor_parallel = splits ? 1 : 2, .cfg_parallel = splits};
    const Request first = MakeRequest("cat face", 3);
    Request second = MakeRequest("a long prompt about a green tree", 4);
    second.width = 32;
    second.steps = 2;
    const Picture alone[] = {Draw(options, first), Draw(options, second)};
    const auto engine = Load(options);
    ASSERT_NE(engine, nullptr);
    const auto one = engine->Submit(first);
    ASSERT_TRUE(one.ok());
    ASSERT_TRUE(engine->Step().ok());
    const auto cancelled = engine->Submit(MakeRequest("dog"));
    const auto two = engine->Submit(second);
    ASSERT_TRUE(cancelled.ok() && two.ok());
    ASSERT_TRUE(engine->Step().ok());
    ASSERT_TRUE(engine->Cancel(*cancelled).ok());
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(engine->Step().ok());
    const auto pictures = {engine->Take(*one), engine->Take(*two)};
    size_t i = 0;
    for (const auto& picture : pictures) {
      ASSERT_TRUE(picture.ok()) << picture.error().Message();
      ExpectSame(*picture, alone[i++]);
    }
    EXPECT_TRUE(engine->health().ok());
  }
}

TEST(Ranks, RequestsWithoutGuidanceJoinTensorRanksOnly) {
  Request plain = MakeRequest();
  plain.guidance = 1.0;
  plain.negative_prompt.reset();
  EXPECT_LT(RelativeError(Stage(Draw({.tensor_parallel = 2}, plain), "final_latents"),
                          Stage(Draw({}, plain), "final_latents")),
            kOrderNoise);
  const auto engine = Load({.cfg_parallel = true});
  ASSERT_NE(engine, nullptr);
  const auto refused = engine->Submit(plain);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().argument, "guidance");
  EXPECT_TRUE(engine->Generate(MakeRequest()).ok());
}

TEST(Ranks, LayoutsThatThereAreNoneOfAreRefused) {
  const auto error = [](EngineOptions options) {
    options.model_directory = Emoji();
    const auto engine = Engine::Load(options);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? "" : engine.error().argument;
  };
  EXPECT_EQ(error({.tensor_parallel = 0}), "tensor_parallel");
  EXPECT_EQ(error({.tensor_parallel = 9}), "tensor_parallel");
  EXPECT_EQ(error({.tensor_parallel = 4}), "transformer: num_attention_heads");
  EXPECT_EQ(error({.tensor_parallel = 2, .cfg_parallel = true}), "cfg_parallel");
  EXPECT_EQ(error({.device = "cuda", .cfg_parallel = true}), "cfg_parallel");
}

// Memory that refuses one allocation, whichever thread asks.
class RefusingMemory final : public DeviceMemory {
 public:
  void RefuseAfter(int allocations) { refuse_ = allocations + 1; }
  void* Allocate(int64_t bytes) override {
    if (refuse_ > 0 && refuse_.fetch_sub(1) == 1) return nullptr;
    return HostMemory().Allocate(bytes);
  }
  void Free(void* pointer) override { HostMemory().Free(pointer); }

 private:
  std::atomic<int> refuse_{0};
};

class RankStagesTest : public testing::Test {
 protected:
  void SetUp() override {
    auto checkpoint = model::Checkpoint::Open(Emoji());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
    checkpoint_ = std::make_unique<model::Checkpoint>(std::move(*checkpoint));
  }

  std::unique_ptr<RankStages> Make(int ranks,
                                   std::chrono::milliseconds limit = std::chrono::minutes(1)) {
    auto stages = RankStages::OnHost({.checkpoint = checkpoint_.get(),
                                      .layout = {.tensor = ranks},
                                      .threads = 2,
                                      .memory = &memory_,
                                      .time_limit = limit});
    EXPECT_TRUE(stages.ok()) << stages.error().Message();
    return stages.ok() ? std::move(*stages) : nullptr;
  }

  RequestState MakeState(RequestId id = 1) const {
    RequestState state;
    state.id = id;
    Request request = MakeRequest();
    // Large enough that a step's workspace outgrows that of encoding.
    request.width = 160;
    request.height = 160;
    state.settings =
        *ResolveSettings(request, checkpoint_->defaults(), checkpoint_->dit_config().in_channels);
    state.schedule = *MakeNoiseSchedule(checkpoint_->flow_match_config(), 3, 100);
    const auto tokenizer = model::Tokenizer::Load(checkpoint_->tokenizer_directory());
    state.prompts = {*tokenizer->EncodePrompt("a cat"), *tokenizer->EncodePrompt(" ")};
    return state;
  }

  static Status Step(RankStages& stages, RequestState& state) {
    state.status = {};
    RequestState* request = &state;
    stages.Denoise({&request, 1});
    return state.status;
  }

  RefusingMemory memory_;
  std::unique_ptr<model::Checkpoint> checkpoint_;
};

TEST_F(RankStagesTest, HostMemoryDoesNotGrowWithRanks) {
  std::vector<int64_t> totals;
  for (const int ranks : {3, 6}) {
    const auto stages = Make(ranks);
    ASSERT_NE(stages, nullptr);
    for (int rank = 1; rank < ranks; ++rank) {
      EXPECT_EQ(stages->copied_bytes(rank), stages->copied_bytes(0));
    }
    totals.push_back(ranks * stages->copied_bytes(0));
  }
  EXPECT_GT(totals[0], 0);
  EXPECT_EQ(totals[1], totals[0]);
  // On two ranks text's feed-forward network is whole, a view into the file like all that is.
  const auto two = Make(2);
  ASSERT_NE(two, nullptr);
  EXPECT_LT(2 * two->copied_bytes(0), totals[0]);
}

// One rank alone lacks memory, before it has begun or in a step: the request has the error, the
// ranks go on.
TEST_F(RankStagesTest, MemoryThatOneRankLacksHarmsNothingElse) {
  const auto good = Make(2);
  RequestState wanted = MakeState();
  ASSERT_TRUE(good->Encode(wanted).ok());
  while (!wanted.done()) ASSERT_TRUE(Step(*good, wanted).ok());
  ASSERT_TRUE(good->Decode(wanted).ok());
  int refused = 0;
  // Of either rank: blocks and workspaces of encoding and of the first step.
  for (int k = 0; k < 5; ++k) {
    const auto stages = Make(2);
    ASSERT_NE(stages, nullptr);
    RequestState state = MakeState();
    memory_.RefuseAfter(k);
    Status status = stages->Encode(state);
    if (!status.ok()) {
      EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
      ++refused;
      state = MakeState();
      ASSERT_TRUE(stages->Encode(state).ok());
    }
    status = Step(*stages, state);
    if (!status.ok()) {
      EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
      EXPECT_EQ(state.step, 0);
      ++refused;
    }
    while (!state.done()) ASSERT_TRUE(Step(*stages, state).ok());
    EXPECT_TRUE(stages->health().ok());
    ASSERT_TRUE(stages->Decode(state).ok());
    EXPECT_EQ(state.image.rgb, wanted.image.rgb);
    memory_.RefuseAfter(-1);
  }
  EXPECT_EQ(refused, 5);
}

TEST_F(RankStagesTest, ARankThatFailsEndsItsRequestsAndTheEngineSaysSo) {
  const auto stages = Make(3);
  ASSERT_NE(stages, nullptr);
  RequestState first = MakeState(1), second = MakeState(2);
  ASSERT_TRUE(stages->Encode(first).ok());
  ASSERT_TRUE(stages->Encode(second).ok());
  ASSERT_TRUE(Step(*stages, first).ok());
  stages->group().rank(1).Fail({.code = ErrorCode::kInternal, .operation = "burn"});
  RequestState* both[] = {&first, &second};
  stages->Denoise(both);
  for (const RequestState* request : both) {
    ASSERT_FALSE(request->status.ok());
    const std::string message = request->status.error().Message();
    EXPECT_NE(message.find("burn"), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1 failed at call"), std::string::npos) << message;
    EXPECT_NE(message.find(" bytes"), std::string::npos) << message;
  }
  EXPECT_FALSE(stages->health().ok());
  EXPECT_FALSE(stages->Decode(first).ok());
  RequestState third = MakeState(3);
  EXPECT_FALSE(stages->Encode(third).ok());
  for (const RequestState* request : both) stages->Forget(*request);
}

TEST_F(RankStagesTest, ARankThatFailsInTheMiddleOfAStepHangsNobody) {
  for (int round = 0; round < 8; ++round) {
    const auto stages = Make(2);
    ASSERT_NE(stages, nullptr);
    RequestState state = MakeState();
    ASSERT_TRUE(stages->Encode(state).ok());
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
      stages->group().rank(round % 2).Fail({.code = ErrorCode::kInternal, .operation = "burn"});
    });
    while (!state.done() && Step(*stages, state).ok()) {
    }
    killer.join();
    EXPECT_FALSE(stages->health().ok());
    EXPECT_FALSE(Step(*stages, state).ok());
    stages->Forget(state);
  }
}

TEST(RankMeeting, AgreesOnWhatOneRankBrings) {
  RankMeeting meeting(3, std::chrono::minutes(1));
  for (int round = 0; round < 100; ++round) {
    std::vector<std::thread> threads;
    std::vector<Status> outcomes(3);
    threads.reserve(3);
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        Status own;
        if (round % 4 == rank) own = Error{.code = ErrorCode::kOutOfMemory, .operation = "take"};
        outcomes[static_cast<size_t>(rank)] = meeting.Agree(own);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& outcome : outcomes) EXPECT_EQ(outcome.ok(), round % 4 == 3);
  }
  EXPECT_TRUE(meeting.health().ok());
}

TEST(RankMeeting, WaitsForNobodyLongerThanItSays) {
  RankMeeting meeting(2, std::chrono::milliseconds(5));
  const Status missed = meeting.Agree({});
  ASSERT_FALSE(missed.ok());
  EXPECT_EQ(missed.error().got, "1 of 2");
  EXPECT_FALSE(meeting.Agree({}).ok());
  EXPECT_FALSE(meeting.health().ok());
}

}  // namespace
}  // namespace segue::runtime
