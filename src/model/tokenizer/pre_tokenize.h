// Qwen2's splitting of a text into words, written out over character classes.
#pragma once

#include <string_view>
#include <vector>

namespace segue::model {

// The regular expression a tokenizer.json must carry for SplitWords to stand for it.
inline constexpr std::string_view kSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

// The matches of kSplitPattern, in order; they cover the text. Precondition: valid UTF-8.
std::vector<std::string_view> SplitWords(std::string_view text);

}  // namespace segue::model
