// Plans on the CPU, and the choice of a back end.
#include "segue/attention_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "attention/attention.h"

namespace segue::attention {
namespace {

constexpr float kCanary = -1.25e30f;

// Tensor sets of random rows, each a fused [rows, q | k | v] tensor and an output.
class Tensors {
 public:
  Tensors(const Options& options, const std::vector<int32_t>& rows, uint32_t seed)
      : options_(options) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const int64_t dim = options.head_dim;
    const int64_t stride = (options.q_heads + 2 * options.kv_heads) * dim;
    for (const int32_t count : rows) {
      fused_.emplace_back(count * stride);
      outputs_.emplace_back(count * options.q_heads * dim, kCanary);
      for (float& value : fused_.back()) value = normal(random);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      float* q = fused_[i].data();
      sets_.push_back({.q = {q, stride},
                       .k = {q + options.q_heads * dim, stride},
                       .v = {q + (options.q_heads + options.kv_heads) * dim, stride},
                       .o = {outputs_[i].data(), options.q_heads * dim},
                       .q_rows = rows[i],
                       .kv_rows = rows[i]});
    }
  }

  const std::vector<TensorSet>& sets() const { return sets_; }
  const std::vector<std::vector<float>>& outputs() const { return outputs_; }
  void Clear() {
    for (std::vector<float>& output : outputs_) output.assign(output.size(), kCanary);
  }

  // The same rows as segments with pointers of their own.
  std::vector<Sequence> Sequences(const std::vector<SegmentRows>& rows, int32_t segments) const {
    std::vector<Sequence> sequences(rows.size() / segments);
    for (size_t i = 0; i < rows.size(); ++i) {
      const SegmentRows& from = rows[i];
      const TensorSet& set = sets_[from.source];
      const auto view = [](const RowsView& all, int64_t row) {
        return RowsView{static_cast<float*>(all.data) + row * all.row_stride, all.row_stride};
      };
      sequences[i / segments].segments.push_back({.q = view(set.q, from.q_begin),
                                                  .k = view(set.k, from.kv_begin),
                                                  .v = view(set.v, from.kv_begin),
                                                  .o = view(set.o, from.q_begin),
                                                  .q_rows = from.q_rows,
                                                  .kv_rows = from.kv_rows});
    }
    return sequences;
  }

 private:
  Options options_;
  std::vector<std::vector<float>> fused_;
  std::vector<std::vector<float>> outputs_;
  std::vector<TensorSet> sets_;
};

Options SmallOptions() {
  return {.q_heads = 4, .kv_heads = 2, .head_dim = 16, .softmax_scale = 0.25f};
}

PlanSettings SmallSettings() {
  return {.options = SmallOptions(),
          .max_sequences = 3,
          .max_segments = 2,
          .tensors = {{40, 40}, {300, 300}},
          .wants_lse = true,
          .threads = 2};
}

std::string ErrorOf(const Status& status) { return status.ok() ? "" : status.error().Message(); }
std::string CreationError(const PlanSettings& settings) {
  const Result<Plan> plan = Plan::Create(settings);
  return plan.ok() ? "" : plan.error().Message();
}
bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::vector<SegmentRows> kJoint = {{0, 0, 7, 0, 7},   {1, 0, 210, 0, 210},  // text, image
                                         {0, 9, 20, 9, 20}, {1, 215, 33, 215, 33},
                                         {0, 0, 0, 30, 10}, {1, 250, 50, 250, 0}};

TEST(AttentionPlan, OnTheCpuGivesTheBytesOfACallWithoutAPlan) {
  for (const bool causal : {false, true}) {
    PlanSettings settings = SmallSettings();
    settings.options.causal = causal;
    Tensors tensors(settings.options, {40, 300}, 3);
    Result<Plan> plan = Plan::Create(settings);
    ASSERT_TRUE(plan.ok()) << plan.error().Message();
    ASSERT_EQ(plan->workspace_bytes(), 0);
    ASSERT_TRUE(plan->Prepare(nullptr, nullptr).ok());
    // A batch, then a shorter one under the same plan.
    for (const int32_t sequences : {3, 1}) {
      const std::vector<SegmentRows> rows(kJoint.begin(), kJoint.begin() + sequences * 2);
      int64_t total = 0;
      for (const SegmentRows& segment : rows) total += segment.q_rows;
      ASSERT_EQ(ErrorOf(plan->SetLengths(rows, nullptr, nullptr)), "");
      const int64_t stride = plan->settings().max_query_rows + 3;
      std::vector<float> lse(4 * stride, kCanary);
      tensors.Clear();
      ASSERT_EQ(ErrorOf(plan->Run(tensors.sets(), lse.data(), stride, nullptr, nullptr)), "");
      const std::vector<std::vector<float>> planned = tensors.outputs();

      tensors.Clear();
      ThreadPool pool(1);
      const std::vector<Sequence> direct = tensors.Sequences(rows, 2);
      std::vector<float> direct_lse(4 * total);
      ASSERT_TRUE(Attention({.options = settings.options,
                             .sequences = direct,
                             .lse = direct_lse.data(),
                             .backend = plan->backend()},
                            {.stream = Stream::Cpu(pool)})
                      .ok());
      EXPECT_EQ(planned, tensors.outputs());
      for (int64_t head = 0; head < 4; ++head) {
        for (int64_t row = 0; row < stride; ++row) {
          ASSERT_EQ(lse[head * stride + row],
                    row < total ? direct_lse[head * total + row] : kCanary);
        }
      }
    }
  }
}

TEST(AttentionPlan, OnTheCpuReadsRefreshedLengthsAtEveryRun) {
  PlanSettings settings = SmallSettings();
  settings.device_lengths = true;
  Tensors tensors(settings.options, {40, 300}, 3);
  Result<Plan> refreshed = Plan::Create(settings);
  Result<Plan> set = Plan::Create(settings);
  ASSERT_TRUE(refreshed.ok() && set.ok());
  std::vector<SegmentRows> rows = kJoint;
  int32_t sequences = 3;
  ASSERT_TRUE(refreshed->Refresh(rows.data(), &sequences, nullptr, nullptr).ok());
  for (const int32_t count : {3, 2, 0}) {
    sequences = count;
    rows[0].q_rows = 7 - count;
    tensors.Clear();
    ASSERT_EQ(ErrorOf(refreshed->Run(tensors.sets(), nullptr, 0, nullptr, nullptr)), "");
    EXPECT_EQ(refreshed->ReadReport(nullptr, nullptr)->error, 0);
    const std::vector<std::vector<float>> outputs = tensors.outputs();
    tensors.Clear();
    ASSERT_TRUE(
        set->SetLengths({rows.data(), static_cast<size_t>(2 * count)}, nullptr, nullptr).ok());
    ASSERT_EQ(ErrorOf(set->Run(tensors.sets(), nullptr, 0, nullptr, nullptr)), "");
    EXPECT_EQ(outputs, tensors.outputs());
  }
  sequences = 4;
  EXPECT_FALSE(refreshed->Run(tensors.sets(), nullptr, 0, nullptr, nullptr).ok());
  EXPECT_TRUE(Has(refreshed->ReadReport(nullptr, nullptr)->description, "got 4"));
}

TEST(AttentionPlan, RefusesLengthsOutsideItsTensorsAndCapacity) {
  Result<Plan> plan = Plan::Create(SmallSettings());
  ASSERT_TRUE(plan.ok());
  const auto error = [&](const std::vector<SegmentRows>& rows) {
    return ErrorOf(plan->SetLengths(rows, nullptr, nullptr));
  };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({{}, {}}), "");
  EXPECT_TRUE(Has(error({{}}), "1 segments"));
  EXPECT_TRUE(Has(error(std::vector<SegmentRows>(8)), "4 sequences"));
  EXPECT_TRUE(Has(error({{}, {}, {2, 0, 1, 0, 1}, {}}), "sequence 1, segment 0: got tensor set 2"));
  EXPECT_TRUE(Has(error({{}, {-1, 0, 1, 0, 1}}), "sequence 0, segment 1"));
  EXPECT_TRUE(Has(error({{}, {1, 0, -1, 0, 0}}), "query rows: got -1 rows from 0"));
  EXPECT_TRUE(Has(error({{}, {1, 0, 1, 0, -3}}), "key/value rows: got -3 rows"));
  EXPECT_TRUE(Has(error({{0, 30, 11, 0, 0}, {}}), "11 rows from 30, wanted rows inside the 40"));
  EXPECT_TRUE(Has(error({{0, -1, 11, 0, 0}, {}}), "11 rows from -1"));
  EXPECT_TRUE(Has(error({{0, INT32_MAX, INT32_MAX, 0, 0}, {}}), "query rows"));
  EXPECT_TRUE(Has(error({{1, 0, 300, 0, 0}, {1, 0, 300, 0, 0}}), "600 query rows"));
  // The lengths set last stay in force.
  EXPECT_EQ(error(kJoint), "");
  EXPECT_NE(error({{}}), "");
  EXPECT_TRUE(Has(plan->ToString(), "lengths of 3 sequences"));
}

TEST(AttentionPlan, RefusesTensorsThatAreNotAsPlanned) {
  Result<Plan> plan = Plan::Create(SmallSettings());
  ASSERT_TRUE(plan.ok());
  const Tensors unset(SmallOptions(), {40, 300}, 3);
  EXPECT_TRUE(
      Has(ErrorOf(plan->Run(unset.sets(), nullptr, 0, nullptr, nullptr)), "lengths: got none"));
  ASSERT_TRUE(plan->SetLengths(kJoint, nullptr, nullptr).ok());
  const Tensors tensors(SmallOptions(), {40, 300}, 3);
  const auto error = [&](auto change) {
    std::vector<TensorSet> sets = tensors.sets();
    change(sets);
    return ErrorOf(plan->Run(sets, nullptr, 0, nullptr, nullptr));
  };
  using Sets = std::vector<TensorSet>;
  EXPECT_EQ(error([](Sets&) {}), "");
  EXPECT_TRUE(Has(error([](Sets& sets) { sets.pop_back(); }), "1 tensor sets, wanted 2"));
  EXPECT_TRUE(Has(error([](Sets& sets) { sets[1].q_rows = 301; }), "tensor set 1"));
  EXPECT_TRUE(
      Has(error([](Sets& sets) { sets[1].k.data = nullptr; }), "tensor set 1, k: got null"));
  EXPECT_TRUE(Has(error([](Sets& sets) { sets[0].v.row_stride = -15; }), "v: got rows -15"));
  EXPECT_TRUE(Has(error([](Sets& sets) { sets[0].o.head_stride = -16; }), "o: got heads -16"));
  EXPECT_TRUE(Has(error([](Sets& sets) { sets[0].o.row_stride = 15; }), "o: got rows 15 elem"));
  std::vector<float> lse(4 * 400);
  EXPECT_TRUE(Has(ErrorOf(plan->Run(tensors.sets(), lse.data(), 339, nullptr, nullptr)),
                  "lse_stride: got 339, wanted at least max_query_rows, 340"));
  EXPECT_TRUE(
      Has(ErrorOf(plan->Refresh(kJoint.data(), nullptr, nullptr, nullptr)), "device_lengths"));
}

TEST(AttentionPlan, RefusesSettingsThatContradictThemselves) {
  const auto error = [](auto change) {
    PlanSettings settings = SmallSettings();
    change(settings);
    return CreationError(settings);
  };
  using P = PlanSettings;
  EXPECT_EQ(error([](P&) {}), "");
  EXPECT_TRUE(Has(error([](P& p) { p.options.kv_heads = 3; }), "kv_heads: got 3"));
  EXPECT_TRUE(Has(error([](P& p) { p.options.q_heads = 0; }), "q_heads: got 0"));
  EXPECT_TRUE(Has(error([](P& p) { p.options.softmax_scale = std::nanf(""); }), "softmax_scale"));
  EXPECT_TRUE(Has(error([](P& p) { p.max_sequences = 0; }), "max_sequences: got 0"));
  EXPECT_TRUE(Has(error([](P& p) { p.max_segments = -1; }), "max_segments: got -1"));
  EXPECT_TRUE(Has(error([](P& p) { p.tensors[1].kv_rows = -1; }), "tensor set 1"));
  EXPECT_TRUE(Has(error([](P& p) { p.max_query_rows = int64_t{1} << 31; }), "max_query_rows"));
  EXPECT_TRUE(Has(error([](P& p) { p.gpu = Gpu{90, 132}; }), "gpu"));
}

TEST(AttentionPlan, NamesEveryBackEndAndTheReasonsAgainstIt) {
  PlanSettings settings = SmallSettings();
  Result<Plan> plan = Plan::Create(settings);
  ASSERT_TRUE(plan.ok());
  for (const BackendChoice& choice : plan->choices()) {
    EXPECT_EQ(choice.reason.empty(), choice.backend == plan->backend());
  }
  EXPECT_TRUE(Has(plan->ToString(), "back end " + plan->backend() + ": chosen"));

  settings.backend = "ref";
  plan = Plan::Create(settings);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->backend(), "ref");
  EXPECT_TRUE(Has(plan->ToString(), "back end cpu: ref was asked for"));

  settings.backend = "fa3";
  EXPECT_TRUE(Has(CreationError(settings), "backend: got fa3, wanted one of "));
  settings.backend = "cpu";
  settings.options.head_dim = 2000;
  EXPECT_TRUE(Has(CreationError(settings), "cpu: head_dim above 1024"));
}

TEST(AttentionPlan, KeepsToTheBackEndsThatTheModelAdmits) {
  PlanSettings settings = SmallSettings();
  settings.admitted = {"ref"};
  Result<Plan> plan = Plan::Create(settings);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->backend(), "ref");
  EXPECT_TRUE(Has(plan->ToString(), "back end cpu: the model does not admit it"));
  settings.backend = "cpu";
  EXPECT_TRUE(
      Has(CreationError(settings), "backend: got cpu, wanted one that the model admits: ref"));
  settings.admitted = {"ref", "fa4"};
  EXPECT_TRUE(Has(CreationError(settings), "admitted: got fa4"));
}

TEST(AttentionPlan, OnCudaHostBackEndsRefuse) {
  PlanSettings settings = SmallSettings();
  settings.place = Place::kCuda;
  settings.gpu = Gpu{90, 132};
  const std::string error = CreationError(settings);  // float32: no CUDA back end either
  EXPECT_TRUE(Has(error, "cpu: works on host memory only")) << error;
  EXPECT_TRUE(Has(error, "ref: works on host memory only")) << error;
}

PlanSettings H200Settings() {
  PlanSettings settings = SmallSettings();
  settings.options = {.q_heads = 24,
                      .kv_heads = 24,
                      .head_dim = 128,
                      .softmax_scale = 0.088f,
                      .element_type = ElementType::kBFloat16};
  settings.place = Place::kCuda;
  settings.gpu = Gpu{90, 132};
  settings.tensors = {{1024, 1024}, {8192, 8192}};
  return settings;
}

TEST(AttentionPlan, ForAGpuThatIsNotThereCanBeLookedAt) {
  const Result<Plan> plan = Plan::Create(H200Settings());
  ASSERT_TRUE(plan.ok()) << plan.error().Message();
  EXPECT_EQ(plan->backend(), "sm90");
  EXPECT_EQ(plan->workspace_bytes() % 256, 0);
  EXPECT_GT(plan->workspace_bytes(), 9216 / 128 * 24 * 16);

  // 1 + 40 tiles a head: 984 = 7 x 132 + 60, and 60 of 132 CTAs leave room for halves.
  const std::vector<SegmentRows> one = {{0, 0, 64, 0, 64}, {1, 0, 5120, 0, 5120}};
  Result<WorkList> list = plan->Work(one);
  ASSERT_TRUE(list.ok());
  EXPECT_FALSE(list->dynamic);
  EXPECT_EQ(list->halves, 120);
  ASSERT_EQ(list->tiles.size(), 1044u);
  EXPECT_EQ(list->tiles[0].query_rows, 64);
  EXPECT_EQ(list->tiles[1].query_begin, 64);
  EXPECT_EQ(list->tiles[1].key_tiles, (5184 + 175) / 176);
  EXPECT_EQ(list->workers[0].tiles, 8);
  EXPECT_EQ(list->workers[131].tiles, 7);

  const std::vector<SegmentRows> ragged = {
      {0, 0, 64, 0, 64}, {1, 0, 100, 0, 100}, {0, 64, 64, 64, 64}, {1, 100, 4096, 100, 4096}};
  list = plan->Work(ragged);
  ASSERT_TRUE(list.ok());
  EXPECT_TRUE(list->dynamic);
  EXPECT_EQ(list->tiles[0].sequence, 1);
  EXPECT_EQ(list->tiles.back().sequence, 0);
  int64_t tiles = 0;
  for (const WorkerLoad& worker : list->workers) tiles += worker.tiles;
  EXPECT_EQ(tiles, static_cast<int64_t>(list->tiles.size()));
  EXPECT_FALSE(plan->Work(std::span(ragged).first(1)).ok());
}

TEST(AttentionPlan, CausalTilesVisitTheKeysThatTheirLastRowSees) {
  PlanSettings settings = H200Settings();
  settings.options.causal = true;
  const Result<Plan> plan = Plan::Create(settings);
  ASSERT_TRUE(plan.ok());
  const std::vector<SegmentRows> rows = {{0, 0, 0, 0, 100}, {1, 0, 256, 0, 256}};
  const Result<WorkList> list = plan->Work(rows);
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->tiles.size(), 48u);
  // The last rows first: 356 keys, of which the second segment begins at 104 of the key axis.
  EXPECT_EQ(list->tiles[0].query_begin, 128);
  EXPECT_EQ(list->tiles[0].key_tiles, 3);
  EXPECT_EQ(list->tiles[24].query_begin, 0);
  EXPECT_EQ(list->tiles[24].key_tiles, 2);  // 228 keys end at 232
}

TEST(AttentionPlan, Sm90SaysWhyItRefuses) {
  const auto reason = [](auto change) {
    PlanSettings settings = H200Settings();
    settings.backend = "sm90";
    change(settings);
    return CreationError(settings);
  };
  using P = PlanSettings;
  EXPECT_EQ(reason([](P&) {}), "");
  EXPECT_TRUE(Has(reason([](P& p) { p.gpu = Gpu{80, 108}; }), "compute capability 8.0, not 9.0"));
  EXPECT_TRUE(Has(reason([](P& p) { p.options.head_dim = 64; }), "head_dim is not 128"));
  EXPECT_TRUE(Has(reason([](P& p) { p.options.element_type = ElementType::kFloat32; }), "float32"));
  EXPECT_TRUE(Has(reason([](P& p) { p.options.softmax_scale = 0.0f; }), "softmax scale"));
  EXPECT_TRUE(Has(reason([](P& p) { p.tensors.resize(9); }), "9 tensor sets, more than 8"));
  EXPECT_TRUE(Has(reason([](P& p) { p.max_segments = 33; }), "more than 32 in a sequence"));
  EXPECT_TRUE(Has(reason([](P& p) { p.max_sequences = 2049; }), "more than 2048"));
  EXPECT_TRUE(Has(reason([](P& p) {
                    p.options.q_heads = p.options.kv_heads = 60000;
                    p.tensors.assign(8, {100000000, 1});
                  }),
                  "tiles of work"));
  PlanSettings on_host = H200Settings();
  on_host.place = Place::kCpu;
  on_host.gpu.reset();
  on_host.backend = "sm90";
  EXPECT_TRUE(Has(CreationError(on_host), "sm90: works on device memory only"));
}

TEST(AttentionPlan, WithoutAGpuSaysSo) {
  const Result<Gpu> gpu = CurrentGpu();
  if (gpu.ok()) GTEST_SKIP() << "there is a GPU";
  PlanSettings settings = H200Settings();
  settings.gpu.reset();
  EXPECT_TRUE(Has(CreationError(settings), "sm90: " + gpu.error().got));
  Result<Plan> plan = Plan::Create(H200Settings());
  ASSERT_TRUE(plan.ok());
  alignas(256) static char memory[256];
  EXPECT_FALSE(plan->Prepare(memory, nullptr).ok());
  EXPECT_TRUE(Has(ErrorOf(plan->SetLengths({}, memory, nullptr)), "Prepare has not seen"));
}

TEST(AttentionPlan, TwoPlansMayBeUsedInTurns) {
  PlanSettings settings = SmallSettings();
  Tensors tensors(settings.options, {40, 300}, 3);
  Result<Plan> first = Plan::Create(settings);
  Result<Plan> second = Plan::Create(settings);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::vector<SegmentRows> one(kJoint.begin(), kJoint.begin() + 2);
  const std::vector<SegmentRows> other(kJoint.begin() + 2, kJoint.begin() + 4);
  ASSERT_TRUE(first->SetLengths(one, nullptr, nullptr).ok());
  ASSERT_TRUE(second->SetLengths(other, nullptr, nullptr).ok());
  ASSERT_TRUE(first->Run(tensors.sets(), nullptr, 0, nullptr, nullptr).ok());
  EXPECT_NE(tensors.outputs()[0][6 * 64], kCanary);
  EXPECT_EQ(tensors.outputs()[0][9 * 64], kCanary);  // a row of the other's
  ASSERT_TRUE(second->Run(tensors.sets(), nullptr, 0, nullptr, nullptr).ok());
  EXPECT_NE(tensors.outputs()[0][9 * 64], kCanary);
}

TEST(AttentionPlan, ListsItsWork) {
  PlanSettings settings = SmallSettings();
  settings.backend = "cpu";
  Result<Plan> plan = Plan::Create(settings);
  if (!plan.ok()) GTEST_SKIP() << plan.error().Message();
  const Result<WorkList> list = plan->Work(kJoint);
  ASSERT_TRUE(list.ok());
  // Per head: 217 rows in two tiles, 53 in one, 50 in one.
  ASSERT_EQ(list->tiles.size(), 16u);
  EXPECT_EQ(list->tiles[0].sequence, 0);
  EXPECT_EQ(list->tiles[0].key_tiles, 2);
  ASSERT_EQ(list->workers.size(), 2u);
  EXPECT_EQ(list->workers[0].tiles + list->workers[1].tiles, 16);
  EXPECT_TRUE(plan->Work({}).ok());
}

}  // namespace
}  // namespace segue::attention
