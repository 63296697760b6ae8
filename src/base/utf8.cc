#include "segue/utf8.h"

#include <cstdint>

namespace segue {
namespace {

// What may follow a leading byte: its number of continuation bytes, and the range of the first of
// them, which is where overlong forms (E0, F0), surrogates (ED) and values past U+10FFFF (F4) show.
struct Lead {
  int continuations = -1;  // -1: no leading byte
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead ClassifyLead(uint8_t byte) {
  if (byte < 0x80) return {.continuations = 0};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {.continuations = 1};
  if (byte == 0xE0) return {.continuations = 2, .low = 0xA0};
  if (byte == 0xED) return {.continuations = 2, .high = 0x9F};
  if (byte < 0xF0) return {.continuations = 2};
  if (byte == 0xF0) return {.continuations = 3, .low = 0x90};
  if (byte < 0xF4) return {.continuations = 3};
  if (byte == 0xF4) return {.continuations = 3, .high = 0x8F};
  return {};
}

}  // namespace

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const Lead lead = ClassifyLead(static_cast<uint8_t>(text[i]));
    if (lead.continuations < 0) return i;
    const auto count = static_cast<size_t>(lead.continuations);
    if (text.size() - i <= count) return i;
    for (size_t k = 1; k <= count; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      const uint8_t low = k == 1 ? lead.low : 0x80;
      const uint8_t high = k == 1 ? lead.high : 0xBF;
      if (byte < low || byte > high) return i;
    }
    i += count + 1;
  }
  return std::nullopt;
}

}  // namespace segue
