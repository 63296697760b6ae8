#include "segue/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace segue {
namespace {

TEST(Utf8, AcceptsWellFormedText) {
  for (const char* text :
       {"", "plain", "caf\u00e9", "\u4e2d\u6587", "\U0001F600", "\u05e9\u05dc"}) {
    EXPECT_FALSE(FindInvalidUtf8(text).has_value()) << text;
  }
  EXPECT_FALSE(FindInvalidUtf8(std::string_view("a\0b", 3)).has_value());
  // The first and last scalar of every length, and the neighbours of the surrogates.
  EXPECT_FALSE(FindInvalidUtf8("\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf").has_value());
  EXPECT_FALSE(FindInvalidUtf8("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf").has_value());
  EXPECT_FALSE(FindInvalidUtf8("\xed\x9f\xbf\xee\x80\x80").has_value());
}

TEST(Utf8, NamesTheFirstBadByte) {
  const struct {
    std::string text;
    size_t offset;
  } cases[] = {
      {"ab\x80", 2},            // a continuation byte alone
      {"\xc0\xaf", 0},          // overlong '/'
      {"\xc1\xbf", 0},          // overlong
      {"x\xe0\x9f\xbf", 1},     // overlong, three bytes
      {"\xf0\x8f\xbf\xbf", 0},  // overlong, four bytes
      {"\xed\xa0\x80", 0},      // the first surrogate
      {"\xf4\x90\x80\x80", 0},  // U+110000
      {"\xf5\x80\x80\x80", 0},  // past every scalar
      {"ok \xff\xfe", 3},       // a UTF-16 byte order mark
      {"\u4e2d\xe4\xb8", 3},    // cut in the middle
      {"\xc3(", 0},             // a continuation byte missing
      {"\xf0\x9f\x98(", 0},     // the last one missing
  };
  for (const auto& c : cases) {
    const auto offset = FindInvalidUtf8(c.text);
    ASSERT_TRUE(offset.has_value()) << testing::PrintToString(c.text);
    EXPECT_EQ(*offset, c.offset) << testing::PrintToString(c.text);
  }
}

}  // namespace
}  // namespace segue
