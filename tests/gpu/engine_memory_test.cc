// The memory of an engine on a GPU: as planned, without modulation's weights, and running out.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda_memory.h"
#include "device/failing_memory.h"
#include "device/growing_memory.h"
#include "gpu/device_rig.h"
#include "runtime/engine_memory.h"
#include "segue/engine.h"

namespace segue {
namespace {

// A path of the sources, or of the working directory where the program was carried.
std::filesystem::path InSources(const std::string& path) {
  const std::filesystem::path in_sources = std::filesystem::path(SEGUE_SOURCE_DIR) / path;
  return std::filesystem::exists(in_sources) ? in_sources : std::filesystem::path(path);
}

std::string EmojiModel() { return InSources("models/emoji").string(); }

// A directory of its own that goes away.
class Scratch {
 public:
  explicit Scratch(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Request Wish(int width, int height, int steps) {
  Request request;
  request.prompt = "red apple";
  request.width = width;
  request.height = height;
  request.steps = steps;
  request.guidance = 4;
  request.seed = 11;
  return request;
}

std::unique_ptr<Engine> Load(const EngineOptions& options) {
  auto engine = Engine::Load(options);
  if (engine.ok()) return std::move(*engine);
  ADD_FAILURE() << engine.error().Message();
  return nullptr;
}

// What the engine allocates is what was planned, within 3 %.
void ExpectAsPlanned(const Engine& engine) {
  const auto memory = engine.memory();
  ASSERT_TRUE(memory.ok()) << memory.error().Message();
  EXPECT_LE(static_cast<double>(memory->peak), 1.03 * static_cast<double>(memory->planned));
  EXPECT_GE(static_cast<double>(memory->peak), 0.97 * static_cast<double>(memory->planned));
  EXPECT_LE(memory->allocated, memory->peak);
  // The driver's own part, for the log.
  ::testing::Test::RecordProperty("planned", std::to_string(memory->planned));
  ::testing::Test::RecordProperty("peak", std::to_string(memory->peak));
  ::testing::Test::RecordProperty("device", std::to_string(memory->device));
  std::printf("planned %lld, allocated at most %lld, now %lld; less free on the device %lld\n",
              static_cast<long long>(memory->planned), static_cast<long long>(memory->peak),
              static_cast<long long>(memory->allocated), static_cast<long long>(memory->device));
}

class EngineMemoryGpu : public testing::Test {
 protected:
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }
};

TEST_F(EngineMemoryGpu, IsAsPlanned) {
  for (const int side : {128, 256, 1024}) {
    const auto engine = Load({.model_directory = EmojiModel(), .device = "cuda"});
    ASSERT_TRUE(engine);
    const auto picture = engine->Generate(Wish(side, side, 3));
    ASSERT_TRUE(picture.ok()) << picture.error().Message();
    ExpectAsPlanned(*engine);
  }
}

TEST_F(EngineMemoryGpu, IsAsPlannedForRequestsTogether) {
  const auto engine = Load({.model_directory = EmojiModel(), .device = "cuda"});
  ASSERT_TRUE(engine);
  std::vector<RequestId> ids;
  for (const int side : {1024, 768, 512}) {
    const auto id = engine->Submit(Wish(side, side, 3));
    ASSERT_TRUE(id.ok()) << id.error().Message();
    ids.push_back(*id);
  }
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(engine->Step().ok());
  for (const RequestId id : ids) EXPECT_TRUE(engine->Take(id).ok());
  ExpectAsPlanned(*engine);
}

TEST_F(EngineMemoryGpu, NamedSchedulesNeedNoModulationWeights) {
  const auto any = Load({.model_directory = EmojiModel(), .device = "cuda"});
  const auto named = Load({.model_directory = EmojiModel(),
                           .device = "cuda",
                           .schedules = {{.steps = 6, .width = 128, .height = 128},
                                         {.steps = 5, .width = 64, .height = 96}}});
  ASSERT_TRUE(any && named);
  EXPECT_LT(named->memory()->allocated, any->memory()->allocated);
  for (const Request& request : {Wish(128, 128, 6), Wish(64, 96, 5), Wish(96, 64, 5)}) {
    const auto got = named->Generate(request);
    const auto want = any->Generate(request);
    ASSERT_TRUE(got.ok()) << got.error().Message();
    ASSERT_TRUE(want.ok()) << want.error().Message();
    EXPECT_EQ(got->image.rgb, want->image.rgb);
  }
  const auto refused = named->Submit(Wish(128, 128, 7));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().wanted.find("6 steps at 128x128, 5 steps at 64x96"), std::string::npos);
  EXPECT_FALSE(named->Validate(Wish(128, 128, 7)).ok());
  ExpectAsPlanned(*named);
}

// Qwen-Image's own size, out of a seed: resident with everything below 60 GB, with one schedule's
// modulation below 46 GB, from the first allocation on.
TEST_F(EngineMemoryGpu, FullSizeIsAsPlanned) {
  const Scratch model("segue_full_size_");
  std::filesystem::copy(InSources("models/qwen_image"), model.path(),
                        std::filesystem::copy_options::recursive);
  std::filesystem::copy(InSources("models/emoji/tokenizer"), model.path() / "tokenizer",
                        std::filesystem::copy_options::recursive);
  for (const bool one_schedule : {false, true}) {
    const int64_t limit = one_schedule ? 46'000'000'000 : 60'000'000'000;
    if (FreeAndTotal()->free_bytes < limit + (int64_t{2} << 30))
      GTEST_SKIP() << "too little memory";
    EngineOptions options = {
        .model_directory = model.path().string(), .device = "cuda", .random_weights = 1};
    if (one_schedule) options.schedules = {{.steps = 2, .width = 1024, .height = 1024}};
    const auto engine = Load(options);
    ASSERT_TRUE(engine);
    const auto picture = engine->Generate(Wish(1024, 1024, 2));
    // Weights out of a seed draw nothing, and may well overflow.
    EXPECT_TRUE(picture.ok() || picture.error().code == ErrorCode::kNonFinite)
        << picture.error().Message();
    ExpectAsPlanned(*engine);
    EXPECT_LE(engine->memory()->peak, limit);
    EXPECT_LE(engine->memory()->device, limit);
  }
}

bool HasNumber(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

struct Refusals {
  int64_t loads = 0;         // that failed
  int64_t requests = 0;      // that failed
  int64_t without_harm = 0;  // of what only makes things faster
};

// One run with the k-th allocation of `failing` refused: what fails says so with numbers and leaves
// nothing behind, and what is asked for again comes as if nothing had been.
void RunWithRefusal(const EngineOptions& options, const EngineMemory& memory,
                    const FailingMemory& failing, const std::vector<uint8_t>& want,
                    Refusals* refusals) {
  const Request request = Wish(96, 96, 3);
  auto engine = EngineLoader::Load(options, memory);
  const bool loaded = engine.ok();
  if (!loaded) {
    EXPECT_EQ(engine.error().code, ErrorCode::kOutOfMemory) << engine.error().Message();
    EXPECT_TRUE(HasNumber(engine.error().wanted)) << engine.error().Message();
    EXPECT_EQ(failing.live(), 0);
    ++refusals->loads;
    engine = EngineLoader::Load(options, memory);
    ASSERT_TRUE(engine.ok()) << engine.error().Message();
  }
  auto picture = (*engine)->Generate(request);
  if (!picture.ok()) {
    EXPECT_EQ(picture.error().code, ErrorCode::kOutOfMemory) << picture.error().Message();
    EXPECT_TRUE(HasNumber(picture.error().wanted)) << picture.error().Message();
    ++refusals->requests;
    picture = (*engine)->Generate(request);
  } else if (failing.refused() && loaded) {
    ++refusals->without_harm;
  }
  ASSERT_TRUE(picture.ok()) << picture.error().Message();
  EXPECT_EQ(picture->image.rgb, want);
}

TEST_F(EngineMemoryGpu, EveryAllocationMayFail) {
  // Choices are made once, else each run would time them.
  const Scratch cache("segue_memory_cache_");
  const EngineOptions options = {
      .model_directory = EmojiModel(), .device = "cuda", .cache_directory = cache.path().string()};
  const auto good = Load(options)->Generate(Wish(96, 96, 3));
  ASSERT_TRUE(good.ok()) << good.error().Message();
  const int64_t free_before = FreeAndTotal()->free_bytes;
  CudaMemory cuda(0);
  GrowingMemory growing(0);
  PinnedMemory locked;
  const struct {
    const char* name;
    DeviceMemory* memory;
    DeviceMemory* EngineMemory::* place;
  } kinds[] = {{"device", &cuda, &EngineMemory::device},
               {"workspace", &growing, &EngineMemory::workspace},
               {"page-locked", &locked, &EngineMemory::pinned}};
  for (const auto& kind : kinds) {
    Refusals refusals;
    int64_t k = 0;
    for (;; ++k) {
      SCOPED_TRACE(std::string(kind.name) + " memory, allocation " + std::to_string(k));
      FailingMemory failing(*kind.memory, k);
      EngineMemory memory;
      memory.*kind.place = &failing;
      RunWithRefusal(options, memory, failing, good->image.rgb, &refusals);
      EXPECT_EQ(failing.live(), 0);
      if (HasFatalFailure() || !failing.refused()) break;
    }
    std::printf("%s: %lld allocations; refused: %lld loads, %lld requests, %lld without harm\n",
                kind.name, static_cast<long long>(k), static_cast<long long>(refusals.loads),
                static_cast<long long>(refusals.requests),
                static_cast<long long>(refusals.without_harm));
    // The workspace is replaced where it cannot grow.
    EXPECT_GT(refusals.loads + refusals.requests + refusals.without_harm, 0);
    if (kind.memory != &growing) {
      EXPECT_GT(refusals.loads, 0);
      EXPECT_GT(refusals.requests, 0);
    }
    EXPECT_EQ(refusals.loads + refusals.requests + refusals.without_harm, k);
  }
  // Nothing leaks; the driver keeps a little of its own.
  EXPECT_LE(free_before - FreeAndTotal()->free_bytes, int64_t{64} << 20);
}

}  // namespace
}  // namespace segue
