// Packing and scattering on the CPU give the bytes of concatenating and gathering.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/copy.h"
#include "kernels/pack_case.h"

namespace segue::kernels {
namespace {

std::string Text(const Status& status) { return status.ok() ? "" : status.error().Message(); }

// Packs and scatters by both implementations; the failure text is empty when all bytes are right.
std::string Try(const PackCase& pack_case) {
  ThreadPool one(1);
  ThreadPool three(3);
  const Context contexts[] = {{.stream = Stream::Cpu(one), .reference_only = true},
                              {.stream = Stream::Cpu(one)},
                              {.stream = Stream::Cpu(three)}};
  for (const Context& context : contexts) {
    std::vector<Bytes> memory = pack_case.BeforePack();
    Status status = PackRows(pack_case.Params(Addresses(memory)), context);
    std::string wrong = Text(status);
    if (wrong.empty()) wrong = FirstDifference(memory, pack_case.AfterPack());
    if (!wrong.empty()) return "pack: " + pack_case.Describe() + ": " + wrong;
    memory = pack_case.BeforeScatter();
    status = ScatterRows(pack_case.Params(Addresses(memory)), context);
    wrong = Text(status);
    if (wrong.empty()) wrong = FirstDifference(memory, pack_case.AfterScatter());
    if (!wrong.empty()) return "scatter: " + pack_case.Describe() + ": " + wrong;
  }
  return "";
}

std::string Try(const PackOptions& options, MaskPattern pattern) {
  const int64_t rows = options.prefix_rows + options.main_rows;
  return Try(PackCase(options, MakeMask(pattern, options.batch, rows, options.seed)));
}

TEST(PackRows, MasksOfEveryKind) {
  for (const MaskPattern pattern : kMaskPatterns) {
    for (const DType element_type : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const DType index_type : {DType::kI32, DType::kI64}) {
        EXPECT_EQ(Try({.batch = 3,
                       .prefix_rows = 5,
                       .main_rows = 37,
                       .element_type = element_type,
                       .index_type = index_type},
                      pattern),
                  "");
      }
    }
  }
}

// Valid keys are not the first N (left padding, gaps).
TEST(PackRows, MasksOfFiveKeys) {
  for (const std::string mask : {"00111", "11011", "10101", "00001", "11111", "00000"}) {
    std::vector<uint8_t> values;
    for (const char bit : mask) values.push_back(bit == '1' ? 1 : 0);
    EXPECT_EQ(Try(PackCase({.main_rows = 5}, values)), "") << mask;
  }
}

// A virtual [prefix, main] against the concatenation, bucket padding behind main.
TEST(PackRows, PrefixesAndBucketPadding) {
  for (const int64_t prefix : {0, 1, 7, 64, 512, 1024}) {
    for (const int64_t pad : {0, 1, 127}) {
      const int64_t main = 33;
      for (const int64_t batch : {1, 2}) {
        std::vector<uint8_t> mask;
        for (int64_t b = 0; b < batch; ++b) {
          const int64_t text = b == 0 ? prefix : prefix / 2;
          for (int64_t i = 0; i < prefix; ++i) mask.push_back(i < text ? 1 : 0);
          mask.insert(mask.end(), main, 1);
          mask.insert(mask.end(), pad, 0);
        }
        EXPECT_EQ(
            Try(PackCase({.batch = batch, .prefix_rows = prefix, .main_rows = main + pad}, mask)),
            "");
      }
    }
  }
}

TEST(PackRows, EveryNumberOfPackedRows) {
  for (int64_t count = 0; count <= 1024; count += count < 70 ? 1 : 53) {
    std::vector<uint8_t> mask(1024, 0);
    for (int64_t i = 0; i < count; ++i) mask[(i * 381) % 1024] = 1;  // 381 is odd: all distinct
    EXPECT_EQ(Try(PackCase({.prefix_rows = 64, .main_rows = 960, .widths = {8}}, mask)), "");
  }
  EXPECT_EQ(Try(PackCase({.prefix_rows = 64, .main_rows = 960, .widths = {8}},
                         std::vector<uint8_t>(1024, 1))),
            "");
}

TEST(PackRows, StridesOffsetsAndWidths) {
  for (const DType element_type : {DType::kBF16, DType::kF32}) {
    for (const int64_t step : {1, 8, 24}) {
      for (int which = 0; which < 16; ++which) {
        PackOptions options{.batch = 2, .prefix_rows = 3, .main_rows = 9};
        options.widths = {1536, 8, 264};
        options.element_type = element_type;
        options.row_gap = (which & 1) != 0 ? step : 0;
        options.packed_gap = (which & 2) != 0 ? step : 0;
        options.batch_gap = (which & 4) != 0 ? step : 0;
        options.offset = (which & 8) != 0 ? step : 0;
        EXPECT_EQ(Try(options, MaskPattern::kRandom), "");
      }
    }
  }
}

TEST(PackRows, CountBelowTheCapacity) {
  for (const MaskPattern pattern : kMaskPatterns) {
    EXPECT_EQ(
        Try({.batch = 2, .prefix_rows = 4, .main_rows = 20, .spare_rows = 11, .pass_count = true},
            pattern),
        "");
  }
}

TEST(PackRows, NoSequencesAndNoRows) {
  EXPECT_EQ(Try({.batch = 0, .prefix_rows = 3, .main_rows = 4}, MaskPattern::kFull), "");
  EXPECT_EQ(Try({.batch = 2}, MaskPattern::kFull), "");
  EXPECT_EQ(Try({.batch = 2, .prefix_rows = 6}, MaskPattern::kRandom), "");
}

// Rows of all sequences interleaved ([rows, batch, elements]) do not overlap either.
TEST(PackRows, SequencesInterleaved) {
  std::vector<uint16_t> padded(3 * 2 * 8);
  for (size_t i = 0; i < padded.size(); ++i) padded[i] = static_cast<uint16_t>(i);
  std::vector<uint16_t> packed(6 * 8);
  const int32_t index[] = {0, 1, 2, 3, 4, 5};
  ThreadPool pool(1);
  PackParams params{.tensor_count = 1, .batch = 2, .main_rows = 3, .index = index};
  params.packed_rows = 6;
  params.tensors[0] = {.main = {padded.data(), 16, 8},
                       .packed = packed.data(),
                       .packed_row_stride = 8,
                       .row_elements = 8};
  EXPECT_EQ(Text(PackRows(params, {.stream = Stream::Cpu(pool)})), "");
  for (int64_t t = 0; t < 6; ++t) EXPECT_EQ(packed[t * 8], t % 3 * 16 + t / 3 * 8) << t;
}

class PackRefusals : public testing::Test {
 protected:
  PackRefusals()
      : pack_case_({.batch = 2, .prefix_rows = 2, .main_rows = 3, .pass_count = true},
                   MakeMask(MaskPattern::kAlternating, 2, 5, 1)),
        memory_(pack_case_.BeforePack()),
        params_(pack_case_.Params(Addresses(memory_))) {}

  // Both operations refuse, name `part`, and write nothing.
  void ExpectRefused(const std::string& part) {
    const std::vector<Bytes> before = memory_;
    for (const auto& operation : {PackRows, ScatterRows}) {
      const Status status = operation(params_, {.stream = Stream::Cpu(pool_)});
      ASSERT_FALSE(status.ok()) << part;
      EXPECT_NE(status.error().Message().find(part), std::string::npos) << status.error().Message();
    }
    EXPECT_EQ(FirstDifference(memory_, before), "");
  }

  ThreadPool pool_{1};
  PackCase pack_case_;
  std::vector<Bytes> memory_;
  PackParams params_;
};

TEST_F(PackRefusals, Shapes) {
  const PackParams good = params_;
  const std::vector<std::pair<std::string, void (*)(PackParams&)>> mistakes = {
      {"tensor_count", [](PackParams& p) { p.tensor_count = 4; }},
      {"tensor_count", [](PackParams& p) { p.tensor_count = 0; }},
      {"element_type", [](PackParams& p) { p.element_type = DType::kU8; }},
      {"index_type", [](PackParams& p) { p.index_type = DType::kF32; }},
      {"batch", [](PackParams& p) { p.batch = -1; }},
      {"batch", [](PackParams& p) { p.batch = int64_t{1} << 30; }},
      {"prefix_rows", [](PackParams& p) { p.prefix_rows = -2; }},
      {"main_rows", [](PackParams& p) { p.main_rows = int64_t{1} << 40; }},
      {"packed_rows", [](PackParams& p) { p.packed_rows = -1; }},
      {"tensors[1].row_elements", [](PackParams& p) { p.tensors[1].row_elements = 12; }},
      {"tensors[0].row_elements", [](PackParams& p) { p.tensors[0].row_elements = 0; }},
      {"tensors[2].main", [](PackParams& p) { p.tensors[2].main.data = nullptr; }},
      {"tensors[0].prefix", [](PackParams& p) { p.tensors[0].prefix.row_stride = 15; }},
      {"tensors[0].main", [](PackParams& p) { p.tensors[0].main.batch_stride = 40; }},
      {"tensors[0].main", [](PackParams& p) { p.tensors[0].main.row_stride = int64_t{1} << 62; }},
      {"tensors[2].packed", [](PackParams& p) { p.tensors[2].packed = nullptr; }},
      {"tensors[2].packed",
       [](PackParams& p) { p.tensors[2].packed = static_cast<char*>(p.tensors[2].packed) + 1; }},
      {"tensors[1].packed_row_stride", [](PackParams& p) { p.tensors[1].packed_row_stride = 7; }},
  };
  for (const auto& [part, make] : mistakes) {
    params_ = good;
    make(params_);
    ExpectRefused(part);
  }
}

TEST_F(PackRefusals, IndicesOutOfRange) {
  std::vector<int64_t> index = pack_case_.index();
  for (const int64_t bad : {int64_t{-1}, int64_t{10}, int64_t{1} << 30}) {
    index[2] = bad;
    const Bytes bytes = IndexBytes(index, DType::kI32);
    PackParams params = params_;
    params.index = bytes.data();
    const Status status = PackRows(params, {.stream = Stream::Cpu(pool_)});
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_NE(status.error().Message().find("index"), std::string::npos);
  }
  std::vector<int64_t> inverse = pack_case_.inverse();
  for (const int64_t bad : {int64_t{-2}, pack_case_.count()}) {
    inverse[9] = bad;
    const Bytes bytes = IndexBytes(inverse, DType::kI32);
    PackParams params = params_;
    params.inverse = bytes.data();
    const Status status = ScatterRows(params, {.stream = Stream::Cpu(pool_)});
    ASSERT_FALSE(status.ok()) << bad;
    EXPECT_NE(status.error().Message().find("inverse"), std::string::npos);
  }
  for (const int32_t bad : {-1, static_cast<int32_t>(params_.packed_rows) + 1}) {
    PackParams params = params_;
    params.packed_count = &bad;
    EXPECT_FALSE(PackRows(params, {.stream = Stream::Cpu(pool_)}).ok());
    EXPECT_FALSE(ScatterRows(params, {.stream = Stream::Cpu(pool_)}).ok());
  }
  params_.index = nullptr;
  params_.inverse = nullptr;
  ExpectRefused("null");
}

TEST(CopyBytes, Copies) {
  for (const int64_t bytes : {0, 1, 17, 4096, 300001}) {
    Bytes from(bytes);
    for (int64_t i = 0; i < bytes; ++i) from[i] = static_cast<uint8_t>(i * 7);
    for (const bool reference : {false, true}) {
      ThreadPool pool(2);
      Bytes to(bytes + 8, 0xa5);
      const Status status = CopyBytes({from.data(), to.data(), bytes},
                                      {.stream = Stream::Cpu(pool), .reference_only = reference});
      EXPECT_EQ(Text(status), "");
      Bytes want = from;
      want.insert(want.end(), 8, 0xa5);
      EXPECT_TRUE(to == want) << bytes;
    }
  }
}

}  // namespace
}  // namespace segue::kernels
