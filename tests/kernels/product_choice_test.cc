#include "kernels/product_choice.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "kernels/product_scratch.h"
#include "weights/files.h"

namespace segue::kernels {
namespace {

constexpr char kSetting[] = "NVIDIA H200 with 132 SMs, driver 13000 580.1, cuBLASLt 130100";

ProductChoices SomeChoices() {
  ProductChoices choices;
  const ProductForm plain{.n = 9216, .k = 3072, .bias = true};
  choices[{plain, 64}] = {.algorithm = {66, 0xffffffffffffffffu, 3}, .nanoseconds = 18300};
  choices[{plain, 4096}] = {.algorithm = {0, 1, 2, 3, 4, 5, 6, 7}, .nanoseconds = 297400};
  const ProductForm other{.n = 384,
                          .k = 16384,
                          .k_splits = 2,
                          .transposed_weight = true,
                          .epilogue = ProductEpilogue::kGeluTanh,
                          .y_dtype = DType::kF32};
  choices[{other, 1024}] = {.algorithm = {}, .nanoseconds = 0};
  return choices;
}

TEST(ProductChoice, RowsGoToTheNextBucket) {
  const std::vector<std::pair<int64_t, int64_t>> expected = {
      {1, 16},      {16, 16},     {17, 32},       {64, 64},       {65, 96},        {128, 128},
      {129, 192},   {512, 512},   {513, 576},     {1024, 1024},   {1025, 1040},    {4096, 4096},
      {6889, 6896}, {8192, 8192}, {16384, 16384}, {16385, 16384}, {1 << 20, 16384}};
  for (const auto& [rows, bucket] : expected) EXPECT_EQ(ProductRowBucket(rows), bucket) << rows;
}

TEST(ProductChoice, OnlyLongSumsOfFewColumnsAreCut) {
  EXPECT_EQ(FewRowSplits(3072, 12288), 2);  // the DiT's MLP, down
  EXPECT_EQ(FewRowSplits(3584, 18944), 2);  // the text encoder's
  EXPECT_EQ(FewRowSplits(3072, 3072), 1);
  EXPECT_EQ(FewRowSplits(12288, 3072), 1);
  EXPECT_EQ(FewRowSplits(18944, 8192), 1);
  EXPECT_EQ(FewRowSplits(192, 768), 1);
  for (const int64_t k : {8200, 12288 + 64, 18944}) {
    ProductForm form{.n = 3072, .k = k};
    form.k_splits = FewRowSplits(form.n, form.k);
    EXPECT_TRUE(CheckProductForm("test", form).ok()) << k;
  }
}

TEST(ProductChoice, RowsAtOnceFitTheWorkspace) {
  ProductForm form{.n = 3072, .k = 12288, .k_splits = 2};
  const int64_t rows = ProductRowsAtOnce(form, int64_t{32} << 20);
  EXPECT_EQ(rows, 1280);
  EXPECT_LE(rows * form.n * 2 * 4, int64_t{32} << 20);
  EXPECT_EQ(ProductRowsAtOnce(form, int64_t{1} << 20), 32);
  EXPECT_EQ(ProductRowsAtOnce(form, 0), 0);
  form.k_splits = 1;
  EXPECT_GT(ProductRowsAtOnce(form, 0), int64_t{1} << 20);
}

TEST(ProductChoice, FormsAreChecked) {
  const auto ok = [](const ProductForm& form) { return CheckProductForm("test", form).ok(); };
  EXPECT_TRUE(ok({.n = 8, .k = 8}));
  EXPECT_TRUE(ok({.n = 64, .k = 12288, .k_splits = 3, .y_dtype = DType::kF32}));
  EXPECT_FALSE(ok({.n = 0, .k = 8}));
  EXPECT_FALSE(ok({.n = 12, .k = 8}));
  EXPECT_FALSE(ok({.n = 8, .k = 4}));
  EXPECT_FALSE(ok({.n = 8, .k = 128, .k_splits = 0}));
  EXPECT_FALSE(ok({.n = 8, .k = 192, .k_splits = 2}));
  EXPECT_FALSE(ok({.n = 8, .k = 8, .y_dtype = DType::kF16}));
  const Status status = CheckProductForm("test", {.n = 12, .k = 8});
  EXPECT_EQ(status.error().Message(), "test: n: got 12, wanted a multiple of 8, at least 8");
}

TEST(ProductChoice, TheFirstWithinAHundredthWins) {
  const auto winner = [](std::vector<double> times) { return WinningTime(times); };
  EXPECT_EQ(winner({5.0}), 0u);
  EXPECT_EQ(winner({5.0, 4.0, 6.0}), 1u);
  EXPECT_EQ(winner({5.0, 4.99, 4.98}), 0u);
  EXPECT_EQ(winner({5.0, 4.9, 4.89}), 1u);
}

TEST(ProductChoice, TextGivesTheChoicesBack) {
  for (const ProductChoices& choices : {SomeChoices(), ProductChoices()}) {
    const auto parsed = ParseProductChoices(kSetting, FormatProductChoices(kSetting, choices));
    ASSERT_TRUE(parsed.ok()) << parsed.error().Message();
    EXPECT_EQ(*parsed, choices);
  }
}

TEST(ProductChoice, NoChangedByteIsBelieved) {
  const std::string text = FormatProductChoices(kSetting, SomeChoices());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char other : {'0', '1', ' ', '\n', '\0', static_cast<char>(text[i] ^ 1)}) {
      if (other == text[i]) continue;
      std::string changed = text;
      changed[i] = other;
      EXPECT_FALSE(ParseProductChoices(kSetting, changed).ok()) << "byte " << i;
    }
    EXPECT_FALSE(ParseProductChoices(kSetting, text.substr(0, i)).ok()) << i << " bytes";
  }
  EXPECT_FALSE(ParseProductChoices(kSetting, text + "\n").ok());
  EXPECT_FALSE(ParseProductChoices(kSetting, text + text).ok());
  const auto other = ParseProductChoices("another GPU", text);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kCorrupt);
}

TEST(ProductChoice, SettingsHaveFilesOfTheirOwn) {
  const std::string name = ProductChoicesFileName(kSetting);
  EXPECT_EQ(name, ProductChoicesFileName(kSetting));
  EXPECT_NE(name, ProductChoicesFileName("another GPU"));
  EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-."), std::string::npos);
}

TEST(ProductChoice, FilesAreReplacedWhole) {
  const testing::TempDirectory directory;
  const std::string path = directory / "cache/of/choices.txt";
  auto read = ReadProductChoices(path);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, "");
  for (const std::string text : {"one\n", "another one\n", ""}) {
    ASSERT_TRUE(WriteProductChoices(path, text).ok());
    read = ReadProductChoices(path);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(*read, text);
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory.path())) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 1u) << "a part was left";
}

TEST(ProductChoice, WhatCannotBeWrittenIsLeftAlone) {
  const testing::TempDirectory directory;
  const std::string path = directory / "choices.txt";
  ASSERT_EQ(mkdir(path.c_str(), 0755), 0);
  const Status written = WriteProductChoices(path, "text");  // over a directory
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
  EXPECT_EQ(written.error().argument, path);
  EXPECT_FALSE(ReadProductChoices(path).ok());
  EXPECT_FALSE(WriteProductChoices("/proc/none/choices.txt", "text").ok());
}

TEST(ProductScratch, HoldsTheLargestOfEveryBucketOnce) {
  const ProductForm wide = {.n = 12288, .k = 3072, .bias = true};
  const ProductForm cut = {.n = 3072, .k = 12288, .k_splits = 2, .bias = true};
  const int64_t workspace = int64_t{4} << 20;
  const int64_t at_once = ProductRowsAtOnce(cut, workspace);
  ASSERT_EQ(at_once, 128);
  // 300 rows run as 128, 128 and 44; 4100 as what 4112 stands for; nothing of no rows.
  const std::vector<ProductShape> buckets = ProductBuckets(
      std::vector<ProductShape>{{cut, 300}, {wide, 4100}, {wide, 4112}, {wide, 0}}, workspace);
  EXPECT_EQ(buckets, (std::vector<ProductShape>{{cut, 128}, {cut, 64}, {wide, 4112}}));
  EXPECT_EQ(ProductScratchBytes({}), 0);
  // Two y of the wide one, its x and bias, copies of a weight, and the count of differences.
  EXPECT_EQ(ProductScratchBytes(buckets), 2 * 4112 * 12288 * 2 + 4112 * 3072 * 2 + 12288 * 2 +
                                              kTimedWeightBytes + Arena::kAlignment);
}

}  // namespace
}  // namespace segue::kernels
