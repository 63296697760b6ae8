#include "cli/attention_lengths.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cli/console.h"
#include "cli/parse.h"

namespace segue::cli {
namespace {

constexpr char kForm[] = "rows of segments like 64+4096,14+4096 or, query:key, 64:0+4096";
constexpr int kMaxRows = std::numeric_limits<int>::max();

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) return parts;
    begin = end + 1;
  }
}

struct Counts {
  int q = 0;
  int kv = 0;
};

Result<Counts> ParseSegment(const std::string& option, const std::string& text) {
  const std::vector<std::string> parts = Split(text, ':');
  std::vector<int> values;
  for (const std::string& part : parts) {
    const Result<int> value = ParseInt(option, part, 0, kMaxRows);
    if (!value.ok() || parts.size() > 2) return Usage(option, "'" + text + "'", kForm);
    values.push_back(*value);
  }
  return Counts{.q = values.front(), .kv = values.back()};
}

}  // namespace

Result<AttentionLengths> ParseLengths(const std::string& option, const std::string& text) {
  std::vector<std::vector<Counts>> sequences;
  AttentionLengths lengths;
  for (const std::string& sequence : Split(text, ',')) {
    std::vector<Counts>& segments = sequences.emplace_back();
    for (const std::string& segment : Split(sequence, '+')) {
      SEGUE_ASSIGN_OR_RETURN(const Counts counts, ParseSegment(option, segment));
      segments.push_back(counts);
    }
    lengths.segments = std::max(lengths.segments, static_cast<int32_t>(segments.size()));
  }
  lengths.sequences = static_cast<int32_t>(sequences.size());
  lengths.tensors.resize(static_cast<size_t>(lengths.segments));
  lengths.rows.resize(sequences.size() * static_cast<size_t>(lengths.segments));
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (size_t s = 0; s < sequences[i].size(); ++s) {
      const Counts& counts = sequences[i][s];
      attention::TensorRows& tensor = lengths.tensors[s];
      if (counts.q > kMaxRows - tensor.q_rows || counts.kv > kMaxRows - tensor.kv_rows) {
        return Usage(option, "more than 2^31 - 1 rows in the segments at one place", "fewer rows");
      }
      lengths.rows[i * static_cast<size_t>(lengths.segments) + s] = {
          .source = static_cast<int32_t>(s),
          .q_begin = tensor.q_rows,
          .q_rows = counts.q,
          .kv_begin = tensor.kv_rows,
          .kv_rows = counts.kv};
      tensor.q_rows += counts.q;
      tensor.kv_rows += counts.kv;
    }
  }
  return lengths;
}

Result<attention::Gpu> ParseGpu(const std::string& option, const std::string& text) {
  constexpr char kWanted[] = "compute capability and multiprocessors like 9.0:132";
  const std::vector<std::string> parts = Split(text, ':');
  const std::vector<std::string> digits = Split(parts.front(), '.');
  if (parts.size() != 2 || digits.size() != 2) return Usage(option, "'" + text + "'", kWanted);
  const Result<int> major = ParseInt(option, digits[0], 1, 99);
  const Result<int> minor = ParseInt(option, digits[1], 0, 9);
  const Result<int> multiprocessors = ParseInt(option, parts[1], 1, 4096);
  if (!major.ok() || !minor.ok() || !multiprocessors.ok()) {
    return Usage(option, "'" + text + "'", kWanted);
  }
  return attention::Gpu{.compute_capability = 10 * *major + *minor,
                        .multiprocessors = *multiprocessors};
}

}  // namespace segue::cli
