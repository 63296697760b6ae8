#include "bench/attention_case.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace segue::bench {
namespace {

constexpr int64_t kMaxRows = 1 << 20;

Error ValueError(const Case& one, const std::string& key, const std::string& got,
                 const std::string& wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = "read benchmark suite",
          .argument = "case " + one.name + ": " + key,
          .got = got,
          .wanted = wanted};
}

Result<int32_t> Bounded(const Case& one, const std::string& key, int64_t least, int64_t most) {
  SEGUE_ASSIGN_OR_RETURN(const int64_t value, one.Integer(key));
  if (value >= least && value <= most) return static_cast<int32_t>(value);
  return ValueError(one, key, std::to_string(value),
                    std::to_string(least) + " to " + std::to_string(most));
}

Result<int32_t> BoundedOr(const Case& one, const std::string& key, int32_t fallback, int64_t most) {
  if (one.Text(key, "").empty()) return fallback;
  return Bounded(one, key, 0, most);
}

// One entry of `lengths`: 512 or 63x256.
bool ParseEntry(std::string_view entry, std::vector<int32_t>* lengths) {
  int64_t count = 1;
  const size_t times = entry.find('x');
  const auto read = [](std::string_view text, int64_t* value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() && end == text.data() + text.size() && *value > 0 &&
           *value <= kMaxRows;
  };
  if (times != std::string_view::npos) {
    if (!read(entry.substr(0, times), &count)) return false;
    entry.remove_prefix(times + 1);
  }
  int64_t length = 0;
  if (!read(entry, &length) || count > 2048) return false;
  lengths->insert(lengths->end(), static_cast<size_t>(count), static_cast<int32_t>(length));
  return true;
}

Result<std::vector<int32_t>> ReadLengths(const Case& one) {
  std::vector<int32_t> lengths;
  const std::string text = one.Text("lengths", "");
  if (text.empty()) {
    SEGUE_ASSIGN_OR_RETURN(const int32_t count, Bounded(one, "count", 1, 2048));
    SEGUE_ASSIGN_OR_RETURN(const int64_t base, Bounded(one, "base", 1, kMaxRows));
    SEGUE_ASSIGN_OR_RETURN(const int64_t step, Bounded(one, "step", 0, kMaxRows));
    SEGUE_ASSIGN_OR_RETURN(const int64_t modulus, Bounded(one, "modulus", 1, kMaxRows));
    for (int64_t i = 0; i < count; ++i) {
      lengths.push_back(static_cast<int32_t>(base + step * i % modulus));
    }
    return lengths;
  }
  std::string_view left = text;
  while (true) {
    const size_t comma = left.find(',');
    if (!ParseEntry(left.substr(0, comma), &lengths)) {
      return ValueError(one, "lengths", std::string(left.substr(0, comma)),
                        "rows, or times x rows");
    }
    if (comma == std::string_view::npos) return lengths;
    left.remove_prefix(comma + 1);
  }
}

Status ReadJoint(const Case& one, AttentionCase* result) {
  SEGUE_ASSIGN_OR_RETURN(const int32_t text, Bounded(one, "text", 1, kMaxRows));
  SEGUE_ASSIGN_OR_RETURN(const int32_t image, Bounded(one, "image", 1, kMaxRows));
  SEGUE_ASSIGN_OR_RETURN(const int32_t slot, BoundedOr(one, "slot", text, kMaxRows));
  if (slot < text) {
    return ValueError(one, "slot", std::to_string(slot), "at least " + std::to_string(text));
  }
  result->tensor_rows = {slot, image};
  result->segments = 2;
  result->rows = {{0, 0, text, 0, text}, {1, 0, image, 0, image}};
  return {};
}

// Sequences one after the other in one tensor, and behind them rows that see no key.
void PlaceRows(const std::vector<int32_t>& lengths, AttentionCase* result) {
  int32_t begin = 0;
  result->segments = 1;
  for (const int32_t length : lengths) {
    result->rows.push_back({0, begin, length, begin, length});
    begin += length;
  }
  if (result->tail > 0) result->rows.push_back({0, begin, result->tail, 0, 0});
  result->tensor_rows = {begin + result->tail};
}

std::vector<int32_t> LengthsOf(const AttentionCase& one) {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < one.sequences(); ++i) {
    if (one.KeyRows(i) > 0) lengths.push_back(static_cast<int32_t>(one.QueryRows(i)));
  }
  return lengths;
}

AttentionCase Replaced(const AttentionCase& original, const std::vector<int32_t>& lengths) {
  AttentionCase result = original;
  result.rows.clear();
  PlaceRows(lengths, &result);
  return result;
}

}  // namespace

int64_t AttentionCase::QueryRows(int32_t sequence) const {
  int64_t sum = 0;
  for (int32_t s = 0; s < segments; ++s) sum += rows[sequence * segments + s].q_rows;
  return sum;
}

int64_t AttentionCase::KeyRows(int32_t sequence) const {
  int64_t sum = 0;
  for (int32_t s = 0; s < segments; ++s) sum += rows[sequence * segments + s].kv_rows;
  return sum;
}

int64_t AttentionCase::TotalQueryRows() const {
  int64_t sum = 0;
  for (int32_t i = 0; i < sequences(); ++i) sum += QueryRows(i);
  return sum;
}

double AttentionCase::Operations() const {
  double pairs = 0;
  for (int32_t i = 0; i < sequences(); ++i) {
    const auto q = static_cast<double>(QueryRows(i));
    const auto kv = static_cast<double>(KeyRows(i));
    // Queries and keys are equally many where there are keys: row i of n sees i + 1 of them.
    pairs += causal && kv > 0 ? q * (q + 1) / 2 : q * kv;
  }
  return 4.0 * head_dim * heads * pairs;
}

Result<AttentionCase> ReadAttentionCase(const Case& one) {
  AttentionCase result;
  SEGUE_ASSIGN_OR_RETURN(result.heads, Bounded(one, "heads", 1, 1024));
  SEGUE_ASSIGN_OR_RETURN(result.kv_heads, BoundedOr(one, "kv_heads", result.heads, 1024));
  SEGUE_ASSIGN_OR_RETURN(result.head_dim, BoundedOr(one, "head_dim", 128, 256));
  SEGUE_ASSIGN_OR_RETURN(const int32_t causal, BoundedOr(one, "causal", 0, 1));
  SEGUE_ASSIGN_OR_RETURN(result.tail, BoundedOr(one, "tail", 0, kMaxRows));
  result.causal = causal == 1;
  if (result.kv_heads == 0 || result.heads % result.kv_heads != 0) {
    return ValueError(one, "kv_heads", std::to_string(result.kv_heads),
                      "a divisor of " + std::to_string(result.heads));
  }
  if (!one.Text("text", "").empty()) {
    SEGUE_RETURN_IF_ERROR(ReadJoint(one, &result));
    return result;
  }
  SEGUE_ASSIGN_OR_RETURN(const std::vector<int32_t> lengths, ReadLengths(one));
  PlaceRows(lengths, &result);
  return result;
}

AttentionCase Reversed(const AttentionCase& original) {
  std::vector<int32_t> lengths = LengthsOf(original);
  std::reverse(lengths.begin(), lengths.end());
  return Replaced(original, lengths);
}

AttentionCase Concatenated(const AttentionCase& original) {
  return Replaced(original, LengthsOf(original));
}

}  // namespace segue::bench
