#include "model/weights/finite_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "weights/files.h"

namespace segue::model {
namespace {

using segue::testing::TempDirectory;

template <typename T>
NonFiniteCount Count(const std::vector<T>& values, DType dtype) {
  return CountNonFinite(
      {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)}, dtype);
}

TEST(CountNonFinite, KnowsEveryKindOfValue) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Count<float>({0, -0.0f, 1e38f, 1e-45f}, DType::kF32).count, 0);
  EXPECT_EQ(Count<float>({0, -infinity, 1, std::nanf("")}, DType::kF32).count, 2);
  EXPECT_EQ(Count<float>({0, -infinity, 1, std::nanf("")}, DType::kF32).first, 1);
  // Largest finite, subnormal, infinity, NaN.
  EXPECT_EQ(Count<uint16_t>({0x7bff, 0x0001, 0xfbff}, DType::kF16).count, 0);
  EXPECT_EQ(Count<uint16_t>({0x7bff, 0x7c00, 0xfe01}, DType::kF16).count, 2);
  EXPECT_EQ(Count<uint16_t>({0x7f7f, 0x0001, 0xff7f}, DType::kBF16).count, 0);
  EXPECT_EQ(Count<uint16_t>({0x7f7f, 0xff80, 0x7fc0}, DType::kBF16).count, 2);
  // bfloat16's exponent is not float16's.
  EXPECT_EQ(Count<uint16_t>({0x7c00}, DType::kBF16).count, 0);
  EXPECT_EQ(Count<float>({}, DType::kF32).count, 0);
}

TEST(CountNonFinite, FindsOneValueAnywhere) {
  std::vector<float> values(3 * 4096 + 5, 1.0f);
  for (size_t at : {size_t{0}, size_t{4095}, size_t{4096}, values.size() - 1}) {
    values[at] = std::nanf("");
    const NonFiniteCount found = Count(values, DType::kF32);
    EXPECT_EQ(found.count, 1);
    EXPECT_EQ(found.first, static_cast<int64_t>(at));
    values[at] = 1;
  }
}

TEST(FindNonFinite, NamesTensorsAndPassesOverHoles) {
  const TempDirectory directory;
  // "big" lies in a hole of 16 GiB but for its last page.
  const int64_t elements = int64_t{1} << 32;
  std::string header =
      R"({"big":{"dtype":"F32","shape":[)" + std::to_string(elements) + R"(],"data_offsets":[0,)" +
      std::to_string(4 * elements) + R"(]},"mask":{"dtype":"U8","shape":[2],"data_offsets":[)" +
      std::to_string(4 * elements) + "," + std::to_string(4 * elements + 2) + "]}}";
  header.append(8 - header.size() % 8, ' ');
  const std::string path = directory / "model.safetensors";
  segue::testing::WriteFile(path, segue::testing::Safetensors(header, 0));
  std::error_code error;
  std::filesystem::resize_file(path, 8 + header.size() + 4 * elements + 2, error);
  if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-(2 + 3 * 4), std::ios::end);
    const float tail[3] = {std::nanf(""), 1, std::numeric_limits<float>::infinity()};
    file.write(reinterpret_cast<const char*>(tail), sizeof(tail));
    file.write("\xff\xff", 2);
  }
  if (!segue::testing::ReportsHoles(path)) {
    GTEST_SKIP() << "no holes are reported here, so 16 GiB would be read";
  }
  const auto table = TensorTable::Open(directory.path(), "model", "part");
  ASSERT_TRUE(table.ok()) << table.error().Message();
  const auto found = FindNonFinite(*table);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].entry->name, "big");
  EXPECT_EQ(found[0].count, 2);
  EXPECT_EQ(found[0].first, elements - 3);
}

}  // namespace
}  // namespace segue::model
