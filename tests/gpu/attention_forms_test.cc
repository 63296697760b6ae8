// The forms callers have on the GPU, each against the double-precision reference on the same
// bfloat16 rows, with NaN in every row that takes no part; and the C API with a graph.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "gpu/attention_batch.h"
#include "gpu/gpu_rig.h"
#include "segue/attention_adapters.h"
#include "segue/attention_plan.h"
#include "segue/segue.h"

namespace segue::attention {
namespace {

using kernels::GpuMemory;

constexpr int32_t kQHeads = 4;
constexpr int32_t kKvHeads = 2;
constexpr int64_t kDim = 128;
constexpr int64_t kQWidth = kQHeads * kDim;
constexpr int64_t kWidth = (kQHeads + 2 * kKvHeads) * kDim;  // of a fused row
constexpr uint16_t kCanary = 0x7fc1;
constexpr uint16_t kPoison = 0x7fff;  // NaN

Options MakeOptions(bool causal) {
  return {.q_heads = kQHeads,
          .kv_heads = kKvHeads,
          .head_dim = kDim,
          .softmax_scale = 0.0884f,
          .causal = causal,
          .element_type = ElementType::kBFloat16};
}

// Elements from a base: inputs of `rows` fused rows, or an output of as many.
RowsView Q(uint16_t* in) { return {in, kWidth}; }
RowsView K(uint16_t* in) { return {in + kQWidth, kWidth}; }
RowsView V(uint16_t* in) { return {in + kQWidth + kKvHeads * kDim, kWidth}; }
RowsView O(uint16_t* out) { return {out, kQWidth}; }

Dense FusedDense(uint16_t* in, uint16_t* out, int32_t batch, int32_t rows) {
  return {.q = {Q(in), rows * kWidth},
          .o = {O(out), rows * kQWidth},
          .k = {K(in), rows * kWidth},
          .v = {V(in), rows * kWidth},
          .batch = batch,
          .q_rows = rows,
          .kv_rows = rows};
}

// The same form over host and over device memory.
using Form = std::function<Result<Batch>(uint16_t* in, uint16_t* out, const Options& options)>;

void FillRows(std::mt19937& random, const RowsView& view, int64_t rows, int32_t heads) {
  const int64_t head_stride = view.head_stride == 0 ? kDim : view.head_stride;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      uint16_t* at = static_cast<uint16_t*>(view.data) + row * view.row_stride + head * head_stride;
      for (int64_t i = 0; i < kDim; ++i) {
        at[i] = FloatToBF16(static_cast<float>(random() % 4001) / 1000.0f - 2.0f);
      }
    }
  }
}

// What a plan of `backend` leaves in lse, [kQHeads, rows]; outputs go where the batch says.
std::vector<float> RunPlan(const Batch& batch, const Options& options, Place place,
                           const char* backend) {
  PlanSettings settings = PlanFor(batch, options, place);
  settings.backend = backend;
  settings.wants_lse = true;
  Result<Plan> plan = Plan::Create(settings);
  EXPECT_TRUE(plan.ok()) << plan.error().Message();
  if (!plan.ok()) return {};
  const int64_t rows = plan->settings().max_query_rows;
  std::vector<float> lse(kQHeads * rows);
  const GpuMemory workspace(plan->workspace_bytes());
  const GpuMemory device_lse(kQHeads * rows * 4);
  float* to = place == Place::kCpu ? lse.data() : static_cast<float*>(device_lse.data());
  for (const Status& status : {plan->Prepare(workspace.data(), nullptr),
                               plan->SetLengths(batch.rows, workspace.data(), nullptr),
                               plan->Run(batch.tensors, to, rows, workspace.data(), nullptr)}) {
    EXPECT_TRUE(status.ok()) << status.error().Message();
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  if (place == Place::kCuda) device_lse.Read(lse.data());
  return lse;
}

class AttentionFormsGpu : public testing::Test {
 protected:
  void SetUp() override { SEGUE_SKIP_WITHOUT_GPU(); }

  // `rows` bounds the fused rows and the output's.
  static void Check(const std::string& name, int64_t rows, const Form& form) {
    for (const bool causal : {false, true}) {
      const std::string what = name + (causal ? ", causal" : "");
      const Options options = MakeOptions(causal);
      std::vector<uint16_t> in(rows * kWidth, kPoison);
      std::vector<uint16_t> want(rows * kQWidth, kCanary);
      const Result<Batch> host = form(in.data(), want.data(), options);
      ASSERT_TRUE(host.ok()) << what << ": " << host.error().Message();
      std::mt19937 random(1);
      for (const Sequence& sequence : ToSequences(*host, options)) {
        int64_t keys = 0;
        for (const Segment& segment : sequence.segments) keys += segment.kv_rows;
        if (keys == 0) continue;  // padding: its queries stay poison
        for (const Segment& segment : sequence.segments) {
          FillRows(random, segment.q, segment.q_rows, kQHeads);
          FillRows(random, segment.k, segment.kv_rows, kKvHeads);
          FillRows(random, segment.v, segment.kv_rows, kKvHeads);
        }
      }
      const std::vector<uint16_t> canaries = want;
      const std::vector<float> want_lse = RunPlan(*host, options, Place::kCpu, "ref");
      GpuMemory device_in(static_cast<int64_t>(in.size()) * 2);
      GpuMemory device_out(static_cast<int64_t>(want.size()) * 2);
      device_in.Write(in.data());
      const Result<Batch> device = form(static_cast<uint16_t*>(device_in.data()),
                                        static_cast<uint16_t*>(device_out.data()), options);
      ASSERT_TRUE(device.ok());
      for (const char* backend : {"sm90", "cuda"}) {
        const std::string by = what + ", by " + backend;
        device_out.Write(canaries.data());
        const std::vector<float> got_lse = RunPlan(*device, options, Place::kCuda, backend);
        std::vector<uint16_t> got(want.size());
        device_out.Read(got.data());
        Compare(got, want, by);
        CompareLse(got_lse, want_lse, by);
      }
    }
  }

 private:
  static void CompareLse(const std::vector<float>& got, const std::vector<float>& want,
                         const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isinf(want[i])) {
        ASSERT_EQ(got[i], want[i]) << what << ", lse " << i;
      } else {
        ASSERT_NEAR(got[i], want[i], 1e-3) << what << ", lse " << i;
      }
    }
  }

  // Weights and outputs are rounded to 8 bits each, so an element is off by at most 2^-8 of the
  // largest value (2) and half a unit of its own.
  static void Compare(const std::vector<uint16_t>& got, const std::vector<uint16_t>& want,
                      const std::string& what) {
    double worst = 0.0;
    size_t where = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (want[i] == kCanary || got[i] == kCanary) {
        ASSERT_EQ(got[i], want[i]) << what << ", row " << i / kQWidth << ": written is not what "
                                   << "should be";
        continue;
      }
      const double error = std::abs(double{BF16ToFloat(got[i])} - BF16ToFloat(want[i]));
      if (!(error <= worst)) {
        worst = error;
        where = i;
      }
      ASSERT_FALSE(std::isnan(error)) << what << ", row " << i / kQWidth;
    }
    EXPECT_LE(worst, 0.0157) << what << ", row " << where / kQWidth << ", column "
                             << where % kQWidth;
  }
};

TEST_F(AttentionFormsGpu, Dense) {
  Check("[B, S, H, D]", 3 * 190, [](uint16_t* in, uint16_t* out, const Options& options) {
    return FromDense(FusedDense(in, out, 3, 190), options);
  });
  // More sequences than tensor sets are allowed: they have to share one.
  Check("[B, H, S, D]", 12 * 70, [](uint16_t* in, uint16_t* out, const Options& options) {
    const auto view = [](uint16_t* data, int64_t heads) {
      return DenseView{{data, kDim, 70 * kDim}, heads * 70 * kDim};
    };
    uint16_t* k = in + 12 * 70 * kQWidth;
    return FromDense({.q = view(in, kQHeads),
                      .o = view(out, kQHeads),
                      .k = view(k, kKvHeads),
                      .v = view(k + 12 * 70 * kKvHeads * kDim, kKvHeads),
                      .batch = 12,
                      .q_rows = 70,
                      .kv_rows = 70},
                     options);
  });
}

TEST_F(AttentionFormsGpu, Packed) {
  const std::vector<std::vector<int32_t>> bounds = {
      {0, 1, 1, 2, 400}, {0, 3, 3, 8, 400}, {0, 0, 129, 129, 305}, {0, 177, 177, 178, 354}};
  for (size_t i = 0; i < bounds.size(); i += 2) {
    Check("packed " + std::to_string(i), 400,
          [&, i](uint16_t* in, uint16_t* out, const Options& options) {
            return FromPacked({.q = Q(in),
                               .o = O(out),
                               .k = K(in),
                               .v = V(in),
                               .total_q = bounds[i].back(),
                               .total_k = bounds[i + 1].back(),
                               .cu_seqlens_q = bounds[i],
                               .cu_seqlens_k = bounds[i + 1]},
                              options);
          });
  }
}

TEST_F(AttentionFormsGpu, TrailingPadding) {
  for (const int32_t used : {0, 1, 378, 400}) {
    Check("trailing padding after " + std::to_string(used), 400,
          [used](uint16_t* in, uint16_t* out, const Options& options) {
            return FromTrailingPadding(
                {.q = Q(in), .k = K(in), .v = V(in), .o = O(out), .used = used, .total = 400},
                options);
          });
  }
}

TEST_F(AttentionFormsGpu, PrefixMainAndMasks) {
  constexpr int32_t kPrefix = 64;
  constexpr int32_t kMain = 200;
  const std::vector<int32_t> lengths = {14, 0, 64};
  std::vector<uint8_t> mask(3 * (kPrefix + kMain), 1);
  // Left padding, a gap of one row, a gap over both parts.
  std::fill_n(mask.begin(), 30, 0);
  mask[kPrefix + kMain + 77] = 0;
  std::fill_n(mask.begin() + 2 * (kPrefix + kMain) + 60, 21, 0);
  for (const bool zero_padding : {false, true}) {
    for (const bool masked : {false, true}) {
      Check(masked ? "mask" : "prefix and main", 3 * (kPrefix + kMain),
            [&, zero_padding, masked](uint16_t* in, uint16_t* out, const Options& options) {
              PrefixMain joint = {.prefix = FusedDense(in, out, 3, kPrefix),
                                  .main = FusedDense(in + 3 * kPrefix * kWidth,
                                                     out + 3 * kPrefix * kQWidth, 3, kMain),
                                  .zero_padding = zero_padding};
              if (masked) return FromKeyMask(joint, mask, options);
              joint.prefix_lengths = lengths;
              return FromPrefixMain(joint, options);
            });
    }
  }
}

TEST_F(AttentionFormsGpu, RowIndicesAndPointers) {
  std::vector<int64_t> indices;
  for (int64_t row = 0; row < 300; ++row) {
    if (row % 37 != 5) indices.push_back(row);
  }
  std::rotate(indices.begin(), indices.begin() + 100, indices.end());
  const std::vector<int32_t> bounds = {0, 150, 150, static_cast<int32_t>(indices.size())};
  const Form from_indices = [&](uint16_t* in, uint16_t* out, const Options& options) {
    return FromRowIndices({.q = Q(in),
                           .k = K(in),
                           .v = V(in),
                           .o = O(out),
                           .total = 300,
                           .indices = indices,
                           .cu_seqlens = bounds},
                          options);
  };
  Check("row indices", 300, from_indices);
  Check("pointers", 300, [&](uint16_t* in, uint16_t* out, const Options& options) {
    const Result<Batch> batch = from_indices(in, out, options);
    std::vector<Sequence> sequences = ToSequences(*batch, options);
    for (Sequence& sequence : sequences) {  // few enough sets for the kernel
      if (sequence.segments.size() > 3) sequence.segments.resize(3);
    }
    return FromSequences(sequences, options);
  });
}

// The C API: captured on a side stream, replayed with other lengths, the bytes of eager calls.
TEST_F(AttentionFormsGpu, CApiInAGraph) {
  constexpr int32_t kPrefix = 64;
  constexpr int32_t kMain = 300;
  constexpr int32_t kBatch = 2;
  constexpr int64_t kRows = int64_t{kBatch} * (kPrefix + kMain);
  std::vector<uint16_t> in(kRows * kWidth);
  std::mt19937 random(2);
  FillRows(random, {in.data(), kWidth}, kRows, kQHeads + 2 * kKvHeads);
  GpuMemory device_in(static_cast<int64_t>(in.size()) * 2);
  device_in.Write(in.data());
  GpuMemory out(kRows * kQWidth * 2);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);

  segue_error error = {.struct_size = sizeof(error)};
  const segue_attention_options options = {.struct_size = sizeof(options),
                                           .q_heads = kQHeads,
                                           .kv_heads = kKvHeads,
                                           .head_dim = kDim,
                                           .softmax_scale = 0.0884f,
                                           .causal = 0,
                                           .element_type = SEGUE_BFLOAT16};
  const auto make_batch = [&](const std::vector<int32_t>& lengths) {
    const auto view = [](void* data, int64_t stride, int64_t rows) {
      return segue_dense_view{{data, stride, 0}, rows * stride};
    };
    auto* text = static_cast<uint16_t*>(device_in.data());
    uint16_t* image = text + int64_t{kBatch} * kPrefix * kWidth;
    auto* text_out = static_cast<uint16_t*>(out.data());
    uint16_t* image_out = text_out + int64_t{kBatch} * kPrefix * kQWidth;
    const segue_attention_prefix_main form = {
        .struct_size = sizeof(form),
        .batch = kBatch,
        .prefix_rows = kPrefix,
        .main_rows = kMain,
        .zero_padding = 1,
        .prefix_q = view(text, kWidth, kPrefix),
        .prefix_k = view(text + kQWidth, kWidth, kPrefix),
        .prefix_v = view(text + kQWidth + kKvHeads * kDim, kWidth, kPrefix),
        .prefix_o = view(text_out, kQWidth, kPrefix),
        .main_q = view(image, kWidth, kMain),
        .main_k = view(image + kQWidth, kWidth, kMain),
        .main_v = view(image + kQWidth + kKvHeads * kDim, kWidth, kMain),
        .main_o = view(image_out, kQWidth, kMain),
        .prefix_lengths = lengths.data(),
        .main_lengths = nullptr,
        .mask = nullptr};
    segue_attention_batch* batch = nullptr;
    EXPECT_EQ(segue_attention_batch_from_prefix_main(&form, &options, &batch, &error), SEGUE_OK)
        << error.message;
    return batch;
  };
  const std::vector<std::vector<int32_t>> lengths = {{64, 14}, {0, 33}, {7, 64}};
  segue_attention_batch* first = make_batch(lengths[0]);
  segue_attention_plan_settings settings = {};
  settings.struct_size = sizeof(settings);
  settings.place = SEGUE_CUDA;
  settings.device_lengths = 1;
  settings.batch = first;
  settings.options = &options;
  segue_attention_plan* plan = nullptr;
  ASSERT_EQ(segue_attention_plan_create(&settings, &plan, &error), SEGUE_OK) << error.message;
  EXPECT_STREQ(segue_attention_plan_backend(plan), "sm90");
  const GpuMemory workspace(segue_attention_plan_workspace_bytes(plan));
  ASSERT_EQ(segue_attention_plan_prepare(plan, workspace.data(), stream, &error), SEGUE_OK)
      << error.message;
  segue_attention_run run = {};
  run.struct_size = sizeof(run);
  run.batch = first;
  run.workspace = workspace.data();
  run.stream = stream;

  // Eager bytes.
  std::vector<std::vector<uint16_t>> want;
  for (const std::vector<int32_t>& one : lengths) {
    segue_attention_batch* batch = make_batch(one);
    ASSERT_EQ(segue_attention_plan_set_batch(plan, batch, workspace.data(), stream, &error),
              SEGUE_OK)
        << error.message;
    ASSERT_EQ(segue_attention_plan_run(plan, &run, &error), SEGUE_OK) << error.message;
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    want.emplace_back(kRows * kQWidth);
    out.Read(want.back().data());
    segue_attention_batch_destroy(batch);
  }
  EXPECT_FALSE(want[0] == want[1]);

  GpuMemory device_rows(4 * 2 * int64_t{sizeof(segue_segment_rows)});
  GpuMemory device_count(4);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(segue_attention_plan_refresh(plan, static_cast<segue_segment_rows*>(device_rows.data()),
                                         static_cast<int32_t*>(device_count.data()),
                                         workspace.data(), stream, &error),
            SEGUE_OK)
      << error.message;
  EXPECT_EQ(segue_attention_plan_run(plan, &run, &error), SEGUE_OK) << error.message;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (size_t i = lengths.size(); i-- > 0;) {
    segue_attention_batch* batch = make_batch(lengths[i]);
    std::vector<segue_segment_rows> rows(8);
    ASSERT_EQ(segue_attention_batch_rows(batch, 2, rows.data(), rows.size(), &error), SEGUE_OK)
        << error.message;
    segue_attention_batch_destroy(batch);
    const int32_t count = 2 * kBatch;  // the padding's sequences among them
    device_rows.Write(rows.data());
    device_count.Write(&count);
    const std::vector<uint16_t> canaries(kRows * kQWidth, kCanary);
    out.Write(canaries.data());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    std::vector<uint16_t> got(kRows * kQWidth);
    out.Read(got.data());
    EXPECT_TRUE(got == want[i]) << "lengths " << i;
    segue_attention_report report = {.struct_size = sizeof(report)};
    ASSERT_EQ(segue_attention_plan_read_report(plan, workspace.data(), stream, &report, &error),
              SEGUE_OK)
        << error.message;
    EXPECT_STREQ(report.description, "");
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  segue_attention_plan_destroy(plan);
  segue_attention_batch_destroy(first);
  cudaStreamDestroy(stream);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace segue::attention
