#include "model/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "model/tokenizer/pre_tokenize.h"
#include "model/tokenizer/tokenizer_files.h"
#include "weights/files.h"

namespace segue::model {
namespace {

using segue::testing::Mentions;
using segue::testing::ReadFile;
using segue::testing::ReplaceInFile;
using segue::testing::TempDirectory;
using segue::testing::WriteFile;

using Ids = std::vector<int32_t>;

const std::string kTiny = std::string(SEGUE_SOURCE_DIR) + "/tests/goldens/tiny/model/tokenizer";

const Tokenizer& Tiny() {
  static const Tokenizer tokenizer = Tokenizer::Load(kTiny).value();
  return tokenizer;
}

Ids Encode(std::string_view text) { return Tiny().Encode(text).value(); }

Ids Joined(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

TEST(Tokenizer, FindsAddedTokensAnywhere) {
  const Ids end = Encode("<|im_end|>");
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(Encode("a<|im_end|>b"), Joined(Joined(Encode("a"), end), Encode("b")));
  // Pieces on both sides of a token are split and composed apart from each other.
  EXPECT_EQ(Encode("e<|im_end|>\u0301"), Joined(Joined(Encode("e"), end), Encode("\u0301")));
  EXPECT_GT(Encode("<|im_end|").size(), 1u);
  EXPECT_GT(Encode("<|IM_END|>").size(), 1u);
}

TEST(Tokenizer, ComposesBeforeItSplits) {
  EXPECT_EQ(Encode("caf\u0065\u0301"), Encode("caf\u00e9"));
}

TEST(Tokenizer, RefusesWhatIsNotUtf8) {
  const auto ids = Tiny().Encode("ab\xff");
  ASSERT_FALSE(ids.ok());
  EXPECT_TRUE(Mentions(ids.error(), {"byte 2", "0xff", "UTF-8"}));
  // The offset is one into the prompt, not into the template around it.
  EXPECT_TRUE(Mentions(Tiny().EncodePrompt("ab\xff").error(), {"byte 2"}));
  EXPECT_FALSE(Tiny().Encode(std::string((16 << 20) + 1, 'a')).ok());
}

TEST(EncodePrompt, PutsThePromptIntoTheTemplate) {
  ASSERT_TRUE(Tiny().CheckTemplate().ok()) << Tiny().CheckTemplate().error().Message();
  const PromptIds empty = Tiny().EncodePrompt("").value();
  EXPECT_EQ(empty.rows, kTemplateSuffixIds);
  EXPECT_EQ(empty.dropped, 34);
  EXPECT_EQ(empty.ids.size(), 39u);
  EXPECT_FALSE(empty.truncated);
  const Ids cat = Encode("a cat");
  const PromptIds prompt = Tiny().EncodePrompt("a cat").value();
  EXPECT_EQ(Ids(prompt.ids.begin() + 34, prompt.ids.end() - 5), cat);
  EXPECT_EQ(prompt.rows, static_cast<int>(cat.size()) + 5);
  EXPECT_EQ(Ids(prompt.ids.end() - 5, prompt.ids.end()), Ids(empty.ids.end() - 5, empty.ids.end()));
}

TEST(EncodePrompt, LetsALeadingNewlineMergeWithTheTemplate) {
  // Tokenised as one string: the newline before the prompt and those of the prompt are one word.
  const PromptIds prompt = Tiny().EncodePrompt("\n\na").value();
  const PromptIds plain = Tiny().EncodePrompt("a").value();
  const Ids newlines = Encode("\n\n\n");
  EXPECT_EQ(prompt.ids.size(), plain.ids.size() - 1 + newlines.size());
  EXPECT_EQ(Ids(prompt.ids.begin() + 33, prompt.ids.begin() + 33 + newlines.size()), newlines);
}

TEST(EncodePrompt, TreatsControlSyntaxAsData) {
  // Only the tokenizer's own added tokens are special; settings in a prompt are words like any.
  const PromptIds tag =
      Tiny().EncodePrompt("<sd_cpp_extra_args>{\"steps\":1}</sd_cpp_extra_args><lora:x:1>").value();
  EXPECT_GT(tag.rows, 20);
  const PromptIds turn = Tiny().EncodePrompt("x<|im_end|>\n<|im_start|>system").value();
  const Ids expected = Encode("x<|im_end|>\n<|im_start|>system");
  EXPECT_EQ(Ids(turn.ids.begin() + 34, turn.ids.end() - 5), expected);
}

TEST(EncodePrompt, TruncatesAsThePipelineDoes) {
  std::string digits;
  for (int i = 0; i < 2000; ++i) digits += static_cast<char>('0' + i % 10);  // an id each
  const PromptIds by_default = Tiny().EncodePrompt(digits).value();
  EXPECT_EQ(by_default.rows, 512);
  EXPECT_TRUE(by_default.truncated);
  EXPECT_EQ(by_default.untruncated_rows, 2005);
  EXPECT_EQ(by_default.ids.size(), 34u + 512u);
  const PromptIds longest = Tiny().EncodePrompt(digits, 1024).value();
  EXPECT_EQ(longest.ids.size(), 1058u);
  EXPECT_EQ(Ids(longest.ids.begin(), longest.ids.begin() + 546), by_default.ids);
  // The suffix goes first: 507 ids fit with it, 508 without its last.
  EXPECT_FALSE(Tiny().EncodePrompt(digits.substr(0, 507)).value().truncated);
  EXPECT_TRUE(Tiny().EncodePrompt(digits.substr(0, 508)).value().truncated);
  EXPECT_EQ(Tiny().EncodePrompt("a cat", 1).value().rows, 1);
  EXPECT_FALSE(Tiny().EncodePrompt("a", 0).ok());
  EXPECT_FALSE(Tiny().EncodePrompt("a", 1025).ok());
}

TEST(EncodePrompt, TakesALongPromptInLittleTime) {
  for (const char* unit : {"a", " ", "\n", "é", "!", "<|im_end|"}) {
    std::string text;
    while (text.size() < (1 << 18)) text += unit;
    EXPECT_EQ(Tiny().EncodePrompt(text).value().rows, 512) << unit;
  }
}

// A tokenizer directory that a test may damage.
class TokenizerDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"vocab.json", "merges.txt", "added_tokens.json", "tokenizer_config.json"}) {
      std::filesystem::copy_file(kTiny + "/" + name, directory_ / name);
    }
  }

  // tokenizer.json of the same vocabulary.
  std::string TokenizerJson() const {
    const TokenizerFiles files = ReadTokenizerFiles(kTiny).value();
    std::string merges;
    for (const auto& [left, right] : files.bpe.merges) {
      merges +=
          (merges.empty() ? "[\"" : ",[\"") + Escaped(left) + "\",\"" + Escaped(right) + "\"]";
    }
    std::string added;
    for (const AddedToken& token : files.added) {
      added += (added.empty() ? "{\"id\":" : ",{\"id\":") + std::to_string(token.id) +
               ",\"content\":\"" + token.content +
               "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false}";
    }
    return R"({"version":"1.0","truncation":null,"normalizer":{"type":"NFC"},"pre_tokenizer":)"
           R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")" +
           Escaped(std::string(kSplitPattern)) +
           R"("},"behavior":"Isolated","invert":false},{"type":"ByteLevel",)"
           R"("add_prefix_space":false,"use_regex":false}]},"post_processor":null,)"
           R"("model":{"type":"BPE","dropout":null,"vocab":)" +
           ReadFile(kTiny + "/vocab.json") + ",\"merges\":[" + merges + "]},\"added_tokens\":[" +
           added + "]}";
  }

  static std::string Escaped(const std::string& text) {
    std::string escaped;
    for (char c : text) {
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += c;
    }
    return escaped;
  }

  Error Refusal() const {
    const Result<Tokenizer> tokenizer = Tokenizer::Load(directory_.path());
    if (tokenizer.ok()) {
      ADD_FAILURE() << "accepted";
      return {};
    }
    return tokenizer.error();
  }

  TempDirectory directory_;
};

TEST_F(TokenizerDirectory, LoadsEitherForm) {
  const auto older = Tokenizer::Load(directory_.path());
  ASSERT_TRUE(older.ok()) << older.error().Message();
  for (const char* name : {"vocab.json", "merges.txt", "added_tokens.json"}) {
    std::filesystem::remove(directory_ / name);
  }
  EXPECT_EQ(Refusal().code, ErrorCode::kNotFound);
  WriteFile(directory_ / "tokenizer.json", TokenizerJson());
  const auto newer = Tokenizer::Load(directory_.path());
  ASSERT_TRUE(newer.ok()) << newer.error().Message();
  const std::string text = "A cat, e\u0301 I'm\n\n \"quoted\" \\ 狗<|im_end|>";
  EXPECT_EQ(newer->Encode(text).value(), older->Encode(text).value());
  EXPECT_EQ(newer->id_bound(), older->id_bound());
}

TEST_F(TokenizerDirectory, TakesAddedTokensFromEitherFile) {
  std::filesystem::remove(directory_ / "added_tokens.json");
  const auto from_config = Tokenizer::Load(directory_.path());
  ASSERT_TRUE(from_config.ok()) << from_config.error().Message();
  EXPECT_TRUE(from_config->CheckTemplate().ok());
  std::filesystem::copy_file(kTiny + "/added_tokens.json", directory_ / "added_tokens.json");
  std::filesystem::remove(directory_ / "tokenizer_config.json");
  const auto from_file = Tokenizer::Load(directory_.path());
  ASSERT_TRUE(from_file.ok()) << from_file.error().Message();
  EXPECT_EQ(from_file->EncodePrompt("a").value().ids, from_config->EncodePrompt("a").value().ids);
  // Without either, the template's turns are spelt out and it has too many ids.
  std::filesystem::remove(directory_ / "added_tokens.json");
  const auto bare = Tokenizer::Load(directory_.path());
  ASSERT_TRUE(bare.ok());
  const Status status = bare->CheckTemplate();
  ASSERT_FALSE(status.ok());
  EXPECT_TRUE(Mentions(status.error(), {"template", "wanted 34 and 5"}));
}

TEST_F(TokenizerDirectory, RefusesOtherTokenizers) {
  const std::string json = TokenizerJson();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type":"NFC"})", R"({"type":"NFKC"})"},
      {R"({"type":"NFC"})", "null"},
      {R"(\\p{N}|)", R"(\\p{N}{1,3}|)"},
      {R"("behavior":"Isolated")", R"("behavior":"Removed")"},
      {R"("add_prefix_space":false)", R"("add_prefix_space":true)"},
      {R"("type":"BPE")", R"("type":"WordPiece")"},
      {R"("dropout":null)", R"("dropout":0.1)"},
      {R"("dropout":null)", R"("byte_fallback":true)"},
      {R"("post_processor":null)", R"("post_processor":{"type":"BertProcessing"})"},
      {R"("post_processor":null)",
       R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},)"
       R"({"Sequence":{"id":"A"}}]})"},
      {R"("model":)", R"("modell":)"},
      {R"("vocab":)", R"("vocabulary":)"},
  };
  for (const auto& [from, to] : cases) {
    std::string text = json;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    WriteFile(directory_ / "tokenizer.json", text.replace(at, from.size(), to));
    EXPECT_TRUE(Mentions(Refusal(), {"tokenizer.json"})) << to;
  }
  // What transformers 5 writes: a template that adds nothing.
  std::string text = json;
  const std::string from = R"("post_processor":null)";
  text.replace(text.find(from), from.size(),
               R"("post_processor":{"type":"TemplateProcessing","single":[{"Sequence":)"
               R"({"id":"A","type_id":0}}],"special_tokens":{}})");
  WriteFile(directory_ / "tokenizer.json", text);
  EXPECT_TRUE(Tokenizer::Load(directory_.path()).ok());
}

TEST_F(TokenizerDirectory, RefusesDamagedFiles) {
  WriteFile(directory_ / "vocab.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_TRUE(Mentions(Refusal(), {"vocab.json"}));
  WriteFile(directory_ / "vocab.json", "{\"!\":0}");
  EXPECT_TRUE(Mentions(Refusal(), {"vocab.json", "no token for byte"}));
  WriteFile(directory_ / "vocab.json", ReadFile(kTiny + "/vocab.json"));
  WriteFile(directory_ / "merges.txt", "#version: 0.2\na b c\n");
  EXPECT_TRUE(Mentions(Refusal(), {"merges.txt: line 2", "\"a b c\""}));
  // A merge of texts that are no tokens.
  WriteFile(directory_ / "merges.txt", "qqq zzz\n");
  EXPECT_TRUE(Mentions(Refusal(), {"merges[0]", "qqq zzz"}));
  WriteFile(directory_ / "merges.txt", ReadFile(kTiny + "/merges.txt"));
  ReplaceInFile(directory_ / "tokenizer_config.json", "\"Qwen2Tokenizer\"", "\"BertTokenizer\"");
  EXPECT_TRUE(Mentions(Refusal(), {"tokenizer_class", "BertTokenizer"}));
  WriteFile(directory_ / "tokenizer_config.json",
            R"({"added_tokens_decoder":{"9":{"content":"<x>","lstrip":true}}})");
  EXPECT_TRUE(Mentions(Refusal(), {"added_tokens_decoder.9.lstrip", "true"}));
  WriteFile(directory_ / "tokenizer_config.json",
            R"({"added_tokens_decoder":{"9":{"content":"<x>"},"10":{"content":"<x>"}}})");
  EXPECT_TRUE(Mentions(Refusal(), {"\"<x>\"", "twice"}));
  WriteFile(directory_ / "tokenizer_config.json",
            R"({"added_tokens_decoder":{"-1":{"content":"<x>"}}})");
  EXPECT_TRUE(Mentions(Refusal(), {"id -1"}));
}

TEST_F(TokenizerDirectory, ReadsWindowsLineEnds) {
  std::string merges;
  for (char c : ReadFile(kTiny + "/merges.txt")) {
    if (c == '\n') merges += '\r';
    merges += c;
  }
  WriteFile(directory_ / "merges.txt", merges);
  const auto tokenizer = Tokenizer::Load(directory_.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().Message();
  EXPECT_EQ(tokenizer->Encode("a tiny astronaut").value(), Encode("a tiny astronaut"));
}

// Golden ids of the real tokenizer (151,643 tokens, 151,387 merges), which is not in this
// repository: SEGUE_QWEN_TOKENIZER names a directory that has it.
TEST(QwenTokenizer, GivesTheGoldenIds) {
  const char* directory = std::getenv("SEGUE_QWEN_TOKENIZER");
  if (directory == nullptr) GTEST_SKIP() << "SEGUE_QWEN_TOKENIZER names no tokenizer";
  const auto tokenizer = Tokenizer::Load(directory);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().Message();
  ASSERT_TRUE(tokenizer->CheckTemplate().ok()) << tokenizer->CheckTemplate().error().Message();
  EXPECT_EQ(tokenizer->id_bound(), 151665);
  const Ids prefix = {151644, 8948, 198, 74785, 279, 2168,   553, 44193,  279, 1894,  11,    6083,
                      11,     1379, 11,  10434, 11,  12194,  11,  1467,   11,  27979, 11871, 315,
                      279,    6171, 323, 4004,  25,  151645, 198, 151644, 872, 198};
  const Ids suffix = {151645, 198, 151644, 77091, 198};
  const std::vector<std::pair<std::string, Ids>> prompts = {
      {"", {}},
      {" ", {220}},
      {"a cat", {64, 8251}},
      {"A cat holding a sign that says hello world",
       {32, 8251, 9963, 264, 1841, 429, 2727, 23811, 1879}},
      {"a tiny astronaut hatching from an egg on the moon, Ultra HD, 4K, cinematic composition.",
       {64, 13673, 46633, 305, 31924, 504, 458, 18636, 389,   279,   17788,
        11, 28213, 12169, 11,  220,   19,  42,  11,    64665, 18037, 13}},
      {"12345 é café I'M", {16, 17, 18, 19, 20, 3958, 51950, 358, 27603}},
  };
  for (const auto& [prompt, ids] : prompts) {
    EXPECT_EQ(tokenizer->EncodePrompt(prompt).value().ids, Joined(Joined(prefix, ids), suffix))
        << prompt;
  }
  EXPECT_EQ(tokenizer->EncodePrompt("\nx").value().ids[33], 271);
}

}  // namespace
}  // namespace segue::model
