// UTF-8 well-formedness, checked wherever text enters: prompts, PNG text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace segue {

// Byte offset of the first byte that is not part of a well-formed UTF-8 sequence (Unicode 15,
// table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF); absent: all is well.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

}  // namespace segue
