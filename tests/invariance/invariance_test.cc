// What a request's bytes may not depend on: its company, the threads, the process.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "segue/engine.h"

namespace segue {
namespace {

std::string TinyModel() { return std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model"; }
std::string EmojiModel() { return std::string(SEGUE_SOURCE_DIR) + "/models/emoji"; }

std::unique_ptr<Engine> LoadEngine(int threads, const std::string& directory = TinyModel()) {
  auto engine = Engine::Load({.model_directory = directory, .threads = threads});
  if (engine.ok()) return std::move(engine).value();
  ADD_FAILURE() << engine.error().Message();
  return nullptr;
}

// A prompt of `words` words; a word of these gives two or more tokens of the tiny tokenizer.
std::string Words(int words) {
  std::string text;
  for (int i = 0; i < words; ++i) text += "cat" + std::to_string(i) + " ";
  return text;
}

Request MakeRequest(const std::string& prompt, int width, int height, int steps, uint64_t seed) {
  Request request;
  request.prompt = prompt;
  request.negative_prompt = " ";
  request.width = width;
  request.height = height;
  request.steps = steps;
  request.guidance = 4.0;
  request.seed = seed;
  request.keep_stages = true;
  return request;
}

// Everything that was computed for a request, as raw numbers.
std::vector<float> AllNumbers(const Picture& picture) {
  std::vector<float> numbers;
  for (const StageTensor& stage : picture.stages) {
    numbers.insert(numbers.end(), stage.values.begin(), stage.values.end());
  }
  numbers.insert(numbers.end(), picture.image.rgb.begin(), picture.image.rgb.end());
  return numbers;
}

// Runs requests together; request i joins before step `joins[i]`. Pictures in order of requests.
std::vector<Picture> RunTogether(Engine& engine, const std::vector<Request>& requests,
                                 const std::vector<int>& joins) {
  std::map<RequestId, size_t> running;
  std::vector<Picture> pictures(requests.size());
  size_t done = 0;
  for (int step = 0; done < requests.size() && step < 200; ++step) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (joins[i] != step) continue;
      const auto id = engine.Submit(requests[i]);
      EXPECT_TRUE(id.ok()) << id.error().Message();
      if (!id.ok()) return {};
      running[*id] = i;
    }
    const auto report = engine.Step();
    EXPECT_TRUE(report.ok()) << report.error().Message();
    if (!report.ok()) return {};
    for (const RequestId id : report->finished) {
      auto picture = engine.Take(id);
      EXPECT_TRUE(picture.ok()) << picture.error().Message();
      if (!picture.ok()) return {};
      pictures[running.at(id)] = std::move(picture).value();
      ++done;
    }
  }
  return pictures;
}

// B003: A, B and C have 5, about 200 and 512 text rows and three sizes.
class CompanyTest : public testing::Test {
 protected:
  void SetUp() override {
    requests_ = {MakeRequest("", 48, 80, 3, 1), MakeRequest(Words(60), 112, 32, 5, 2),
                 MakeRequest(Words(300), 16, 16, 4, 3)};
    engine_ = LoadEngine(2);
    ASSERT_NE(engine_, nullptr);
    for (const Request& request : requests_) {
      auto picture = engine_->Generate(request);
      ASSERT_TRUE(picture.ok()) << picture.error().Message();
      rows_.push_back(picture->prompt_tokens);
      alone_.push_back(AllNumbers(*picture));
    }
  }

  // Each of `members` (indices of requests_) has the bytes it has alone.
  void ExpectUnchanged(const std::vector<size_t>& members, const std::vector<int>& joins) {
    std::vector<Request> requests;
    for (const size_t member : members) requests.push_back(requests_[member]);
    const std::vector<Picture> pictures = RunTogether(*engine_, requests, joins);
    ASSERT_EQ(pictures.size(), members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      EXPECT_EQ(AllNumbers(pictures[i]), alone_[members[i]])
          << "request " << members[i] << " in position " << i << " of " << members.size();
    }
  }

  std::vector<Request> requests_;
  std::unique_ptr<Engine> engine_;
  std::vector<int> rows_;
  std::vector<std::vector<float>> alone_;
};

TEST_F(CompanyTest, BytesDoNotDependOnWhoRunsBesideNorOnTheOrder) {
  EXPECT_EQ(rows_[0], 5);
  EXPECT_GT(rows_[1], 150);
  EXPECT_LT(rows_[1], 400);
  EXPECT_EQ(rows_[2], 512);
  ExpectUnchanged({0, 1}, {0, 0});
  ExpectUnchanged({1, 0}, {0, 0});
  ExpectUnchanged({0, 1, 2}, {0, 0, 0});
  ExpectUnchanged({2, 0, 1}, {0, 0, 0});
  ExpectUnchanged({0, 0, 0, 0}, {0, 0, 0, 0});
}

TEST_F(CompanyTest, BytesDoNotDependOnWhenOthersJoinOrLeave) {
  ExpectUnchanged({0, 1, 2}, {0, 1, 2});
  ExpectUnchanged({0, 1, 2}, {2, 1, 0});
  ExpectUnchanged({1, 0, 0, 2}, {0, 1, 3, 4});
}

// Cancelling a neighbour changes nothing for the rest.
TEST_F(CompanyTest, BytesDoNotDependOnACancelledNeighbour) {
  const auto kept = engine_->Submit(requests_[1]);
  const auto cancelled = engine_->Submit(requests_[2]);
  ASSERT_TRUE(kept.ok() && cancelled.ok());
  ASSERT_TRUE(engine_->Step().ok());
  ASSERT_TRUE(engine_->Cancel(*cancelled).ok());
  bool finished = false;
  for (int step = 0; step < 10 && !finished; ++step) {
    const auto report = engine_->Step();
    ASSERT_TRUE(report.ok()) << report.error().Message();
    finished = std::count(report->finished.begin(), report->finished.end(), *kept) > 0;
  }
  ASSERT_TRUE(finished);
  const auto picture = engine_->Take(*kept);
  ASSERT_TRUE(picture.ok()) << picture.error().Message();
  EXPECT_EQ(AllNumbers(*picture), alone_[1]);
}

TEST(Threads, BytesDoNotDependOnTheirNumber) {
  const Request request = MakeRequest(Words(20), 112, 80, 3, 7);
  std::vector<float> one;
  for (const int threads : {1, 2, 3}) {
    const std::unique_ptr<Engine> engine = LoadEngine(threads);
    ASSERT_NE(engine, nullptr);
    const auto picture = engine->Generate(request);
    ASSERT_TRUE(picture.ok()) << picture.error().Message();
    if (threads == 1) {
      one = AllNumbers(*picture);
      ASSERT_FALSE(one.empty());
    }
    EXPECT_EQ(AllNumbers(*picture), one) << threads << " threads";
  }
}

// The same with the trained model, whose widths take the fast kernels' full tiles: company, thread
// count and the step at which the neighbours join, all at once.
TEST(EmojiModel, BytesDependOnTheRequestAlone) {
  const std::vector<Request> requests = {MakeRequest("red apple", 64, 64, 3, 1),
                                         MakeRequest(Words(40), 128, 96, 2, 2),
                                         MakeRequest("", 96, 96, 2, 3)};
  std::vector<std::vector<float>> alone;
  {
    const std::unique_ptr<Engine> engine = LoadEngine(1, EmojiModel());
    ASSERT_NE(engine, nullptr);
    for (const Request& request : requests) {
      const auto picture = engine->Generate(request);
      ASSERT_TRUE(picture.ok()) << picture.error().Message();
      alone.push_back(AllNumbers(*picture));
    }
  }
  for (const int threads : {2, 3}) {
    const std::unique_ptr<Engine> engine = LoadEngine(threads, EmojiModel());
    ASSERT_NE(engine, nullptr);
    const std::vector<Picture> pictures = RunTogether(*engine, requests, {0, 1, 0});
    ASSERT_EQ(pictures.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(AllNumbers(pictures[i]), alone[i]) << "request " << i << ", threads " << threads;
    }
  }
}

std::string OutputOf(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) return "";
  std::string output;
  std::array<char, 256> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) output += buffer.data();
  return output;
}

// B121: three fresh processes, with other numbers of threads, print one digest.
TEST(Processes, BytesAreTheSameInEveryProcess) {
  const std::string program = std::string(SEGUE_PICTURE_DIGEST) + " '" + TinyModel() + "' ";
  const std::string first = OutputOf(program + "2");
  EXPECT_EQ(first.size(), 17u) << first;  // 16 hexadecimal digits and a newline
  EXPECT_EQ(OutputOf(program + "2"), first);
  EXPECT_EQ(OutputOf(program + "3"), first);
}

// B111: a prompt at the limit stays finite, and within sane bounds, at every one of 20 steps.
TEST(LongPrompt, IsFiniteAtEveryStep) {
  const std::unique_ptr<Engine> engine = LoadEngine(2);
  ASSERT_NE(engine, nullptr);
  const auto picture = engine->Generate(MakeRequest(Words(400), 48, 48, 20, 11));
  ASSERT_TRUE(picture.ok()) << picture.error().Message();
  EXPECT_EQ(picture->prompt_tokens, 512);
  EXPECT_FALSE(picture->warnings.empty()) << "the prompt was cut";
  int steps = 0;
  for (const StageTensor& stage : picture->stages) {
    float largest = 0;
    for (const float value : stage.values) {
      ASSERT_TRUE(std::isfinite(value)) << stage.name;
      largest = std::max(largest, std::abs(value));
    }
    if (!stage.name.ends_with(".latents")) continue;
    ++steps;
    EXPECT_LT(largest, 100.0f) << stage.name;
    EXPECT_GT(largest, 0.0f) << stage.name;
  }
  EXPECT_EQ(steps, 20);
}

struct GuidanceCase {
  std::optional<std::string> negative;
  double guidance;
  bool guided;
};

// B007, B117, B118: the branch runs for a scale above 1 (beyond rounding), whatever the negative
// prompt says; an absent one is " ", and the result says which was used.
TEST(Guidance, BranchesForEveryCombination) {
  const std::unique_ptr<Engine> engine = LoadEngine(2);
  ASSERT_NE(engine, nullptr);
  const std::vector<GuidanceCase> cases = {
      {" ", 4.0, true},
      {"", 4.0, true},
      {std::nullopt, 4.0, true},
      {"blue", 1.0, false},
      {"blue", 0.0, false},
      {std::nullopt, 1.0, false},
      {" ", std::nextafter(1.0, 2.0), false},
      {" ", 1.0f + 5e-7f, false},
      {" ", 1.0000000000000002, false},
      {" ", 1.001, true},
  };
  for (const GuidanceCase& c : cases) {
    Request request = MakeRequest("a cat", 32, 16, 2, 5);
    request.negative_prompt = c.negative;
    request.guidance = c.guidance;
    const auto picture = engine->Generate(request);
    ASSERT_TRUE(picture.ok()) << picture.error().Message();
    const auto negatives = std::count_if(
        picture->stages.begin(), picture->stages.end(),
        [](const StageTensor& stage) { return stage.name.ends_with(".velocity.negative"); });
    EXPECT_EQ(negatives, c.guided ? 2 : 0) << c.guidance << " in two steps";
    EXPECT_EQ(picture->guided, c.guided) << c.guidance;
    EXPECT_EQ(picture->negative_prompt_tokens > 0, c.guided);
    if (c.guided) {
      EXPECT_EQ(picture->negative_prompt, c.negative.value_or(" "));
    }
  }
}

// B109: both prompts empty; the text is the template's suffix alone.
TEST(EmptyPrompts, MakeAPicture) {
  const std::unique_ptr<Engine> engine = LoadEngine(2);
  ASSERT_NE(engine, nullptr);
  Request request = MakeRequest("", 48, 32, 4, 6);
  request.negative_prompt = "";
  const auto picture = engine->Generate(request);
  ASSERT_TRUE(picture.ok()) << picture.error().Message();
  EXPECT_EQ(picture->prompt_tokens, 5);
  EXPECT_EQ(picture->negative_prompt_tokens, 5);
  const auto [darkest, brightest] =
      std::minmax_element(picture->image.rgb.begin(), picture->image.rgb.end());
  EXPECT_LT(*darkest, *brightest) << "not a flat picture";
}

// B060: a latent that is no number is refused before anything is computed.
TEST(NonFiniteLatents, AreRefusedAtSubmission) {
  const std::unique_ptr<Engine> engine = LoadEngine(1);
  ASSERT_NE(engine, nullptr);
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    Request request = MakeRequest("a cat", 32, 16, 2, 5);
    request.latents.assign(2 * 20, 0.5f);
    request.latents[17] = bad;
    const Status valid = engine->Validate(request);
    ASSERT_FALSE(valid.ok());
    EXPECT_NE(valid.error().Message().find("latents"), std::string::npos)
        << valid.error().Message();
    EXPECT_FALSE(engine->Submit(request).ok());
  }
}

}  // namespace
}  // namespace segue
