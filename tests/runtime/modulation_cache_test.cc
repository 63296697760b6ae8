// Kept modulation against modulation tabulated afresh, on the host.
#include "runtime/modulation_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "model/weights/checkpoint.h"
#include "model/weights/weight_store.h"

namespace segue::runtime {
namespace {

class ModulationCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    auto checkpoint =
        model::Checkpoint::Open(std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().Message();
    checkpoint_ = std::make_unique<model::Checkpoint>(std::move(*checkpoint));
    model::WeightReader reader(checkpoint_->transformer());
    dit_ = std::make_unique<model::Dit>(checkpoint_->dit_config(), reader, single_);
    ASSERT_TRUE(reader.Finish().ok());
  }

  // A row of modulation, made on its own.
  std::vector<float> Fresh(float timestep) {
    const model::DitConfig& config = dit_->config();
    Arena arena = *Arena::Create(HostMemory(), int64_t{1} << 20);
    const auto workspace = model::DitTimeWorkspace::LayOut(arena, config, 1, DType::kF32);
    std::vector<float> row(static_cast<size_t>(config.modulation_width()));
    EXPECT_TRUE(dit_->TabulateModulation(&timestep,
                                         ContiguousMatrix(row.data(), 1, config.modulation_width()),
                                         workspace, context_)
                    .ok());
    return row;
  }

  // Whether the cache's row has the bytes; the last block's text stream ends after two slices.
  bool RowIs(const ModulationCache& cache, int32_t row, const std::vector<float>& want) {
    const model::DitConfig& config = dit_->config();
    const int64_t hidden = config.hidden();
    const int64_t unused = (12 * config.num_layers - 4) * hidden;
    const auto* got = cache.table().Row<float>(row);
    const auto same = [&](int64_t begin, int64_t count) {
      return std::memcmp(got + begin, want.data() + begin,
                         static_cast<size_t>(count) * sizeof(float)) == 0;
    };
    return same(0, unused) && same(unused + 4 * hidden, 2 * hidden);
  }

  comm::SingleRank single_;
  ThreadPool pool_{1};
  model::ForwardContext context_{.kernels = {.stream = Stream::Cpu(pool_)},
                                 .communicator = &single_};
  std::unique_ptr<model::Checkpoint> checkpoint_;
  std::unique_ptr<model::Dit> dit_;
};

TEST_F(ModulationCacheTest, RowsHaveTheBytesOfFreshOnesWhateverTheirCompany) {
  auto cache = ModulationCache::Create(*dit_, 1, 3, HostMemory());
  ASSERT_TRUE(cache.ok()) << cache.error().Message();
  const std::vector<std::vector<float>> calls = {
      {1.0f, 0.5f}, {0.5f, 0.25f, 0.5f}, {0.125f}, {1.0f, 0.25f, 0.125f}, {0.75f, 0.0f, 1.0f}};
  for (const std::vector<float>& timesteps : calls) {
    const auto rows = cache->Rows(timesteps, context_);
    ASSERT_TRUE(rows.ok()) << rows.error().Message();
    for (size_t i = 0; i < timesteps.size(); ++i) {
      EXPECT_TRUE(RowIs(*cache, (*rows)[i], Fresh(timesteps[i]))) << timesteps[i];
    }
  }
  EXPECT_GT(cache->hits(), 0);
  const auto too_many = cache->Rows(std::vector<float>{0.1f, 0.2f, 0.3f, 0.4f}, context_);
  ASSERT_FALSE(too_many.ok());
  EXPECT_EQ(too_many.error().argument, "timesteps");
}

TEST_F(ModulationCacheTest, SealedItNeedsNoWeightsAndKnowsNoOtherTimestep) {
  const std::vector<float> named = {1.0f, 0.5f, 0.25f};
  std::vector<std::vector<float>> fresh;
  for (const float timestep : named) fresh.push_back(Fresh(timestep));
  auto cache = ModulationCache::Create(*dit_, 1, 3, HostMemory());
  ASSERT_TRUE(cache.ok()) << cache.error().Message();
  ASSERT_TRUE(cache->Rows(named, context_).ok());
  cache->Seal();
  dit_.reset();
  EXPECT_TRUE(cache->Contains(0.5f));
  EXPECT_FALSE(cache->Contains(0.75f));
  const auto refused = cache->Rows(std::vector<float>{0.5f, 0.75f}, context_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().wanted, "one of the 3 tabulated at load");
  const auto rows = cache->Rows(named, context_);
  ASSERT_TRUE(rows.ok()) << rows.error().Message();
  checkpoint_.reset();
  for (size_t i = 0; i < named.size(); ++i) {
    const auto* got = cache->table().Row<float>((*rows)[i]);
    EXPECT_EQ(std::memcmp(got, fresh[i].data(), 64 * sizeof(float)), 0) << named[i];
  }
}

// What tabulates before the other weights come: nothing else is read. Host memory stands in for a
// GPU's.
TEST_F(ModulationCacheTest, TheGroupOfItsWeightsIsAllItNeeds) {
  const auto row_with = [this](model::WeightStore store) {
    for (int pass = 0; pass < 2; ++pass) {
      model::WeightReader reader(checkpoint_->transformer(), store);
      dit_ = std::make_unique<model::Dit>(checkpoint_->dit_config(), reader, single_);
      EXPECT_TRUE(reader.Finish().ok());
      EXPECT_TRUE(store.Allocate().ok());
    }
    EXPECT_TRUE(store.Load().ok());
    EXPECT_GT(store.bytes(model::WeightGroup::kModulation), 0);
    auto cache = ModulationCache::Create(*dit_, 1, 2, HostMemory());
    EXPECT_TRUE(cache.ok());
    const auto rows = cache->Rows(std::vector<float>{0.5f, 0.75f}, context_);
    EXPECT_TRUE(rows.ok());
    const auto* row = cache->table().Row<float>((*rows)[1]);
    // All but what the last block's text stream leaves unwritten.
    const model::DitConfig& config = dit_->config();
    return std::vector<float>(row, row + (12 * config.num_layers - 4) * config.hidden());
  };
  const model::WeightTarget target = {.kind = DeviceKind::kCpu};
  const std::vector<float> alone = row_with(
      model::WeightStore::DeviceGroup(HostMemory(), target, model::WeightGroup::kModulation));
  const std::vector<float> whole = row_with(model::WeightStore::Device(HostMemory(), target));
  ASSERT_EQ(alone.size(), whole.size());
  EXPECT_EQ(std::memcmp(alone.data(), whole.data(), alone.size() * sizeof(float)), 0);
}

class NoMemory : public DeviceMemory {
 public:
  void* Allocate(int64_t) override { return nullptr; }
  void Free(void*) override {}
};

TEST_F(ModulationCacheTest, WithoutMemoryThereIsAnError) {
  NoMemory none;
  const auto cache = ModulationCache::Create(*dit_, 1, 64, none);
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace segue::runtime
