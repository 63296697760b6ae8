#include "cli/parse.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "cli/console.h"

namespace segue::cli {
namespace {

constexpr int64_t kSideMultiple = 16;
constexpr char kSizeForm[] = "WIDTHxHEIGHT in pixels, for example 512x512";

// The number `text` spells, if it is one and nothing else.
template <typename T>
std::optional<T> Parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string Quoted(const std::string& text) { return text.empty() ? "''" : text; }

// One side of a size: digits, perhaps after a minus sign, saturated where they pass 64 bits.
std::optional<int64_t> ParseSide(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  const std::optional<int64_t> value = Parse<int64_t>(text);
  if (value.has_value()) return value;
  return text.starts_with('-') ? std::numeric_limits<int64_t>::min()
                               : std::numeric_limits<int64_t>::max();
}

// The multiples of 16 nearest to a side: one, or two when it lies halfway.
std::vector<int64_t> NearestSides(int64_t side) {
  if (side <= kSideMultiple) return {kSideMultiple};
  const int64_t below = side / kSideMultiple * kSideMultiple;
  const int64_t excess = side - below;
  if (excess * 2 < kSideMultiple) return {below};
  if (excess * 2 > kSideMultiple) return {below + kSideMultiple};
  return {below, below + kSideMultiple};
}

std::string NearestSizes(int64_t width, int64_t height) {
  std::string text;
  for (const int64_t w : NearestSides(width)) {
    for (const int64_t h : NearestSides(height)) {
      if (!text.empty()) text += " or ";
      text += std::to_string(w) + "x" + std::to_string(h);
    }
  }
  return text;
}

}  // namespace

Result<int> ParseInt(const std::string& option, const std::string& text, int low, int high) {
  const std::optional<int> value = Parse<int>(text);
  if (!value.has_value() || *value < low || *value > high) {
    return Usage(option, Quoted(text), Format("a whole number from %d to %d", low, high));
  }
  return *value;
}

Result<uint64_t> ParseUint64(const std::string& option, const std::string& text) {
  const std::optional<uint64_t> value = Parse<uint64_t>(text);
  if (!value.has_value()) {
    return Usage(option, Quoted(text), "a whole number from 0 to 18446744073709551615");
  }
  return *value;
}

Result<double> ParseDouble(const std::string& option, const std::string& text) {
  const std::optional<double> value = Parse<double>(text);
  if (!value.has_value() || !std::isfinite(*value)) {
    return Usage(option, Quoted(text), "a finite decimal number");
  }
  return *value;
}

Result<PictureSize> ParseSize(const std::string& option, const std::string& text) {
  const size_t cross = text.find('x');
  if (cross == std::string::npos) {
    const size_t capital = text.find('X');
    if (capital == std::string::npos) return Usage(option, Quoted(text), kSizeForm);
    std::string lower = text;
    lower[capital] = 'x';
    const bool valid = ParseSize(option, lower).ok();
    return Usage(option, text, valid ? "a lower-case x: " + lower : kSizeForm);
  }
  const std::optional<int64_t> width = ParseSide(std::string_view(text).substr(0, cross));
  const std::optional<int64_t> height = ParseSide(std::string_view(text).substr(cross + 1));
  if (!width.has_value() || !height.has_value()) return Usage(option, Quoted(text), kSizeForm);
  constexpr int64_t kMax = std::numeric_limits<int>::max() / kSideMultiple * kSideMultiple;
  if (*width > kMax || *height > kMax) {
    return Usage(option, text, Format("sides of at most %d", static_cast<int>(kMax)));
  }
  if (*width < 1 || *height < 1 || *width % kSideMultiple != 0 || *height % kSideMultiple != 0) {
    return Usage(option, text,
                 "sides that are positive multiples of 16, the nearest being " +
                     NearestSizes(*width, *height));
  }
  return PictureSize{.width = static_cast<int>(*width), .height = static_cast<int>(*height)};
}

}  // namespace segue::cli
