// Where a store puts weights, on the host and on a device; host memory stands in for a GPU's.
#include "model/weights/weight_store.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device/failing_memory.h"
#include "weights/weight_rig.h"

namespace segue::model {
namespace {

using segue::testing::Mentions;

constexpr WeightTarget kFakeGpu{.kind = DeviceKind::kCpu};

class WeightStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    weights_.Add("k", DType::kBF16, {24, 40});
    weights_.Add("k.bias", DType::kF32, {24});
    weights_.Add("q", DType::kF32, {24, 40});
    weights_.Add("v", DType::kF16, {8, 40});
    weights_.Add("v2", DType::kF16, {16, 40});
    weights_.Add("conv", DType::kBF16, {4, 3, 1, 3, 3});
    weights_.Write();
  }

  const void* InFile(const std::string& name) const {
    return weights_.table().Locate(name, weights_.Part(name).source.view.shape)->view.data;
  }

  // Both passes, then the elements.
  template <typename Place>
  void Run(WeightStore& store, const Place& place) {
    place();
    EXPECT_TRUE(store.counting());
    const Status allocated = store.Allocate();
    ASSERT_TRUE(allocated.ok()) << allocated.error().Message();
    EXPECT_FALSE(store.counting());
    place();
    const Result<WeightLoadReport> report = store.Load({.threads = 2, .chunk_bytes = 4096});
    ASSERT_TRUE(report.ok()) << report.error().Message();
  }

  TestWeights weights_;
};

TEST_F(WeightStoreTest, HostIsTheIdentity) {
  FailingMemory memory(HostMemory());
  WeightStore store = WeightStore::Host(memory);
  EXPECT_FALSE(store.on_device());
  const auto whole = store.Place(weights_.Part("q"));
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->data, InFile("q"));
  EXPECT_EQ(whole->dtype, DType::kF32);
  EXPECT_EQ(whole->shape, (Shape{24, 40}));
  const auto rows = store.Place(weights_.Part("q", WeightSlice::Rows(6, 12)));
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->data, static_cast<const float*>(InFile("q")) + 6 * 40);
  EXPECT_EQ(rows->shape, (Shape{12, 40}));
  // In a row in the file, of one type: a stack without a copy. Elsewhere parts only.
  const std::vector<WeightPart> together = {weights_.Part("v"), weights_.Part("v2")};
  const auto stacked = store.PlaceStacked(together);
  ASSERT_TRUE(stacked.ok());
  EXPECT_EQ(stacked->all.data, InFile("v"));
  EXPECT_EQ(stacked->all.shape, (Shape{24, 40}));
  const std::vector<WeightPart> apart = {weights_.Part("q"), weights_.Part("k")};
  const auto parts = store.PlaceStacked(apart);
  ASSERT_TRUE(parts.ok());
  EXPECT_FALSE(parts->all.present());
  EXPECT_EQ(parts->parts[1].data, InFile("k"));
  EXPECT_EQ(memory.asked(), 0);
  EXPECT_TRUE(store.Allocate().ok());
  EXPECT_TRUE(store.Load().ok());
}

TEST_F(WeightStoreTest, HostCopiesOnlyColumns) {
  FailingMemory memory(HostMemory());
  {
    WeightStore store = WeightStore::Host(memory);
    const auto columns = store.Place(weights_.Part("k", WeightSlice::Columns(10, 20)));
    ASSERT_TRUE(columns.ok());
    EXPECT_EQ(ElementsOf(*columns), weights_.Rounded("k", 0, 24, 10, 20));
    EXPECT_EQ(store.bytes(WeightGroup::kResident), 24 * 20 * 2);
    EXPECT_EQ(memory.live(), 1);
  }
  EXPECT_EQ(memory.live(), 0);
  FailingMemory none(HostMemory(), 0);
  WeightStore store = WeightStore::Host(none);
  const auto refused = store.Place(weights_.Part("k", WeightSlice::Columns(10, 20)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
}

TEST_F(WeightStoreTest, DevicePlacesEverythingAsBFloat16) {
  FailingMemory memory(HostMemory());
  {
    WeightStore store = WeightStore::Device(memory, kFakeGpu);
    std::vector<WeightView> views;
    Run(store, [&] {
      views.clear();
      for (const char* name : {"v", "k.bias", "q", "conv", "k"}) {
        const auto view = store.Place(weights_.Part(name));
        ASSERT_TRUE(view.ok());
        EXPECT_TRUE(view->present());
        views.push_back(*view);
      }
    });
    EXPECT_EQ(memory.live(), 1);
    size_t i = 0;
    for (const char* name : {"v", "k.bias", "q", "conv", "k"}) {
      EXPECT_EQ(ElementsOf(views[i]), weights_.Rounded(name)) << name;
      EXPECT_EQ(views[i].shape, weights_.Part(name).source.view.shape);
      const auto offset =
          static_cast<const char*>(views[i].data) - static_cast<const char*>(views[0].data);
      EXPECT_EQ(offset % WeightStore::kAlignment, 0);
      ++i;
    }
    EXPECT_EQ(store.bytes(WeightGroup::kResident), 768 + 256 + 2048 + 256 + 2048);
  }
  EXPECT_EQ(memory.live(), 0);
}

TEST_F(WeightStoreTest, DeviceStacksAndSlices) {
  WeightStore store = WeightStore::Device(HostMemory(), kFakeGpu);
  StackedWeight packed;
  StackedWeight thirds;
  WeightView columns;
  Run(store, [&] {
    const std::vector<WeightPart> qkv = {weights_.Part("q"), weights_.Part("k"),
                                         weights_.Part("v")};
    packed = *store.PlaceStacked(qkv);
    // The second half of each, as the second of two ranks has it.
    const std::vector<WeightPart> halves = {weights_.Part("q", WeightSlice::Rows(12, 12)),
                                            weights_.Part("k", WeightSlice::Rows(12, 12)),
                                            weights_.Part("v", WeightSlice::Rows(4, 4))};
    thirds = *store.PlaceStacked(halves);
    columns = *store.Place(weights_.Part("q", WeightSlice::Columns(15, 9)));
  });
  EXPECT_EQ(packed.all.shape, (Shape{56, 40}));
  std::vector<uint16_t> wanted = weights_.Rounded("q");
  for (const char* name : {"k", "v"}) {
    const std::vector<uint16_t> more = weights_.Rounded(name);
    wanted.insert(wanted.end(), more.begin(), more.end());
  }
  EXPECT_EQ(ElementsOf(packed.all), wanted);
  ASSERT_EQ(packed.parts.size(), 3u);
  EXPECT_EQ(packed.parts[1].data, static_cast<const uint16_t*>(packed.all.data) + 24 * 40);
  EXPECT_EQ(ElementsOf(packed.parts[2]), weights_.Rounded("v"));
  EXPECT_EQ(thirds.all.shape, (Shape{28, 40}));
  EXPECT_EQ(ElementsOf(thirds.parts[1]), weights_.Rounded("k", 12, 12, 0, 40));
  EXPECT_EQ(ElementsOf(thirds.parts[2]), weights_.Rounded("v", 4, 4, 0, 40));
  EXPECT_EQ(ElementsOf(columns), weights_.Rounded("q", 0, 24, 15, 9));
  EXPECT_EQ(columns.shape, (Shape{24, 9}));
}

TEST_F(WeightStoreTest, RefusesStacksThatDoNotFit) {
  WeightStore store = WeightStore::Device(HostMemory(), kFakeGpu);
  const std::vector<WeightPart> parts = {weights_.Part("q"),
                                         weights_.Part("k", WeightSlice::Columns(0, 20))};
  const auto stacked = store.PlaceStacked(parts);
  ASSERT_FALSE(stacked.ok());
  EXPECT_TRUE(Mentions(stacked.error(), {"\"k\"", "[24, 20]", "[24, 40]"}));
  const std::vector<WeightPart> mixed = {weights_.Part("q"), weights_.Part("k.bias")};
  EXPECT_FALSE(store.PlaceStacked(mixed).ok());
}

TEST_F(WeightStoreTest, AGroupMayComeAlone) {
  for (const WeightGroup group : {WeightGroup::kResident, WeightGroup::kModulation}) {
    FailingMemory memory(HostMemory());
    WeightStore store = WeightStore::DeviceGroup(memory, kFakeGpu, group);
    const bool resident = group == WeightGroup::kResident;
    WeightView k;
    WeightView q;
    StackedWeight stacked;
    Run(store, [&] {
      k = *store.Place(weights_.Part("k"));
      q = *store.Place(weights_.Part("q"), WeightGroup::kModulation);
      stacked =
          *store.PlaceStacked(std::vector<WeightPart>{weights_.Part("v"), weights_.Part("v2")},
                              WeightGroup::kModulation);
    });
    EXPECT_EQ(store.bytes(WeightGroup::kResident), resident ? 2048 : 0);
    EXPECT_EQ(store.bytes(WeightGroup::kModulation), resident ? 0 : 2048 + 2048);
    EXPECT_EQ(memory.live(), 1);
    // All have their shapes, those of the group their elements.
    EXPECT_EQ(k.shape, (Shape{24, 40}));
    EXPECT_EQ(stacked.all.shape, (Shape{24, 40}));
    EXPECT_EQ(stacked.parts[1].shape, (Shape{16, 40}));
    if (resident) {
      EXPECT_EQ(ElementsOf(k), weights_.Rounded("k"));
    } else {
      EXPECT_EQ(ElementsOf(q), weights_.Rounded("q"));
      EXPECT_EQ(ElementsOf(stacked.parts[1]), weights_.Rounded("v2"));
    }
  }
}

TEST_F(WeightStoreTest, WantsTheSecondPassLikeTheFirst) {
  WeightStore store = WeightStore::Device(HostMemory(), kFakeGpu);
  ASSERT_TRUE(store.Place(weights_.Part("k")).ok());
  ASSERT_TRUE(store.Allocate().ok());
  EXPECT_TRUE(store.Place(weights_.Part("k")).ok());
  const auto more = store.Place(weights_.Part("k.bias"));
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, ErrorCode::kInternal);
  EXPECT_FALSE(store.Place(weights_.Part("k"), WeightGroup::kModulation).ok());
}

// Every allocation of a load refused in turn: an error with numbers, nothing left behind, and the
// store can be tried again.
TEST_F(WeightStoreTest, SurvivesEveryRefusedAllocation) {
  for (int64_t k = 0;; ++k) {
    FailingMemory memory(HostMemory(), k);
    const WeightTarget target{.kind = DeviceKind::kCpu, .staging = &memory};
    {
      WeightStore store = WeightStore::Device(memory, target);
      const auto place = [&] {
        EXPECT_TRUE(store.Place(weights_.Part("k")).ok());
        EXPECT_TRUE(store.Place(weights_.Part("q"), WeightGroup::kModulation).ok());
      };
      place();
      Status status = store.Allocate();
      if (status.ok()) {
        place();
        const Result<WeightLoadReport> report = store.Load({.threads = 1});
        if (!report.ok()) status = report.error();
      } else {
        EXPECT_EQ(memory.live(), 0);
        EXPECT_TRUE(Mentions(status.error(), {"2048 bytes of 4096 in all"}));
        EXPECT_TRUE(store.Allocate().ok());
      }
      EXPECT_EQ(status.ok(), !memory.refused());
      EXPECT_TRUE(status.ok() || status.error().code == ErrorCode::kOutOfMemory);
    }
    EXPECT_EQ(memory.live(), 0);
    if (!memory.refused()) {
      EXPECT_GE(k, 3);  // two groups and memory to read into
      break;
    }
  }
}

TEST_F(WeightStoreTest, ReaderHandsViewsThrough) {
  WeightReader mapped(weights_.table());
  EXPECT_EQ(mapped.Take("q", {24, 40}).data, InFile("q"));
  EXPECT_EQ(mapped.Take("q", {24, 40}, {.slice = WeightSlice::Rows(1, 2)}).data,
            static_cast<const float*>(InFile("q")) + 40);
  EXPECT_TRUE(mapped.Finish().ok());
  EXPECT_FALSE(mapped.Take("q", {24, 40}, {.slice = WeightSlice::Columns(0, 2)}).present());
  ASSERT_FALSE(mapped.Finish().ok());
  EXPECT_EQ(mapped.Finish().error().code, ErrorCode::kUnsupported);

  WeightStore store = WeightStore::Device(HostMemory(), kFakeGpu);
  StackedWeight stacked;
  WeightView bias;
  Run(store, [&] {
    WeightReader reader(weights_.table(), store);
    const std::vector<StackedPart> parts = {{.name = "v", .shape = {8, 40}},
                                            {.name = "k", .shape = {24, 40}}};
    stacked = reader.TakeStacked(parts);
    bias = reader.Take("k.bias", {24}, {.group = WeightGroup::kModulation});
    EXPECT_FALSE(reader.TakeOptional("absent", {3}).present());
    EXPECT_TRUE(reader.Finish().ok());
    EXPECT_EQ(reader.Unused(), (std::vector<std::string>{"q", "v2", "conv"}));
  });
  EXPECT_EQ(ElementsOf(stacked.parts[1]), weights_.Rounded("k"));
  EXPECT_EQ(ElementsOf(bias), weights_.Rounded("k.bias"));

  WeightReader reader(weights_.table(), store);
  const std::vector<StackedPart> wrong = {{.name = "absent", .shape = {8, 40}},
                                          {.name = "k", .shape = {24, 41}}};
  EXPECT_TRUE(reader.TakeStacked(wrong).parts.empty());
  EXPECT_TRUE(Mentions(reader.Finish().error(), {"\"absent\"", "\"k\""}));
}

TEST_F(WeightStoreTest, PlacesTheCallersMemory) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  const WeightPart part{{.name = "made", .view = {values.data(), DType::kF32, {2, 4}}},
                        WeightSlice::Columns(1, 2)};
  WeightStore store = WeightStore::Device(HostMemory(), kFakeGpu);
  WeightView view;
  Run(store, [&] { view = *store.Place(part); });
  EXPECT_EQ(ElementsOf(view), (std::vector<uint16_t>{FloatToBF16(2), FloatToBF16(3), FloatToBF16(6),
                                                     FloatToBF16(7)}));
  WeightStore host = WeightStore::Host();
  const auto copied = host.Place(part);
  ASSERT_TRUE(copied.ok());
  EXPECT_EQ(*ReadFloat32(*copied), (std::vector<float>{2, 3, 6, 7}));
}

// Random tables: the same bytes wherever and however they are placed.
TEST(RandomTable, IsTheSameEverywhere) {
  const TensorTable table = TensorTable::Random(7, "transformer");
  const auto whole = table.Locate("block.0.q.weight", {30, 50});
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(table.Get("block.0.q.weight", {30, 50}).ok());
  EXPECT_FALSE(table.GetOptional("block.0.q.weight", {30, 50})->present());
  WeightReader mapped(table);
  EXPECT_FALSE(mapped.Take("block.0.q.weight", {30, 50}).present());
  EXPECT_EQ(mapped.Finish().error().code, ErrorCode::kUnsupported);

  WeightStore host = WeightStore::Host();
  const std::vector<uint16_t> all = ElementsOf(*host.Place({*whole, {}}));
  WeightStore store = WeightStore::Device(HostMemory(), kFakeGpu);
  StackedWeight stacked;
  const auto place = [&] {
    const std::vector<WeightPart> parts = {{*whole, WeightSlice::Columns(3, 7)},
                                           {*whole, WeightSlice::Columns(10, 7)}};
    stacked = *store.PlaceStacked(parts);
  };
  place();
  ASSERT_TRUE(store.Allocate().ok());
  place();
  ASSERT_TRUE(store.Load().ok());
  for (size_t row = 0; row < 60; ++row) {
    for (size_t col = 0; col < 7; ++col) {
      const size_t from = row % 30 * 50 + (row < 30 ? 3 : 10) + col;
      ASSERT_EQ(ElementsOf(stacked.all)[row * 7 + col], all[from]);
    }
  }
  const TensorTable again = TensorTable::Random(7, "transformer");
  EXPECT_EQ(ElementsOf(*host.Place({*again.Locate("block.0.q.weight", {30, 50}), {}})), all);
  for (const TensorTable& other :
       {TensorTable::Random(8, "transformer"), TensorTable::Random(7, "vae")}) {
    EXPECT_NE(ElementsOf(*host.Place({*other.Locate("block.0.q.weight", {30, 50}), {}})), all);
  }
  EXPECT_NE(ElementsOf(*host.Place({*table.Locate("block.1.q.weight", {30, 50}), {}})), all);
}

}  // namespace
}  // namespace segue::model
