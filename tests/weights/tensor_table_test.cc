// A component's files: shards, their index, and everything that can be wrong between them.
#include "model/weights/tensor_table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "weights/files.h"

namespace segue::model {
namespace {

using segue::testing::Mentions;
using segue::testing::ReplaceInFile;
using segue::testing::Safetensors;
using segue::testing::TempDirectory;
using segue::testing::WriteFile;

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kFirst[] = "model-00001-of-00003.safetensors";
constexpr char kSecond[] = "model-00002-of-00003.safetensors";
constexpr char kThird[] = "model-00003-of-00003.safetensors";

// Three shards: tensors a and b, c, d; F32 [2, 3] each.
class ShardedTable : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteShard(kFirst, {"a", "b"});
    WriteShard(kSecond, {"c"});
    WriteShard(kThird, {"d"});
    WriteFile(directory_ / kIndex,
              R"({"metadata":{"total_size":96},"weight_map":{)"
              R"("a":"model-00001-of-00003.safetensors","b":"model-00001-of-00003.safetensors",)"
              R"("c":"model-00002-of-00003.safetensors","d":"model-00003-of-00003.safetensors"}})");
  }

  void WriteShard(const std::string& name, const std::vector<std::string>& tensors) {
    const std::vector<float> values = {1, 2, 3, 4, 5, 6};
    std::vector<NamedTensor> named;
    for (const std::string& tensor : tensors) {
      named.push_back({tensor, {values.data(), DType::kF32, {2, 3}}});
    }
    ASSERT_TRUE(WriteTensorFile(directory_ / name, named).ok());
  }

  Result<TensorTable> Open() const { return TensorTable::Open(directory_.path(), "model", "part"); }

  Error Refusal() const {
    const Result<TensorTable> table = Open();
    if (table.ok()) {
      ADD_FAILURE() << "accepted";
      return {};
    }
    return table.error();
  }

  TempDirectory directory_;
};

TEST_F(ShardedTable, FindsEveryTensor) {
  const auto table = Open();
  ASSERT_TRUE(table.ok()) << table.error().Message();
  EXPECT_EQ(table->items().size(), 4u);
  EXPECT_EQ(table->files().size(), 3u);
  EXPECT_EQ(table->total_parameters(), 24);
  EXPECT_EQ(table->total_bytes(), 96);
  const auto view = table->Get("c", {2, 3});
  ASSERT_TRUE(view.ok()) << view.error().Message();
  EXPECT_EQ(ReadFloat32(*view).value()[5], 6);
  EXPECT_TRUE(table->GetOptional("a", {2, 3})->present());
  EXPECT_FALSE(table->GetOptional("z", {2, 3})->present());
}

TEST_F(ShardedTable, SaysWhatItGotAndWanted) {
  const auto table = Open();
  ASSERT_TRUE(table.ok());
  const Error absent = table->Get("z", {7}).error();
  EXPECT_EQ(absent.code, ErrorCode::kNotFound);
  EXPECT_TRUE(Mentions(absent, {"part", "\"z\"", "3 files", "[7]"}));
  const Error shape = table->Get("a", {3, 2}).error();
  EXPECT_EQ(shape.code, ErrorCode::kCorrupt);
  EXPECT_TRUE(Mentions(shape, {kFirst, "\"a\"", "[2, 3]", "[3, 2]"}));
  EXPECT_FALSE(table->GetOptional("a", {6}).ok());
}

TEST_F(ShardedTable, NamesAllMissingShards) {
  std::filesystem::remove(directory_ / kFirst);
  std::filesystem::rename(directory_ / kThird, directory_ / "renamed.safetensors");
  const Error error = Refusal();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_TRUE(Mentions(error, {"1 of 3 shards", kFirst, kThird}));
}

TEST_F(ShardedTable, RefusesShardsTheIndexDoesNotName) {
  WriteShard("model-00004-of-00004.safetensors", {"e"});
  EXPECT_TRUE(Mentions(Refusal(), {"does not name", "model-00004-of-00004.safetensors"}));
  std::filesystem::remove(directory_ / "model-00004-of-00004.safetensors");
  // Another variant of the weights beside them is no shard.
  WriteShard("model.fp16-00001-of-00001.safetensors", {"e"});
  EXPECT_TRUE(Open().ok());
  WriteShard("model.safetensors", {"e"});
  EXPECT_TRUE(Mentions(Refusal(), {"does not name", "model.safetensors"}));
}

TEST_F(ShardedTable, RefusesATensorMissingInAPresentShard) {
  WriteShard(kFirst, {"a"});
  EXPECT_TRUE(Mentions(Refusal(), {kFirst, "no tensors b"}));
}

TEST_F(ShardedTable, RefusesAStaleIndex) {
  WriteShard(kSecond, {"c", "e"});
  EXPECT_TRUE(Mentions(Refusal(), {kSecond, "does not place there: e"}));
  WriteShard(kSecond, {"c", "a"});
  EXPECT_TRUE(Mentions(Refusal(), {kSecond, "does not place there: a"}));
}

TEST_F(ShardedTable, RefusesAnIndexThatLeadsOutside) {
  const std::string plain = "\"model-00003-of-00003.safetensors\"";
  std::string before = plain;
  for (const char* place : {"\"../model-00003-of-00003.safetensors\"", "\"/etc/model.safetensors\"",
                            "\"sub/model.safetensors\"", "\"..\\\\x.safetensors\"", "\"..\"",
                            "\"\"", "\"x\\u0000.safetensors\"", "7", "null"}) {
    ReplaceInFile(directory_ / kIndex, before, place);
    const Error error = Refusal();
    EXPECT_EQ(error.code, ErrorCode::kCorrupt);
    EXPECT_TRUE(Mentions(error, {kIndex, "\"d\""}));
    before = place;
  }
  ReplaceInFile(directory_ / kIndex, before, "\"model-00003-of-00003.bin\"");
  EXPECT_TRUE(Mentions(Refusal(), {"format is not supported, convert it"}));
}

TEST_F(ShardedTable, FollowsSymbolicLinks) {
  // As download caches lay checkpoints out: names link to blobs elsewhere.
  std::filesystem::create_directory(directory_ / "blobs");
  std::filesystem::rename(directory_ / kSecond, directory_ / "blobs/0123");
  std::filesystem::create_symlink("blobs/0123", directory_ / kSecond);
  EXPECT_TRUE(Open().ok());
  std::filesystem::remove(directory_ / "blobs/0123");
  EXPECT_TRUE(Mentions(Refusal(), {"2 of 3 shards", kSecond}));
}

TEST_F(ShardedTable, RefusesABadIndex) {
  for (const char* text : {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                           R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})",
                           "version https://git-lfs.github.com/spec/v1"}) {
    WriteFile(directory_ / kIndex, text);
    const Error error = Refusal();
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << text;
    EXPECT_TRUE(Mentions(error, {kIndex}));
  }
}

TEST_F(ShardedTable, WantsTheIndexOfShards) {
  std::filesystem::remove(directory_ / kIndex);
  EXPECT_TRUE(Mentions(Refusal(), {"without their index", kIndex}));
}

TEST(TensorTable, OpensOneFile) {
  const TempDirectory directory;
  const float value = 2;
  ASSERT_TRUE(
      WriteTensorFile(directory / "model.safetensors", {{"x", {&value, DType::kF32, {1}}}}).ok());
  const auto table = TensorTable::Open(directory.path(), "model", "part");
  ASSERT_TRUE(table.ok()) << table.error().Message();
  EXPECT_TRUE(table->Get("x", {1}).ok());
}

TEST(TensorTable, SaysWhyThereAreNoWeights) {
  const TempDirectory directory;
  const auto refusal = [&] { return TensorTable::Open(directory.path(), "model", "part").error(); };
  EXPECT_TRUE(Mentions(refusal(), {"no weights", "model.safetensors"}));
  WriteFile(directory / "model.fp16.safetensors", "");
  EXPECT_TRUE(Mentions(refusal(), {"model.fp16.safetensors", "wanted model.safetensors"}));
  WriteFile(directory / "pytorch_model-00001-of-00001.bin", "PK");
  WriteFile(directory / "pytorch_model.bin.index.json", "{}");
  const Error pickles = refusal();
  EXPECT_EQ(pickles.code, ErrorCode::kUnsupported);
  EXPECT_TRUE(Mentions(pickles, {"only PyTorch files (pytorch_model-00001-of-00001.bin)",
                                 "the format is not supported, convert it"}));
  EXPECT_EQ(TensorTable::Open(directory / "absent", "model", "part").error().code,
            ErrorCode::kNotFound);
}

TEST(TensorTable, RefusesQuantisedWeightsByName) {
  const TempDirectory directory;
  WriteFile(directory / "model.safetensors",
            Safetensors(R"({"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},)"
                        R"("w_scale":{"dtype":"BF16","shape":[],"data_offsets":[4,6]},)"
                        R"("i":{"dtype":"I32","shape":[1],"data_offsets":[6,10]}})",
                        10));
  const auto table = TensorTable::Open(directory.path(), "model", "part");
  ASSERT_TRUE(table.ok()) << table.error().Message();
  const Error error = table->Get("w", {4}).error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_TRUE(Mentions(error, {"\"w\"", "F8_E4M3", "F32, F16 or BF16"}));
  EXPECT_TRUE(Mentions(table->Get("i", {1}).error(), {"I32"}));
}

TEST(TensorTable, RefusesDataThatAreNotAligned) {
  const TempDirectory directory;
  std::string header = R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  header.append(8 - header.size() % 8, ' ');
  WriteFile(directory / "model.safetensors", Safetensors(header, 5));
  const auto table = TensorTable::Open(directory.path(), "model", "part");
  ASSERT_TRUE(table.ok()) << table.error().Message();
  const auto view = table->Get("w", {1});
  ASSERT_FALSE(view.ok());
  EXPECT_TRUE(Mentions(view.error(), {"\"w\"", "aligned for F32"}));
}

TEST(WeightReader, ReportsEverythingAtOnce) {
  const TempDirectory directory;
  const float values[4] = {1, 2, 3, 4};
  ASSERT_TRUE(
      WriteTensorFile(directory / "model.safetensors", {{"x", {values, DType::kF32, {4}}},
                                                        {"y", {values, DType::kF32, {2, 2}}},
                                                        {"unused", {values, DType::kF32, {1}}}})
          .ok());
  const auto table = TensorTable::Open(directory.path(), "model", "part");
  ASSERT_TRUE(table.ok());
  WeightReader reader(*table);
  EXPECT_TRUE(reader.Take("x", {4}).present());
  EXPECT_FALSE(reader.TakeOptional("bias", {4}).present());
  EXPECT_TRUE(reader.Finish().ok());
  EXPECT_FALSE(reader.Take("y", {4}).present());
  EXPECT_FALSE(reader.Take("z", {4}).present());
  EXPECT_FALSE(reader.TakeOptional("x", {5}).present());
  ASSERT_FALSE(reader.Finish().ok());
  EXPECT_TRUE(Mentions(reader.Finish().error(), {"\"y\"", "2 other tensors", "\"z\"", "\"x\""}));
  EXPECT_EQ(reader.Unused(), std::vector<std::string>{"unused"});
}

}  // namespace
}  // namespace segue::model
