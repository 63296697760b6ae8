// The Unicode facts the tokenizer rests on: UTF-8, three character classes, composition (NFC).
//
// The reference (the `tokenizers` library that transformers calls) carries its own tables: classes
// of Unicode 16, composition of Unicode 9. Ours come from utf8proc (Unicode 15) with the
// differences written down here, so that ids agree on every string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "segue/status.h"

namespace segue::model {

// One character of valid UTF-8.
struct Utf8Char {
  char32_t code = 0;
  int bytes = 0;  // 1..4
};

// The character at `offset`. Preconditions: the text is valid UTF-8, a character begins there.
Utf8Char DecodeUtf8(std::string_view text, size_t offset);

// Error (kInvalidArgument) with the offset of the first byte that is not UTF-8.
Status CheckUtf8(std::string_view text);

enum class CharClass : uint8_t { kLetter, kNumber, kSpace, kOther };

// \p{L}, \p{N} and \s of the splitting pattern; \s is the property White_Space.
CharClass ClassOf(char32_t code);

// Normalization form C, as the reference computes it. Precondition: valid UTF-8.
Result<std::string> ComposeNfc(std::string_view text);

}  // namespace segue::model
