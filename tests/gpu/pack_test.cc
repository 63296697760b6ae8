// Packing on the GPU against the definition, byte for byte.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gpu/pack_mirror.h"
#include "kernels/copy.h"
#include "kernels/pack_case.h"

namespace segue::kernels {
namespace {

std::string Try(Mirror& mirror, const PackCase& pack_case) {
  std::string wrong = mirror.Upload(pack_case.BeforePack());
  if (wrong.empty()) wrong = Text(PackRows(pack_case.Params(mirror.addresses()), OnGpu()));
  if (wrong.empty()) wrong = Finish();
  const std::vector<Bytes> packed = pack_case.AfterPack();
  if (wrong.empty()) wrong = FirstDifference(mirror.Download(packed), packed);
  if (!wrong.empty()) return "pack: " + pack_case.Describe() + ": " + wrong;
  wrong = mirror.Upload(pack_case.BeforeScatter());
  if (wrong.empty()) wrong = Text(ScatterRows(pack_case.Params(mirror.addresses()), OnGpu()));
  if (wrong.empty()) wrong = Finish();
  const std::vector<Bytes> scattered = pack_case.AfterScatter();
  if (wrong.empty()) wrong = FirstDifference(mirror.Download(scattered), scattered);
  return wrong.empty() ? "" : "scatter: " + pack_case.Describe() + ": " + wrong;
}

std::string Try(Mirror& mirror, const PackOptions& options, MaskPattern pattern) {
  const int64_t rows = options.prefix_rows + options.main_rows;
  return Try(mirror, PackCase(options, MakeMask(pattern, options.batch, rows, options.seed)));
}

TEST(PackGpu, MasksTypesAndCounts) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(8 << 20);
  for (const MaskPattern pattern : kMaskPatterns) {
    for (const DType element_type : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const DType index_type : {DType::kI32, DType::kI64}) {
        for (const bool pass_count : {false, true}) {
          ASSERT_EQ(Try(mirror,
                        {.batch = 3,
                         .prefix_rows = 5,
                         .main_rows = 37,
                         .element_type = element_type,
                         .index_type = index_type,
                         .spare_rows = 9,
                         .pass_count = pass_count},
                        pattern),
                    "");
        }
      }
    }
  }
}

TEST(PackGpu, PrefixesAndBucketPadding) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(8 << 20);
  for (const int64_t prefix : {0, 1, 7, 64, 512, 1024}) {
    for (const int64_t pad : {0, 1, 127}) {
      for (const int64_t batch : {1, 2}) {
        std::vector<uint8_t> mask;
        for (int64_t b = 0; b < batch; ++b) {
          const int64_t text = b == 0 ? prefix : prefix / 2;
          for (int64_t i = 0; i < prefix; ++i) mask.push_back(i < text ? 1 : 0);
          mask.insert(mask.end(), 33, 1);
          mask.insert(mask.end(), pad, 0);
        }
        ASSERT_EQ(Try(mirror, PackCase({.batch = batch,
                                        .prefix_rows = prefix,
                                        .main_rows = 33 + pad,
                                        .widths = {128, 64, 64}},
                                       mask)),
                  "");
      }
    }
  }
}

TEST(PackGpu, EveryNumberOfPackedRows) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(4 << 20);
  for (int64_t count = 0; count <= 1024; count += count < 70 ? 1 : 53) {
    std::vector<uint8_t> mask(1024, 0);
    for (int64_t i = 0; i < count; ++i) mask[(i * 381) % 1024] = 1;
    ASSERT_EQ(Try(mirror, PackCase({.prefix_rows = 64, .main_rows = 960, .widths = {8}}, mask)),
              "");
  }
}

// Every vector width (16 to 2 bytes) and rows on both sides of a CTA's share.
TEST(PackGpu, StridesOffsetsAndWidths) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(64 << 20);
  for (const DType element_type : {DType::kBF16, DType::kF32}) {
    for (const int64_t step : {1, 2, 4, 8, 3072}) {
      // Each alone decides how wide a vector may be: rows, packed rows, sequences, the beginning.
      for (int which = 0; which < 16; ++which) {
        PackOptions options{.batch = 2, .prefix_rows = 3, .main_rows = 9};
        options.widths = {1536, 8, 264};
        options.element_type = element_type;
        options.row_gap = (which & 1) != 0 ? step : 0;
        options.packed_gap = (which & 2) != 0 ? step : 0;
        options.batch_gap = (which & 4) != 0 ? step : 0;
        options.offset = (which & 8) != 0 ? step : 0;
        ASSERT_EQ(Try(mirror, options, MaskPattern::kRandom), "");
      }
    }
    for (const std::vector<int64_t>& widths : std::vector<std::vector<int64_t>>{
             {16}, {24}, {2040}, {4088, 4096, 4104}, {8184, 8192, 8200}, {65536}}) {
      ASSERT_EQ(Try(mirror,
                    {.batch = 2,
                     .prefix_rows = 2,
                     .main_rows = 11,
                     .widths = widths,
                     .element_type = element_type},
                    MaskPattern::kGap),
                "");
    }
  }
}

TEST(PackGpu, ShapeOfTheBenchmark) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(128 << 20);
  EXPECT_EQ(Try(mirror, {.prefix_rows = 64, .main_rows = 4096, .widths = {1536, 1536, 1536}},
                MaskPattern::kRandom),
            "");
}

// Rows that exist nowhere give zeros and set the flag; nothing else does.
TEST(PackGpu, IndicesOutOfRange) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(1 << 20);
  for (const DType index_type : {DType::kI32, DType::kI64}) {
    const PackCase pack_case(
        {.batch = 2, .prefix_rows = 3, .main_rows = 7, .widths = {24}, .index_type = index_type},
        std::vector<uint8_t>(20, 1));
    std::vector<int64_t> bad = {-1, 20, INT32_MAX, INT32_MIN};
    if (index_type == DType::kI64) {
      bad.insert(bad.end(), {int64_t{1} << 32, (int64_t{1} << 32) + 3, INT64_MAX, INT64_MIN});
    }
    for (const bool scatter : {false, true}) {
      for (const int64_t value : bad) {
        std::vector<Bytes> memory = scatter ? pack_case.BeforeScatter() : pack_case.BeforePack();
        std::vector<Bytes> want = scatter ? pack_case.AfterScatter() : pack_case.AfterPack();
        std::vector<int64_t> index = pack_case.index();  // all valid: its own inverse
        index[13] = value;
        memory[scatter ? 4 : 3] = IndexBytes(index, index_type);
        want[scatter ? 4 : 3] = memory[scatter ? 4 : 3];
        memory.push_back(Bytes(4, 0));
        const bool hole = scatter && value == -1;
        want.push_back({static_cast<uint8_t>(hole ? 0 : 1), 0, 0, 0});
        // Padded row 13 is row 0 of the main rows of sequence 1.
        Bytes& rows = want[scatter ? 1 : 2];
        std::fill_n(rows.begin() + (scatter ? 7 : 13) * 48, 48, 0);
        ASSERT_EQ(mirror.Upload(memory), "");
        PackParams params = pack_case.Params(mirror.addresses());
        params.error = static_cast<int32_t*>(mirror.addresses().back());
        ASSERT_EQ(Text((scatter ? ScatterRows : PackRows)(params, OnGpu())), "");
        ASSERT_EQ(Finish(), "");
        EXPECT_EQ(FirstDifference(mirror.Download(want), want), "")
            << (scatter ? "scatter " : "pack ") << value << " " << DTypeName(index_type);
      }
    }
  }
}

// A count outside [0, packed_rows] is taken as the nearer bound.
TEST(PackGpu, CountsOutOfRange) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(1 << 20);
  const PackCase pack_case({.main_rows = 10, .widths = {8}, .pass_count = true},
                           std::vector<uint8_t>(10, 1));
  for (const int32_t count : {-5, 0, 4, 10, 11, INT32_MAX}) {
    std::vector<Bytes> memory = pack_case.BeforePack();
    const std::vector<Bytes> all = pack_case.AfterPack();
    std::memcpy(memory.back().data() + 4, &count, 4);
    std::vector<Bytes> want = memory;
    const int32_t used = std::clamp(count, 0, 10);
    std::copy_n(all[2].begin(), used * 16, want[2].begin());
    ASSERT_EQ(mirror.Upload(memory), "");
    ASSERT_EQ(Text(PackRows(pack_case.Params(mirror.addresses()), OnGpu())), "");
    ASSERT_EQ(Finish(), "");
    EXPECT_EQ(FirstDifference(mirror.Download(want), want), "") << "count " << count;
  }
}

// Captured with one mask on a side stream, replayed with others: an eager call's bytes.
TEST(PackGpu, GraphReplaysWithOtherMasks) {
  SEGUE_SKIP_WITHOUT_GPU();
  constexpr int64_t kBatch = 3;
  constexpr int64_t kPrefix = 64;
  constexpr int64_t kMain = 300;
  constexpr int64_t kRows = kBatch * (kPrefix + kMain);
  Mirror mirror(32 << 20);
  const auto make = [&](int i) {
    const auto seed = static_cast<uint32_t>(i);
    const std::vector<uint8_t> mask =
        MakeMask(kMaskPatterns[i % std::size(kMaskPatterns)], kBatch, kPrefix + kMain, seed + 10);
    const auto valid = std::count(mask.begin(), mask.end(), 1);
    const PackOptions options{.batch = kBatch,
                              .prefix_rows = kPrefix,
                              .main_rows = kMain,
                              .widths = {256, 64, 64},
                              .spare_rows = kRows - valid,
                              .pass_count = true,
                              .seed = seed};
    return std::pair(PackCase(options, mask), mask);
  };
  // The case's memory with index, inverse and cu_seqlens for the device to make; then the mask, the
  // scratch, and padded tensors to scatter to.
  const auto memory_of = [](const PackCase& pack_case, const std::vector<uint8_t>& mask) {
    std::vector<Bytes> memory = pack_case.BeforePack();
    for (size_t i = 9; i < 12; ++i) std::fill(memory[i].begin(), memory[i].end(), 0xa5);
    memory.push_back(mask);
    memory.emplace_back(PackIndexScratch(kRows) * 4);
    const std::vector<Bytes> scatter = pack_case.BeforeScatter();
    for (const size_t i : {0, 1, 3, 4, 6, 7}) memory.push_back(scatter[i]);
    return memory;
  };
  const auto [first, first_mask] = make(0);
  ASSERT_EQ(mirror.Upload(memory_of(first, first_mask)), "");
  const std::vector<void*> at = mirror.addresses();
  const PackParams pack = first.Params(at);
  std::vector<void*> back = at;
  for (size_t i = 0; i < 3; ++i) {
    back[3 * i] = at[14 + 2 * i];
    back[3 * i + 1] = at[15 + 2 * i];
  }
  const PackParams scatter = first.Params(back);
  PackIndexParams index{.batch = kBatch, .capacity = kRows};
  const int64_t stride = kPrefix + kMain;
  index.prefix = {.rows = kPrefix, .mask = at[12], .mask_stride = stride};
  index.main = {.rows = kMain, .mask = static_cast<char*>(at[12]) + kPrefix, .mask_stride = stride};
  index.index = at[9];
  index.inverse = at[10];
  index.cu_seqlens = static_cast<int32_t*>(at[11]);
  index.scratch = static_cast<int32_t*>(at[13]);

  cudaStream_t side = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(side, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(Text(PackIndex(index, OnGpu(false, side))), "");
  EXPECT_EQ(Text(PackRows(pack, OnGpu(false, side))), "");
  EXPECT_EQ(Text(ScatterRows(scatter, OnGpu(false, side))), "");
  ASSERT_EQ(cudaStreamEndCapture(side, &graph), cudaSuccess);
  size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 4u) << "two kernels for the index, one to pack, one to scatter";
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int i = 0; i < 16; ++i) {
    const auto [pack_case, mask] = make(i);
    ASSERT_EQ(mirror.Upload(memory_of(pack_case, mask)), "");
    ASSERT_EQ(mirror.addresses(), at);
    ASSERT_EQ(cudaGraphLaunch(executable, side), cudaSuccess);
    ASSERT_EQ(Finish(), "");
    std::vector<Bytes> want = pack_case.AfterPack();
    want.push_back(mask);
    want.emplace_back(0);  // scratch: any
    const std::vector<Bytes> scattered = pack_case.AfterScatter();
    for (const size_t m : {0, 1, 3, 4, 6, 7}) want.push_back(scattered[m]);
    EXPECT_EQ(FirstDifference(mirror.Download(want), want), "") << pack_case.Describe();
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(side);
}

TEST(PackGpu, CopyBytes) {
  SEGUE_SKIP_WITHOUT_GPU();
  Mirror mirror(4 << 20);
  for (const int64_t bytes : {16, 4096, 16384, 16400, 1 << 20}) {
    Bytes from(bytes);
    for (int64_t i = 0; i < bytes; ++i) from[i] = static_cast<uint8_t>(i * 7 >> 3);
    Bytes to(bytes + 64, 0xa5);
    ASSERT_EQ(mirror.Upload({from, to}), "");
    const std::vector<void*>& at = mirror.addresses();
    ASSERT_EQ(Text(CopyBytes({at[0], at[1], bytes}, OnGpu())), "");
    ASSERT_EQ(Finish(), "");
    std::copy(from.begin(), from.end(), to.begin());
    EXPECT_EQ(FirstDifference(mirror.Download({from, to}), {from, to}), "") << bytes;
  }
  EXPECT_FALSE(CopyBytes({mirror.addresses()[0], mirror.addresses()[1], 8}, OnGpu()).ok());
}

}  // namespace
}  // namespace segue::kernels
