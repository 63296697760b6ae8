#include "segue/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "model/weights/tensor_file.h"
#include "segue/image.h"
#include "segue/stages.h"

namespace segue {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class CompareTest : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = std::filesystem::path(testing::TempDir()) / ("segue-" + std::string(info->name()));
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return (directory_ / name).string(); }

  std::string Tensors(const std::string& name, const std::vector<StageTensor>& tensors) const {
    const Status status = WriteStages(Path(name), tensors);
    EXPECT_TRUE(status.ok()) << status.error().Message();
    return Path(name);
  }

  std::string Bytes(const std::string& name, const std::vector<uint8_t>& bytes) const {
    std::ofstream(Path(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return Path(name);
  }

  std::string Png(const std::string& name, const Image& image) const {
    return Bytes(name, *EncodePng(image, {}));
  }

  CompareReport Compare(const std::string& a, const std::string& b) const {
    Result<CompareReport> report = CompareFiles(a, b);
    EXPECT_TRUE(report.ok()) << report.error().Message();
    return report.ok() ? *std::move(report) : CompareReport{};
  }

  std::filesystem::path directory_;
};

TEST_F(CompareTest, NumbersAreTheirDefinitions) {
  const std::string a = Tensors("a", {{"x", {2, 3}, {1, 2, 3, 4, 5, 6.5F}}});
  const std::string b = Tensors("b", {{"x", {2, 3}, {1, 2, 3, 4, 4, 6}}});
  const CompareReport report = Compare(a, b);
  EXPECT_EQ(report.kind, FileKind::kTensors);
  ASSERT_EQ(report.tensors.size(), 1U);
  const TensorDifference& d = report.tensors[0];
  EXPECT_EQ(d.name, "x");
  EXPECT_EQ(d.elements, 6);
  EXPECT_EQ(d.different, 2);
  EXPECT_EQ(d.first_difference, 4);
  EXPECT_DOUBLE_EQ(d.max_abs, 1);
  EXPECT_DOUBLE_EQ(d.relative_l2, std::sqrt(1.25 / (1 + 4 + 9 + 16 + 16 + 36)));
  EXPECT_DOUBLE_EQ(d.psnr, 10 * std::log10(36 / (1.25 / 6)));
  EXPECT_FALSE(d.within_level.has_value());
  EXPECT_FALSE(IsWithin(d, {}));
  EXPECT_TRUE(IsWithin(d, {.max_abs = 1}));
  EXPECT_FALSE(IsWithin(d, {.max_abs = 0.999}));
  EXPECT_TRUE(IsWithin(d, {.relative_l2 = 0.2}));
  EXPECT_FALSE(IsWithin(d, {.max_abs = 1, .relative_l2 = 0.1}));
}

TEST_F(CompareTest, EqualTensorsAreEqual) {
  const std::string a = Tensors("a", {{"x", {4}, {0, -0.0F, kNan, kInf}}, {"empty", {0, 3}, {}}});
  const std::string b = Tensors("b", {{"x", {4}, {-0.0F, 0, kNan, kInf}}, {"empty", {0, 3}, {}}});
  for (const TensorDifference& d : Compare(a, b).tensors) {
    EXPECT_TRUE(IsWithin(d, {})) << d.name;
    EXPECT_EQ(d.relative_l2, 0);
    EXPECT_TRUE(std::isinf(d.psnr));
    EXPECT_FALSE(d.first_difference.has_value());
  }
}

TEST_F(CompareTest, NonFiniteValuesNeverPass) {
  const std::string a = Tensors("a", {{"x", {3}, {1, kNan, 3}}, {"y", {2}, {kInf, 2}}});
  const std::string b = Tensors("b", {{"x", {3}, {1, 2, 3}}, {"y", {2}, {-kInf, 2}}});
  for (const TensorDifference& d : Compare(a, b).tensors) {
    EXPECT_EQ(d.non_finite_differences, 1) << d.name;
    EXPECT_EQ(d.max_abs, 0);
    EXPECT_FALSE(IsWithin(d, {.max_abs = 1e30, .relative_l2 = 1e30})) << d.name;
  }
}

TEST_F(CompareTest, AReferenceOfZerosIsInfinitelyFar) {
  const std::string a = Tensors("a", {{"x", {1}, {1}}});
  const std::string b = Tensors("b", {{"x", {1}, {0}}});
  EXPECT_TRUE(std::isinf(Compare(a, b).tensors[0].relative_l2));
  EXPECT_FALSE(IsWithin(Compare(a, b).tensors[0], {.relative_l2 = 1e30}));
}

TEST_F(CompareTest, NamesAndShapesMustMatch) {
  const std::string a = Tensors("a", {{"both", {2}, {1, 2}}, {"a", {1}, {1}}, {"z", {2}, {1, 2}}});
  const std::string b =
      Tensors("b", {{"b", {1}, {1}}, {"z", {2, 1}, {1, 2}}, {"both", {2}, {1, 2}}});
  const CompareReport report = Compare(a, b);
  ASSERT_EQ(report.tensors.size(), 4U);
  EXPECT_TRUE(IsWithin(report.tensors[0], {}));
  EXPECT_EQ(report.tensors[1].name, "a");
  EXPECT_EQ(report.tensors[1].dtype_b, "");
  EXPECT_EQ(report.tensors[2].name, "z");
  EXPECT_EQ(report.tensors[3].name, "b");
  EXPECT_EQ(report.tensors[3].dtype_a, "");
  for (size_t i = 1; i < 4; ++i) EXPECT_FALSE(IsWithin(report.tensors[i], {.max_abs = 1e30}));
}

TEST_F(CompareTest, DtypesAreWidened) {
  const uint16_t bf16[] = {FloatToBF16(1.5F), FloatToBF16(-2.0F)};
  const uint16_t f16[] = {FloatToF16(1.5F), FloatToF16(-2.0F)};
  const int64_t i64[] = {151645, -1};
  const int32_t i32[] = {151645, -1};
  const auto write = [&](const std::string& name, DType dtype, const void* half, DType integer,
                         const void* whole) {
    const Status status = model::WriteTensorFile(
        Path(name), {{"half", {half, dtype, {2}}}, {"ids", {whole, integer, {2}}}});
    EXPECT_TRUE(status.ok());
    return Path(name);
  };
  const std::string a = write("a", DType::kBF16, bf16, DType::kI64, i64);
  const std::string b = write("b", DType::kF16, f16, DType::kI32, i32);
  for (const TensorDifference& d : Compare(a, b).tensors) EXPECT_TRUE(IsWithin(d, {})) << d.name;
}

TEST_F(CompareTest, PicturesAreComparedByLevels) {
  Image image{.width = 5, .height = 4, .rgb = std::vector<uint8_t>(60, 100)};
  const std::string a = Png("a", image);
  image.rgb[0] = 101;
  image.rgb[1] = 99;   // the same pixel, within a level
  image.rgb[59] = 97;  // the last pixel, three levels off
  const std::string b = Png("b", image);
  const CompareReport report = Compare(a, b);
  EXPECT_EQ(report.kind, FileKind::kPicture);
  const TensorDifference& d = report.tensors[0];
  EXPECT_EQ(d.shape_a, (std::vector<int64_t>{4, 5, 3}));
  EXPECT_EQ(d.max_abs, 3);
  EXPECT_EQ(d.different, 3);
  EXPECT_EQ(d.first_difference, 0);
  EXPECT_DOUBLE_EQ(*d.within_level, 0.95);
  EXPECT_DOUBLE_EQ(d.psnr, 10 * std::log10(255.0 * 255.0 / (11.0 / 60)));
  EXPECT_TRUE(IsWithin(d, {.max_abs = 3, .within_level = 0.95}));
  EXPECT_FALSE(IsWithin(d, {.max_abs = 3, .within_level = 0.96}));
  EXPECT_TRUE(IsWithin(Compare(a, a).tensors[0], {}));
  const Image wide{.width = 6, .height = 4, .rgb = std::vector<uint8_t>(72, 100)};
  EXPECT_FALSE(IsWithin(Compare(a, Png("c", wide)).tensors[0], {.max_abs = 255}));
}

TEST_F(CompareTest, UnsoundFilesAndMixedKindsAreErrors) {
  const std::string tensors = Tensors("t", {{"x", {1}, {1}}});
  const Image image{.width = 1, .height = 1, .rgb = {1, 2, 3}};
  const std::string png = Png("p", image);
  EXPECT_EQ(CompareFiles(tensors, Path("none")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(CompareFiles(png, Path("none")).error().code, ErrorCode::kNotFound);
  const Result<CompareReport> mixed = CompareFiles(png, tensors);
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.error().wanted, "two files of one kind");
  EXPECT_FALSE(CompareFiles(tensors, Bytes("junk", {'j', 'u', 'n', 'k'})).ok());
  std::vector<uint8_t> cut = *EncodePng(image, {});
  cut.resize(40);
  const Result<CompareReport> half = CompareFiles(png, Bytes("cut", cut));
  ASSERT_FALSE(half.ok());
  EXPECT_EQ(half.error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(half.error().argument, Path("cut"));
}

class StagesTest : public CompareTest {};

TEST_F(StagesTest, LatentsComeBack) {
  const std::vector<float> values = {1, -2, 3.5F, 4, 5, 6};
  const std::string named = Tensors("named", {{"other", {1}, {0}}, {"latents", {1, 3, 2}, values}});
  const std::string dump = Tensors("dump", {{"x", {1, 1}, {0}}, {"noise", {3, 2}, values}});
  const std::string only = Tensors("only", {{"z", {3, 2}, values}});
  for (const std::string& path : {named, dump, only}) {
    const Result<StageTensor> latents = ReadLatents(path);
    ASSERT_TRUE(latents.ok()) << latents.error().Message();
    EXPECT_EQ(latents->shape, (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(latents->values, values);
  }
}

TEST_F(StagesTest, LatentsThatCannotBeAreErrors) {
  EXPECT_EQ(ReadLatents(Path("none")).error().code, ErrorCode::kNotFound);
  const Result<StageTensor> several =
      ReadLatents(Tensors("several", {{"a", {1, 1}, {0}}, {"b", {1, 1}, {0}}}));
  ASSERT_FALSE(several.ok());
  EXPECT_EQ(several.error().got, "tensors a, b");
  EXPECT_EQ(ReadLatents(Tensors("none-in", {})).error().got, "no tensor");
  EXPECT_EQ(ReadLatents(Tensors("flat", {{"latents", {4}, {1, 2, 3, 4}}})).error().got,
            "shape [4]");
  EXPECT_EQ(ReadLatents(Tensors("batch", {{"latents", {2, 1, 2}, {1, 2, 3, 4}}})).error().got,
            "shape [2, 1, 2]");
  EXPECT_EQ(ReadLatents(Tensors("empty", {{"latents", {0, 64}, {}}})).error().got, "shape [0, 64]");
  // B060: noise that is not finite never starts a picture.
  const Result<StageTensor> nan = ReadLatents(Tensors("nan", {{"latents", {1, 2}, {1, kNan}}}));
  ASSERT_FALSE(nan.ok());
  EXPECT_EQ(nan.error().code, ErrorCode::kNonFinite);
  EXPECT_EQ(nan.error().got, "nan at index 1");
  const int64_t ids[] = {1, 2};
  ASSERT_TRUE(model::WriteTensorFile(Path("ids"), {{"latents", {ids, DType::kI64, {1, 2}}}}).ok());
  EXPECT_EQ(ReadLatents(Path("ids")).error().got, "I64");
}

TEST_F(StagesTest, WritingChecksShapesAndNames) {
  EXPECT_FALSE(WriteStages(Path("a"), {{"x", {2, 2}, {1, 2, 3}}}).ok());
  EXPECT_FALSE(WriteStages(Path("a"), {{"x", {-1, -3}, {1, 2, 3}}}).ok());
  EXPECT_FALSE(WriteStages(Path("a"), {{"x", {int64_t{1} << 62, 4}, {}}}).ok());
  EXPECT_FALSE(WriteStages(Path("a"), {{"x", {1, 1, 1, 1, 1, 1}, {1}}}).ok());
  EXPECT_FALSE(WriteStages(Path("a"), {{"x", {1}, {1}}, {"x", {1}, {1}}}).ok());
  EXPECT_FALSE(std::filesystem::exists(Path("a")));
  EXPECT_FALSE(WriteStages(Path("no/a"), {{"x", {1}, {1}}}).ok());
}

}  // namespace
}  // namespace segue
