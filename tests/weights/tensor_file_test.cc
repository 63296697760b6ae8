#include "model/weights/tensor_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "weights/files.h"

namespace segue::model {
namespace {

using segue::testing::Mentions;
using segue::testing::ReadFile;
using segue::testing::TempDirectory;
using segue::testing::WriteFile;

TEST(TensorFile, ReadsBackWhatWasWritten) {
  const TempDirectory directory;
  const std::vector<float> floats = {1.5f, -0.0f, std::numeric_limits<float>::infinity(), 3e-40f};
  const std::vector<uint16_t> halves = {0x3c00, 0xc000, 0x7c00, 0x0001};
  const std::vector<uint16_t> bfloats = {0x3f80, 0xc000, 0x7f80, 0x0001};
  const std::vector<int32_t> ids = {1, -2};
  const std::string path = directory / "all.safetensors";
  ASSERT_TRUE(WriteTensorFile(path,
                              {{"f32", {floats.data(), DType::kF32, {2, 2}}},
                               {"f16", {halves.data(), DType::kF16, {4}}},
                               {"bf16", {bfloats.data(), DType::kBF16, {4, 1}}},
                               {"i32", {ids.data(), DType::kI32, {2}}},
                               {"a \"quoted\"\n\\name é", {floats.data(), DType::kF32, {}}},
                               {"empty", {floats.data(), DType::kF32, {0}}}},
                              {{"made by", "a \"test\""}})
                  .ok());

  const auto file = TensorFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().Message();
  const TensorFile& tensors = **file;
  EXPECT_EQ(tensors.entries().size(), 6u);
  EXPECT_EQ(tensors.header().metadata.at("made by"), "a \"test\"");
  const auto read = [&](const char* name) {
    const TensorEntry* entry = tensors.Find(name);
    EXPECT_NE(entry, nullptr) << name;
    return ReadFloat32(tensors.View(*entry)).value();
  };
  EXPECT_EQ(read("f32"), floats);
  EXPECT_TRUE(std::signbit(read("f32")[1]));
  EXPECT_EQ(read("f16"), (std::vector<float>{1, -2, floats[2], std::ldexp(1.0f, -24)}));
  EXPECT_EQ(read("bf16"), (std::vector<float>{1, -2, floats[2], std::ldexp(1.0f, -133)}));
  EXPECT_EQ(read("a \"quoted\"\n\\name é"), std::vector<float>{1.5f});
  EXPECT_TRUE(read("empty").empty());
  EXPECT_FALSE(ReadFloat32(tensors.View(*tensors.Find("i32"))).ok());
  EXPECT_EQ(tensors.Find("absent"), nullptr);
  // The data begin at a multiple of 8, whatever the header's length.
  EXPECT_EQ(tensors.entries().front().offset % 8, 0);
}

TEST(TensorFile, LeavesNoHalfFile) {
  const TempDirectory directory;
  const float value = 1;
  const NamedTensor tensor = {"x", {&value, DType::kF32, {1}}};
  EXPECT_FALSE(WriteTensorFile(directory / "twice.safetensors", {tensor, tensor}).ok());
  const Status unwritable = WriteTensorFile(directory / "no/such/place.safetensors", {tensor});
  ASSERT_FALSE(unwritable.ok());
  EXPECT_EQ(unwritable.error().code, ErrorCode::kIo);
  // A full disk.
  if (std::filesystem::exists("/dev/full")) {
    std::filesystem::create_symlink("/dev/full", directory / "full.safetensors.partial");
    EXPECT_FALSE(WriteTensorFile(directory / "full.safetensors", {tensor}).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(TensorFile, RefusesWhatIsNoFile) {
  const TempDirectory directory;
  EXPECT_EQ(TensorFile::Open(directory / "absent").error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(Mentions(TensorFile::Open(directory.path()).error(), {"a directory"}));
  EXPECT_TRUE(Mentions(TensorFile::Open("/dev/null").error(), {"a special file"}));
  WriteFile(directory / "empty", "");
  const auto empty = TensorFile::Open(directory / "empty");
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().code, ErrorCode::kCorrupt);
}

// The same verdict on a mapped file and on the same bytes in memory, for every prefix of a file.
TEST(TensorFile, AgreesWithTheParserOnEveryCut) {
  const TempDirectory directory;
  const std::vector<float> values = {1, 2, 3};
  const std::string path = directory / "whole";
  ASSERT_TRUE(WriteTensorFile(path, {{"x", {values.data(), DType::kF32, {3}}}}).ok());
  const std::string whole = ReadFile(path);
  for (size_t size = 0; size <= whole.size(); ++size) {
    WriteFile(directory / "cut", whole.substr(0, size));
    const auto mapped = TensorFile::Open(directory / "cut");
    const auto parsed = ParseTensorHeader({reinterpret_cast<const uint8_t*>(whole.data()), size},
                                          directory / "cut");
    ASSERT_EQ(mapped.ok(), size == whole.size()) << size;
    ASSERT_EQ(parsed.ok(), mapped.ok()) << size;
    if (!mapped.ok()) {
      EXPECT_EQ(mapped.error().Message(), parsed.error().Message());
    }
  }
}

}  // namespace
}  // namespace segue::model
