#include "attention/plan_check.h"

#include <cmath>
#include <limits>

namespace segue::attention {
namespace {

constexpr char kCreate[] = "check attention settings";
constexpr char kLengths[] = "set attention lengths";

std::string At(const char* name, size_t index) {
  return std::string(name) + " " + std::to_string(index);
}

std::string Rows(int64_t begin, int64_t count) {
  return std::to_string(count) + " rows from " + std::to_string(begin);
}

// Null when rows [begin, begin + count) lie in a tensor of `limit` rows.
bool Fits(int64_t begin, int64_t count, int64_t limit) {
  return count >= 0 && begin >= 0 && begin + count <= limit;
}

Error SegmentError(const PlanSettings& settings, size_t index, const SegmentRows& segment) {
  const size_t segments = static_cast<size_t>(settings.max_segments);
  const std::string where =
      At("sequence", index / segments) + ", " + At("segment", index % segments);
  if (segment.source < 0 || segment.source >= static_cast<int64_t>(settings.tensors.size())) {
    return Invalid(kLengths, where, "tensor set " + std::to_string(segment.source),
                   "one of " + std::to_string(settings.tensors.size()));
  }
  const TensorRows& tensor = settings.tensors[segment.source];
  const bool query = !Fits(segment.q_begin, segment.q_rows, tensor.q_rows);
  const int64_t limit = query ? tensor.q_rows : tensor.kv_rows;
  return Invalid(
      kLengths, where + (query ? ", query rows" : ", key/value rows"),
      query ? Rows(segment.q_begin, segment.q_rows) : Rows(segment.kv_begin, segment.kv_rows),
      "rows inside the " + std::to_string(limit) + " of tensor set " +
          std::to_string(segment.source));
}

bool SegmentFits(const PlanSettings& settings, const SegmentRows& segment) {
  if (segment.q_rows == 0 && segment.kv_rows == 0) return true;
  if (segment.source < 0 || segment.source >= static_cast<int64_t>(settings.tensors.size())) {
    return false;
  }
  const TensorRows& tensor = settings.tensors[segment.source];
  return Fits(segment.q_begin, segment.q_rows, tensor.q_rows) &&
         Fits(segment.kv_begin, segment.kv_rows, tensor.kv_rows);
}

}  // namespace

Error Invalid(const char* operation, std::string argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = operation,
          .argument = std::move(argument),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

const char* ElementTypeName(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kBFloat16:
      return "bfloat16";
    case ElementType::kFloat16:
      return "float16";
  }
  return "?";
}

int64_t ElementBytes(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

Status CheckOptions(const char* operation, const Options& options) {
  if (options.q_heads <= 0) {
    return Invalid(operation, "q_heads", std::to_string(options.q_heads), "at least 1");
  }
  if (options.kv_heads <= 0 || options.q_heads % options.kv_heads != 0) {
    return Invalid(operation, "kv_heads", std::to_string(options.kv_heads),
                   "a divisor of " + std::to_string(options.q_heads) + " query heads");
  }
  if (options.head_dim <= 0) {
    return Invalid(operation, "head_dim", std::to_string(options.head_dim), "at least 1");
  }
  if (!std::isfinite(options.softmax_scale)) {
    return Invalid(operation, "softmax_scale", std::to_string(options.softmax_scale),
                   "a finite number");
  }
  return {};
}

Status CheckSettings(const PlanSettings& settings) {
  SEGUE_RETURN_IF_ERROR(CheckOptions(kCreate, settings.options));
  const auto at_least = [](const char* name, int64_t value, int64_t low) -> Status {
    if (value >= low) return {};
    return Invalid(kCreate, name, std::to_string(value), "at least " + std::to_string(low));
  };
  SEGUE_RETURN_IF_ERROR(at_least("max_sequences", settings.max_sequences, 1));
  SEGUE_RETURN_IF_ERROR(at_least("max_segments", settings.max_segments, 1));
  SEGUE_RETURN_IF_ERROR(at_least("max_query_rows", settings.max_query_rows, 0));
  SEGUE_RETURN_IF_ERROR(at_least("threads", settings.threads, 0));
  int64_t rows = settings.max_query_rows;
  for (size_t i = 0; i < settings.tensors.size(); ++i) {
    const TensorRows& tensor = settings.tensors[i];
    if (tensor.q_rows < 0 || tensor.kv_rows < 0) {
      return Invalid(kCreate, At("tensor set", i),
                     std::to_string(tensor.q_rows) + " query and " +
                         std::to_string(tensor.kv_rows) + " key/value rows",
                     "0 or more");
    }
    if (settings.max_query_rows == 0) rows += tensor.q_rows;
  }
  if (rows > std::numeric_limits<int32_t>::max()) {
    return Invalid(kCreate, "max_query_rows", std::to_string(rows), "at most 2^31 - 1");
  }
  if (settings.gpu && settings.place != Place::kCuda) {
    return Invalid(kCreate, "gpu", "a GPU for a plan on the CPU", "none");
  }
  if (settings.gpu &&
      (settings.gpu->compute_capability <= 0 || settings.gpu->multiprocessors <= 0)) {
    return Invalid(kCreate, "gpu",
                   "compute capability " + std::to_string(settings.gpu->compute_capability) + ", " +
                       std::to_string(settings.gpu->multiprocessors) + " multiprocessors",
                   "positive numbers");
  }
  return {};
}

Status CheckLengths(const PlanSettings& settings, Span<const SegmentRows> rows) {
  const size_t segments = static_cast<size_t>(settings.max_segments);
  if (rows.size() % segments != 0) {
    return Invalid(kLengths, "rows", std::to_string(rows.size()) + " segments",
                   "a multiple of max_segments, " + std::to_string(segments));
  }
  if (rows.size() / segments > static_cast<size_t>(settings.max_sequences)) {
    return Invalid(kLengths, "rows", std::to_string(rows.size() / segments) + " sequences",
                   "at most max_sequences, " + std::to_string(settings.max_sequences));
  }
  // Key rows may lie in segments that each begin at a multiple of 8: 2^30 leaves room for that.
  constexpr int64_t kMaxRows = int64_t{1} << 30;
  int64_t total = 0;
  for (size_t first = 0; first < rows.size(); first += segments) {
    int64_t queries = 0;
    int64_t keys = 0;
    for (size_t i = first; i < first + segments; ++i) {
      if (!SegmentFits(settings, rows[i])) return SegmentError(settings, i, rows[i]);
      queries += rows[i].q_rows;
      keys += (int64_t{rows[i].kv_rows} + 7) / 8 * 8;
    }
    if (queries > kMaxRows || keys > kMaxRows) {
      return Invalid(kLengths, At("sequence", first / segments),
                     std::to_string(queries > kMaxRows ? queries : keys) + " rows", "at most 2^30");
    }
    total += queries;
  }
  if (total > settings.max_query_rows) {
    return Invalid(kLengths, "rows", std::to_string(total) + " query rows",
                   "at most max_query_rows, " + std::to_string(settings.max_query_rows));
  }
  return {};
}

}  // namespace segue::attention
