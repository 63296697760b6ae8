#include "model/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace segue::model {
namespace {

// Ids 0..255 are the bytes; merges follow.
BpeFiles Files(const std::vector<std::pair<std::string, std::string>>& merges) {
  BpeFiles files;
  for (int byte = 0; byte < 256; ++byte) {
    files.vocabulary.emplace_back(ByteToken(static_cast<uint8_t>(byte)), byte);
  }
  for (const auto& [left, right] : merges) {
    files.vocabulary.emplace_back(left + right, static_cast<int64_t>(files.vocabulary.size()));
  }
  files.merges = merges;
  return files;
}

std::vector<int32_t> Encode(const Bpe& bpe, std::string_view word) {
  std::vector<int32_t> ids;
  bpe.EncodeWord(word, &ids);
  return ids;
}

TEST(ByteToken, IsGpt2sAlphabet) {
  EXPECT_EQ(ByteToken('!'), "!");
  EXPECT_EQ(ByteToken(' '), "\u0120");
  EXPECT_EQ(ByteToken('\n'), "\u010a");
  EXPECT_EQ(ByteToken(0), "\u0100");
  EXPECT_EQ(ByteToken(0x7f), "\u0121");
  EXPECT_EQ(ByteToken(0xad), "\u0143");
  EXPECT_EQ(ByteToken(0xa1), "\u00a1");
  EXPECT_EQ(ByteToken(0xff), "\u00ff");
}

TEST(Bpe, MergesByRankThenFromTheLeft) {
  const auto bpe = Bpe::Build(Files({{"b", "c"}, {"a", "b"}, {"a", "a"}, {"aa", "bc"}}), "v");
  ASSERT_TRUE(bpe.ok()) << bpe.error().Message();
  EXPECT_EQ(Encode(*bpe, ""), std::vector<int32_t>{});
  EXPECT_EQ(Encode(*bpe, "x"), std::vector<int32_t>{'x'});
  // "bc" outranks "ab".
  EXPECT_EQ(Encode(*bpe, "abc"), (std::vector<int32_t>{'a', 256}));
  EXPECT_EQ(Encode(*bpe, "aaa"), (std::vector<int32_t>{258, 'a'}));
  EXPECT_EQ(Encode(*bpe, "aabc"), std::vector<int32_t>{259});
  EXPECT_EQ(Encode(*bpe, "\xff"), std::vector<int32_t>{0xff});
}

TEST(Bpe, TakesALongWordInLittleTime) {
  // Every round of a quadratic algorithm would scan a quarter of a megabyte.
  const auto bpe = Bpe::Build(Files({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}), "v");
  ASSERT_TRUE(bpe.ok());
  const auto start = std::chrono::steady_clock::now();
  const auto ids = Encode(*bpe, std::string(1 << 18, 'a'));
  EXPECT_EQ(ids, std::vector<int32_t>(1 << 15, 258));
  // Loose, for sanitizers and a busy machine; it takes well under a second.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Bpe, RefusesBadFiles) {
  const auto refused = [](const BpeFiles& files) { return !Bpe::Build(files, "v").ok(); };
  BpeFiles files = Files({{"a", "b"}});
  EXPECT_FALSE(refused(files));
  files.vocabulary[7].second = 8;  // an id twice
  EXPECT_TRUE(refused(files));
  files.vocabulary[7].second = -1;
  EXPECT_TRUE(refused(files));
  files.vocabulary[7].second = int64_t{1} << 40;
  EXPECT_TRUE(refused(files));
  files.vocabulary.erase(files.vocabulary.begin() + 7);  // a byte without a token
  EXPECT_TRUE(refused(files));
  BpeFiles merges = Files({{"a", "b"}});
  merges.merges.push_back({"a", "b"});
  EXPECT_TRUE(refused(merges));
  merges.merges.back() = {"b", "a"};  // no token "ba"
  EXPECT_TRUE(refused(merges));
  merges.merges.back() = {"", "ab"};
  EXPECT_TRUE(refused(merges));
}

}  // namespace
}  // namespace segue::model
