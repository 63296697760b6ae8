#include "model/tokenizer/pre_tokenize.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace segue::model {
namespace {

using Words = std::vector<std::string>;

Words Split(std::string_view text) {
  Words words;
  for (std::string_view word : SplitWords(text)) words.emplace_back(word);
  return words;
}

TEST(SplitWords, FollowsThePattern) {
  EXPECT_EQ(Split(""), Words{});
  EXPECT_EQ(Split("a cat"), (Words{"a", " cat"}));
  EXPECT_EQ(Split("12345"), (Words{"1", "2", "3", "4", "5"}));
  EXPECT_EQ(Split("I'm we'LL don't 'ſ 'x"),
            (Words{"I", "'m", " we", "'LL", " don", "'t", " '", "ſ", " '", "x"}));
  EXPECT_EQ(Split("'s'sa"), (Words{"'s", "'s", "a"}));
  // A symbol before letters goes with them, whichever it is; a newline does not.
  EXPECT_EQ(Split("(word\tword\nword"), (Words{"(word", "\tword", "\n", "word"}));
  EXPECT_EQ(Split("!!! ...\r\n\r\nx"), (Words{"!!!", " ...\r\n\r\n", "x"}));
  EXPECT_EQ(Split("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(Split("a   "), (Words{"a", "   "}));
  EXPECT_EQ(Split("a \n \n b"), (Words{"a", " \n \n", " b"}));
  EXPECT_EQ(Split("  1"), (Words{" ", " ", "1"}));
  EXPECT_EQ(Split(" \u3000x"), (Words{" ", "\u3000x"}));
  EXPECT_EQ(Split("狗½x"), (Words{"狗", "½", "x"}));
}

}  // namespace
}  // namespace segue::model
