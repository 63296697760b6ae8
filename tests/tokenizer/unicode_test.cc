#include "model/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <string>

namespace segue::model {
namespace {

std::string Encode(char32_t code) {
  std::string text;
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | (code >> 12));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | (code >> 18));
    text += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
  }
  return text;
}

bool IsSurrogate(char32_t code) { return code >= 0xd800 && code <= 0xdfff; }

TEST(Utf8, DecodesEveryCharacter) {
  for (char32_t code = 0; code <= 0x10ffff; ++code) {
    if (IsSurrogate(code)) continue;
    const std::string text = Encode(code);
    ASSERT_TRUE(CheckUtf8(text).ok()) << static_cast<uint32_t>(code);
    const Utf8Char decoded = DecodeUtf8(text, 0);
    ASSERT_EQ(decoded.code, code);
    ASSERT_EQ(static_cast<size_t>(decoded.bytes), text.size());
  }
}

TEST(Utf8, NamesTheFirstBadByte) {
  // A lone continuation, a cut character, an overlong form, a surrogate, a code too large.
  for (const char* bad : {"\x80", "\xe4\xbd", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xff", "\xe0\x80\x80", "\xf5\x80\x80\x80"}) {
    const Status status = CheckUtf8("é: " + std::string(bad));
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().argument, "byte 4 of the text");
  }
}

// The counts and sums are those of the reference: the `tokenizers` library 0.23.3, asked about
// every character with the patterns \p{L}, \p{N} and \s.
TEST(CharClass, AgreesWithTheReferenceOnEveryCharacter) {
  int64_t counts[4] = {};
  int64_t sums[4] = {};
  for (char32_t code = 0; code <= 0x10ffff; ++code) {
    if (IsSurrogate(code)) continue;
    const auto index = static_cast<int>(ClassOf(code));
    ++counts[index];
    sums[index] += code;
  }
  EXPECT_EQ(counts[static_cast<int>(CharClass::kLetter)], 141028);
  EXPECT_EQ(counts[static_cast<int>(CharClass::kNumber)], 1911);
  EXPECT_EQ(counts[static_cast<int>(CharClass::kSpace)], 25);
  EXPECT_EQ(sums[static_cast<int>(CharClass::kLetter)], 15240929258);
  EXPECT_EQ(sums[static_cast<int>(CharClass::kNumber)], 110651895);
  EXPECT_EQ(sums[static_cast<int>(CharClass::kSpace)], 141586);
}

TEST(ComposeNfc, Composes) {
  EXPECT_EQ(ComposeNfc("plain").value(), "plain");
  EXPECT_EQ(ComposeNfc("e\u0301").value(), "é");
  EXPECT_EQ(ComposeNfc("\u212b").value(), "\u00c5");
  // Reordered by combining class before composition.
  EXPECT_EQ(ComposeNfc("a\u0301\u0323").value(), "\u1ea1\u0301");
  EXPECT_EQ(ComposeNfc("\u1100\u1161\u11a8").value(), "\uac01");
  // Composition exclusions stay apart.
  EXPECT_EQ(ComposeNfc("\u0958").value(), "\u0915\u093c");
  EXPECT_EQ(ComposeNfc(std::string("\0e\u0301", 4)).value(), std::string("\0é", 3));
}

// Where the reference's tables are older than utf8proc's, and where utf8proc errs.
TEST(ComposeNfc, DiffersAsTheReferenceDoes) {
  EXPECT_EQ(ComposeNfc("\uac00\u11a7").value(), "\uac00\u11a7");
  EXPECT_EQ(ComposeNfc("\U00011935\U00011930").value(), "\U00011935\U00011930");
  EXPECT_EQ(ComposeNfc("\U00011938").value(), "\U00011938");
  // U+0898 came after the reference's tables: a starter there, so no reordering around it.
  EXPECT_EQ(ComposeNfc("a\u0898\u0323").value(), "a\u0898\u0323");
  EXPECT_EQ(ComposeNfc("a\u0301\u0898\u0323").value(), "\u00e1\u0898\u0323");
}

}  // namespace
}  // namespace segue::model
