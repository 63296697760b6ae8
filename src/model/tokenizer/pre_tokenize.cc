#include "model/tokenizer/pre_tokenize.h"

#include <cstdint>

#include "model/tokenizer/unicode.h"

namespace segue::model {
namespace {

struct Char {
  char32_t code = 0;
  uint32_t offset = 0;
  CharClass char_class = CharClass::kOther;
};

// Finds, at one position after another, how many characters the pattern matches there. The
// alternatives are tried in the pattern's order, as a backtracking engine does.
class Splitter {
 public:
  explicit Splitter(const std::vector<Char>& chars) : chars_(chars) {}

  size_t MatchLength(size_t at) const {
    if (const size_t length = Contraction(at)) return length;
    if (const size_t length = Letters(at)) return length;
    if (Is(at, CharClass::kNumber)) return 1;
    if (const size_t length = Symbols(at)) return length;
    return Spaces(at);
  }

 private:
  bool Has(size_t at) const { return at < chars_.size(); }
  bool Is(size_t at, CharClass char_class) const {
    return Has(at) && chars_[at].char_class == char_class;
  }
  bool IsNewline(size_t at) const {
    return Has(at) && (chars_[at].code == '\r' || chars_[at].code == '\n');
  }
  // Without case, as the pattern's (?i:...) has it: U+017F, the long s, folds to s as well.
  char32_t Folded(size_t at) const {
    if (!Has(at)) return 0;
    const char32_t code = chars_[at].code;
    if (code >= 'A' && code <= 'Z') return code + ('a' - 'A');
    return code == 0x17f ? U's' : code;
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d)
  size_t Contraction(size_t at) const {
    if (chars_[at].code != '\'') return 0;
    const char32_t first = Folded(at + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    const char32_t second = Folded(at + 2);
    const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                     (first == 'l' && second == 'l');
    return two ? 3 : 0;
  }

  // [^\r\n\p{L}\p{N}]?\p{L}+
  size_t Letters(size_t at) const {
    const bool prefix =
        !IsNewline(at) && !Is(at, CharClass::kLetter) && !Is(at, CharClass::kNumber);
    size_t end = at + (prefix ? 1 : 0);
    if (!Is(end, CharClass::kLetter)) return 0;
    while (Is(end, CharClass::kLetter)) ++end;
    return end - at;
  }

  // " ?[^\s\p{L}\p{N}]+[\r\n]*"
  size_t Symbols(size_t at) const {
    size_t end = at + (chars_[at].code == ' ' ? 1 : 0);
    if (!Is(end, CharClass::kOther)) return 0;
    while (Is(end, CharClass::kOther)) ++end;
    while (IsNewline(end)) ++end;
    return end - at;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+
  size_t Spaces(size_t at) const {
    size_t end = at;
    size_t behind_newline = at;
    while (Is(end, CharClass::kSpace)) {
      ++end;
      if (IsNewline(end - 1)) behind_newline = end;
    }
    if (behind_newline > at) return behind_newline - at;
    // A run before a word leaves its last space to the word, unless that is all there is.
    if (Has(end) && end - at > 1) --end;
    return end - at;
  }

  const std::vector<Char>& chars_;
};

}  // namespace

std::vector<std::string_view> SplitWords(std::string_view text) {
  std::vector<Char> chars;
  chars.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Char next = DecodeUtf8(text, offset);
    chars.push_back({next.code, static_cast<uint32_t>(offset), ClassOf(next.code)});
    offset += next.bytes;
  }
  const Splitter splitter(chars);
  std::vector<std::string_view> words;
  for (size_t at = 0; at < chars.size();) {
    const size_t next = at + splitter.MatchLength(at);
    const size_t begin = chars[at].offset;
    const size_t end = next < chars.size() ? chars[next].offset : text.size();
    words.push_back(text.substr(begin, end - begin));
    at = next;
  }
  return words;
}

}  // namespace segue::model
