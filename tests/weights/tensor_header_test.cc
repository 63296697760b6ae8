// What a safetensors header may not say. The parser works on memory, so every case is a string.
#include <gtest/gtest.h>

#include <string>

#include "model/weights/tensor_file.h"
#include "weights/files.h"

namespace segue::model {
namespace {

using segue::testing::Mentions;
using segue::testing::Safetensors;

Result<TensorHeader> Parse(const std::string& file) {
  return ParseTensorHeader({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "w.st");
}

// The error of a file that must have one.
Error Refusal(const std::string& file) {
  const Result<TensorHeader> header = Parse(file);
  if (header.ok()) {
    ADD_FAILURE() << "accepted";
    return {};
  }
  return header.error();
}

// One F32 tensor "a" of 4 elements, whose offsets read as given.
std::string OneTensor(const std::string& offsets) {
  return R"({"a":{"dtype":"F32","shape":[4],"data_offsets":)" + offsets + "}}";
}

constexpr char kTwo[] = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]}})";

TEST(TensorHeader, ReadsEntriesInFileOrder) {
  const auto header =
      Parse(Safetensors(R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
                        R"("__metadata__":{"format":"pt"},)"
                        R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                        20));
  ASSERT_TRUE(header.ok()) << header.error().Message();
  ASSERT_EQ(header->entries.size(), 2u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[1].name, "b");
  EXPECT_EQ(header->entries[1].dtype, DType::kBF16);
  EXPECT_EQ(header->entries[1].shape, (Shape{2, 3}));
  EXPECT_EQ(header->entries[1].bytes, 12);
  EXPECT_EQ(header->entries[1].offset - header->entries[0].offset, 8);
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(TensorHeader, ReadsScalarsAndEmptyTensors) {
  const auto header =
      Parse(Safetensors(R"({"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                        R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}})",
                        4));
  ASSERT_TRUE(header.ok()) << header.error().Message();
  EXPECT_EQ(header->entries.size(), 2u);
  EXPECT_TRUE(Parse(Safetensors("{}", 0)).ok());
}

TEST(TensorHeader, NamesBothSizesOfEveryCut) {
  const std::string whole = Safetensors(kTwo, 20);
  const size_t header = whole.size() - 20;
  for (size_t cut :
       {size_t{0}, size_t{7}, size_t{8}, header - 1, header, header + 1, whole.size() - 1}) {
    const Error error = Refusal(whole.substr(0, cut));
    EXPECT_EQ(error.code, ErrorCode::kCorrupt);
    EXPECT_TRUE(Mentions(error, {"w.st", "a file of " + std::to_string(cut) + " bytes"}));
    const size_t wanted = cut < 8 ? 8 : cut < header ? header : whole.size();
    EXPECT_TRUE(Mentions(error, {std::to_string(wanted) + " bytes", "cut short"}));
  }
}

TEST(TensorHeader, RefusesTrailingBytes) {
  for (size_t extra : {1, 4096}) {
    EXPECT_TRUE(Mentions(Refusal(Safetensors(kTwo, 20 + extra)), {"trailing bytes"}));
  }
}

TEST(TensorHeader, KnowsImpostors) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 9973693184\n";
  EXPECT_TRUE(Mentions(Refusal(pointer), {"Git LFS pointer", "git lfs pull"}));
  for (const char* page : {"<!DOCTYPE html><html><body>404</body></html>", "\n <html>no</html>",
                           "<?xml version=\"1.0\"?><Error/>"}) {
    EXPECT_TRUE(Mentions(Refusal(page), {"web page"}));
  }
  const std::string archive("PK\x03\x04\x00\x00\x08\x08 archive/data.pkl", 25);
  EXPECT_TRUE(Mentions(Refusal(archive), {"PyTorch's .bin"}));
}

TEST(TensorHeader, RefusesAbsurdHeaderLengthsBeforeAllocating) {
  std::string file(16, '\xff');
  EXPECT_TRUE(Mentions(Refusal(file), {"header length of 18446744073709551615"}));
  // 100,000,001: one above the format's bound.
  file.replace(0, 8, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
  EXPECT_TRUE(Mentions(Refusal(file), {"100000001", "at most 100000000"}));
  file.replace(0, 8, std::string("\x00\xe1\xf5\x05\0\0\0\0", 8));
  EXPECT_TRUE(Mentions(Refusal(file), {"16 bytes", "100000008"}));
}

TEST(TensorHeader, WantsStrictJson) {
  for (const char* header : {"", "[]", "null", "{", "{}x", "{\"a\":}", " {}", "{\"a\":{}}",
                             "{\"a\":[]}", "{\"a\":NaN}", "\xff{}"}) {
    EXPECT_EQ(Refusal(Safetensors(header, 0)).code, ErrorCode::kCorrupt) << header;
  }
  // Spaces behind the object pad it; the reference writes them.
  EXPECT_TRUE(Parse(Safetensors("{}      ", 0)).ok());
}

TEST(TensorHeader, RefusesRepeatedNames) {
  const std::string twice = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                            R"("\u0061":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  EXPECT_TRUE(Mentions(Refusal(Safetensors(twice, 8)), {"\"a\" twice"}));
  const std::string keys = R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})";
  EXPECT_TRUE(Mentions(Refusal(Safetensors(keys, 4)), {"\"shape\" twice"}));
}

TEST(TensorHeader, RefusesBadOffsets) {
  for (const char* offsets : {"[4,0]", "[-4,12]", "[0]", "[0,8,16]", "[0.0,16]", "\"0,16\"",
                              "[0,18446744073709551615]", "[0,9223372036854775807]", "[0,15]",
                              "[0,17]", "[18446744073709551600,18446744073709551616]"}) {
    const Error error = Refusal(Safetensors(OneTensor(offsets), 16));
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << offsets;
    EXPECT_TRUE(Mentions(error, {"tensor \"a\"", "data_offsets"}));
  }
  // In range for its shape, but outside the file.
  EXPECT_TRUE(Mentions(Refusal(Safetensors(OneTensor("[16,32]"), 16)), {"cut short"}));
  EXPECT_TRUE(Parse(Safetensors(OneTensor("[0,16]"), 16)).ok());
}

TEST(TensorHeader, RefusesOverlapsAndHoles) {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)") + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_TRUE(Parse(Safetensors(two("[0,4]", "[4,8]"), 8)).ok());
  EXPECT_TRUE(Mentions(Refusal(Safetensors(two("[0,4]", "[3,7]"), 7)),
                       {"tensor \"b\"", "an overlap", "\"a\""}));
  EXPECT_TRUE(Mentions(Refusal(Safetensors(two("[0,4]", "[0,4]"), 4)), {"an overlap"}));
  EXPECT_TRUE(Mentions(Refusal(Safetensors(two("[0,4]", "[5,9]"), 9)), {"tensor \"b\"", "a hole"}));
  EXPECT_TRUE(Mentions(Refusal(Safetensors(two("[1,5]", "[5,9]"), 9)),
                       {"tensor \"a\"", "a hole", "the beginning"}));
}

TEST(TensorHeader, RefusesBadShapesAndDtypes) {
  const auto shaped = [](const char* dtype, const char* shape, const char* end) {
    return Safetensors(std::string(R"({"a":{"dtype":)") + dtype + R"(,"shape":)" + shape +
                           R"(,"data_offsets":[0,)" + end + "]}}",
                       16);
  };
  EXPECT_TRUE(Parse(shaped("\"F32\"", "[4]", "16")).ok());
  EXPECT_TRUE(Mentions(Refusal(shaped("\"F32\"", "[-4]", "16")), {"shape", "-4"}));
  EXPECT_TRUE(Mentions(Refusal(shaped("\"F32\"", "[4.0]", "16")), {"shape"}));
  EXPECT_TRUE(Mentions(Refusal(shaped("\"F32\"", "4", "16")), {"shape", "an array"}));
  EXPECT_TRUE(Mentions(Refusal(shaped("\"F32\"", "[5]", "16")), {"16 bytes", "20 bytes"}));
  EXPECT_TRUE(Mentions(Refusal(shaped("\"BF16\"", "[4]", "16")), {"16 bytes", "8 bytes"}));
  // 2^64 elements wrap to none, 2^62 of them to too few bytes.
  EXPECT_TRUE(Mentions(Refusal(shaped("\"F32\"", "[4294967296,4294967296]", "0")), {"overflows"}));
  EXPECT_TRUE(Mentions(Refusal(shaped("\"F32\"", "[4611686018427387904]", "0")), {"overflows"}));
  EXPECT_TRUE(Mentions(Refusal(shaped("\"F33\"", "[4]", "16")), {"dtype", "F33"}));
  EXPECT_TRUE(Mentions(Refusal(shaped("7", "[4]", "16")), {"dtype", "7"}));
  EXPECT_EQ(Refusal(shaped("\"F32\"", "[1,1,1,1,1,4]", "16")).code, ErrorCode::kUnsupported);
  // 4-bit elements: half a byte is no size.
  EXPECT_TRUE(Parse(shaped("\"F4\"", "[32]", "16")).ok());
  EXPECT_EQ(Refusal(shaped("\"F4\"", "[31]", "15")).code, ErrorCode::kCorrupt);
}

TEST(TensorHeader, WantsMetadataOfStrings) {
  EXPECT_FALSE(Parse(Safetensors(R"({"__metadata__":{"n":1}})", 0)).ok());
  EXPECT_FALSE(Parse(Safetensors(R"({"__metadata__":"x"})", 0)).ok());
}

}  // namespace
}  // namespace segue::model
