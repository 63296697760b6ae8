#include "model/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>

#include "segue/utf8.h"

namespace segue::model {
namespace {

struct CodeRange {
  char32_t first;
  char32_t last;
};

template <size_t N>
bool InRanges(const CodeRange (&ranges)[N], char32_t code) {
  const auto after =
      std::upper_bound(std::begin(ranges), std::end(ranges), code,
                       [](char32_t value, const CodeRange& range) { return value < range.first; });
  return after != std::begin(ranges) && code <= std::prev(after)->last;
}

// Letters and numbers that Unicode 15.1 and 16 added.
constexpr CodeRange kNewLetters[] = {
    {0x1c89, 0x1c8a},   {0xa7cb, 0xa7cd},   {0xa7da, 0xa7dc},   {0x105c0, 0x105f3},
    {0x10d4a, 0x10d65}, {0x10d6f, 0x10d85}, {0x10ec2, 0x10ec4}, {0x11380, 0x11389},
    {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5}, {0x113b7, 0x113b7},
    {0x113d1, 0x113d1}, {0x113d3, 0x113d3}, {0x11bc0, 0x11be0}, {0x13460, 0x143fa},
    {0x16100, 0x1611d}, {0x16d40, 0x16d6c}, {0x18cff, 0x18cff}, {0x1e5d0, 0x1e5ed},
    {0x1e5f0, 0x1e5f0}, {0x2ebf0, 0x2ee5d}};
constexpr CodeRange kNewNumbers[] = {{0x10d40, 0x10d49}, {0x116d0, 0x116e3}, {0x11bf0, 0x11bf9},
                                     {0x16130, 0x16139}, {0x16d70, 0x16d79}, {0x1ccf0, 0x1ccf9},
                                     {0x1e5f1, 0x1e5fa}};

// Characters that the reference's composition tables know as plain starters: combining marks and
// the one composite (U+11938) that Unicode 10 to 15 added. And U+11A7, which no Hangul syllable
// takes but utf8proc 2.8 swallows.
constexpr CodeRange kBarriers[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x11a7, 0x11a7},
    {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
    {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47},
    {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97},
    {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
    {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}};

bool IsSpace(char32_t code) {
  return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

// Appends the composition of a piece without barriers.
Status ComposePiece(std::string_view piece, std::string* out) {
  if (piece.empty()) return {};
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(piece.data()),
                   static_cast<utf8proc_ssize_t>(piece.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (bytes < 0) {
    return Error{bytes == UTF8PROC_ERROR_NOMEM ? ErrorCode::kOutOfMemory : ErrorCode::kInternal,
                 "compose text", "NFC", utf8proc_errmsg(bytes), ""};
  }
  out->append(reinterpret_cast<const char*>(composed), static_cast<size_t>(bytes));
  std::free(composed);
  return {};
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const int bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t code = lead & (0x7fu >> bytes);
  for (int i = 1; i < bytes; ++i) code = (code << 6) | (byte(i) & 0x3fu);
  return {code, bytes};
}

Status CheckUtf8(std::string_view text) {
  const std::optional<size_t> offset = FindInvalidUtf8(text);
  if (!offset) return {};
  constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(text[*offset]);
  return Error{ErrorCode::kInvalidArgument, "encode text",
               "byte " + std::to_string(*offset) + " of the text",
               std::string("0x") + kHex[byte >> 4] + kHex[byte & 15], "valid UTF-8"};
}

CharClass ClassOf(char32_t code) {
  if (IsSpace(code)) return CharClass::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    default:
      break;
  }
  if (InRanges(kNewLetters, code)) return CharClass::kLetter;
  if (InRanges(kNewNumbers, code)) return CharClass::kNumber;
  return CharClass::kOther;
}

Result<std::string> ComposeNfc(std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return std::string(text);
  std::string composed;
  composed.reserve(text.size());
  // A barrier is a starter that takes part in no composition, so the pieces between barriers
  // compose independently.
  size_t begin = 0;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Char next = DecodeUtf8(text, offset);
    if (InRanges(kBarriers, next.code)) {
      SEGUE_RETURN_IF_ERROR(ComposePiece(text.substr(begin, offset - begin), &composed));
      composed.append(text.substr(offset, next.bytes));
      begin = offset + next.bytes;
    }
    offset += next.bytes;
  }
  SEGUE_RETURN_IF_ERROR(ComposePiece(text.substr(begin), &composed));
  return composed;
}

}  // namespace segue::model
