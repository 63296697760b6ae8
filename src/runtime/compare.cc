#include "segue/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "model/weights/tensor_file.h"
#include "segue/image.h"

namespace segue {
namespace {

constexpr char kOperation[] = "compare";
constexpr uint8_t kPngSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

// Sums over the elements of a pair, in their order.
class Accumulator {
 public:
  void Add(double a, double b) {
    const int64_t index = count_++;
    if (a == b || (std::isnan(a) && std::isnan(b))) {
      if (std::isfinite(b)) AddReference(b);
      return;
    }
    ++different_;
    if (!first_.has_value()) first_ = index;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      ++non_finite_;
      return;
    }
    AddReference(b);
    const double difference = std::fabs(a - b);
    max_abs_ = std::max(max_abs_, difference);
    square_sum_ += difference * difference;
  }

  void Store(std::optional<double> peak, TensorDifference* out) const {
    out->elements = count_;
    out->different = different_;
    out->first_difference = first_;
    out->non_finite_differences = non_finite_;
    out->max_abs = max_abs_;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (square_sum_ > 0) {
      out->relative_l2 =
          reference_sum_ > 0 ? std::sqrt(square_sum_) / std::sqrt(reference_sum_) : kInfinity;
    }
    const double top = peak.value_or(max_reference_);
    const double mean = square_sum_ / static_cast<double>(std::max<int64_t>(count_, 1));
    out->psnr = mean > 0 ? 10 * std::log10(top * top / mean) : kInfinity;
  }

 private:
  void AddReference(double b) {
    reference_sum_ += b * b;
    max_reference_ = std::max(max_reference_, std::fabs(b));
  }

  int64_t count_ = 0;
  int64_t different_ = 0;
  int64_t non_finite_ = 0;
  std::optional<int64_t> first_;
  double max_abs_ = 0;
  double square_sum_ = 0;
  double reference_sum_ = 0;
  double max_reference_ = 0;
};

template <typename T>
T Load(const WeightView& view, int64_t index) {
  T value;
  // Offsets in a file need not be aligned to the element.
  std::memcpy(&value, static_cast<const uint8_t*>(view.data) + index * int64_t{sizeof(T)},
              sizeof(T));
  return value;
}

double Element(const WeightView& view, int64_t index) {
  switch (view.dtype) {
    case DType::kF32:
      return Load<float>(view, index);
    case DType::kF16:
      return F16ToFloat(Load<uint16_t>(view, index));
    case DType::kBF16:
      return BF16ToFloat(Load<uint16_t>(view, index));
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(view, index));
    case DType::kI32:
      return Load<int32_t>(view, index);
    case DType::kU8:
      return Load<uint8_t>(view, index);
  }
  return 0;
}

std::vector<int64_t> Extents(const Shape& shape) {
  std::vector<int64_t> extents;
  extents.reserve(Shape::kMaxRank);
  for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis]);
  return extents;
}

Error UnknownDtype(const model::TensorFile& file, const model::TensorEntry& entry) {
  return {.code = ErrorCode::kUnsupported,
          .operation = kOperation,
          .argument = file.path() + ": tensor '" + entry.name + "'",
          .got = entry.dtype_name,
          .wanted = "F32, F16, BF16, I64, I32 or U8"};
}

Result<TensorDifference> CompareTensor(const model::TensorFile& a, const model::TensorEntry& entry,
                                       const model::TensorFile& b) {
  TensorDifference difference{
      .name = entry.name, .dtype_a = entry.dtype_name, .shape_a = Extents(entry.shape)};
  const model::TensorEntry* other = b.Find(entry.name);
  if (other == nullptr) return difference;
  difference.dtype_b = other->dtype_name;
  difference.shape_b = Extents(other->shape);
  if (!difference.comparable()) return difference;
  if (!entry.dtype.has_value()) return UnknownDtype(a, entry);
  if (!other->dtype.has_value()) return UnknownDtype(b, *other);
  const WeightView view_a = a.View(entry);
  const WeightView view_b = b.View(*other);
  Accumulator sums;
  const int64_t count = entry.shape.NumElements();
  for (int64_t i = 0; i < count; ++i) sums.Add(Element(view_a, i), Element(view_b, i));
  sums.Store(std::nullopt, &difference);
  return difference;
}

Result<CompareReport> CompareTensorFiles(const std::string& path_a, const std::string& path_b) {
  SEGUE_ASSIGN_OR_RETURN(const auto a, model::TensorFile::Open(path_a));
  SEGUE_ASSIGN_OR_RETURN(const auto b, model::TensorFile::Open(path_b));
  CompareReport report{.kind = FileKind::kTensors};
  for (const model::TensorEntry& entry : a->entries()) {
    SEGUE_ASSIGN_OR_RETURN(TensorDifference difference, CompareTensor(*a, entry, *b));
    report.tensors.push_back(std::move(difference));
  }
  for (const model::TensorEntry& entry : b->entries()) {
    if (a->Find(entry.name) != nullptr) continue;
    report.tensors.push_back(
        {.name = entry.name, .dtype_b = entry.dtype_name, .shape_b = Extents(entry.shape)});
  }
  return report;
}

double ShareWithinLevel(const Image& a, const Image& b) {
  size_t within = 0;
  for (size_t i = 0; i < a.rgb.size(); i += 3) {
    bool near = true;
    for (size_t c = 0; c < 3; ++c) near &= std::abs(int{a.rgb[i + c]} - int{b.rgb[i + c]}) <= 1;
    within += near ? 1 : 0;
  }
  return static_cast<double>(within) / (static_cast<double>(a.rgb.size()) / 3);
}

CompareReport ComparePictures(const Image& a, const Image& b) {
  TensorDifference difference{.name = "pixels",
                              .dtype_a = "U8",
                              .dtype_b = "U8",
                              .shape_a = {a.height, a.width, 3},
                              .shape_b = {b.height, b.width, 3}};
  if (difference.comparable()) {
    Accumulator sums;
    for (size_t i = 0; i < a.rgb.size(); ++i) sums.Add(a.rgb[i], b.rgb[i]);
    sums.Store(255, &difference);
    difference.within_level = ShareWithinLevel(a, b);
  }
  return {.kind = FileKind::kPicture, .tensors = {difference}};
}

// Whether a file begins as a PNG file does; a file that cannot be read is left to its reader.
bool LooksLikePng(const std::string& path) {
  char head[sizeof(kPngSignature)] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(head, sizeof(head));
  return file.gcount() == sizeof(head) && std::memcmp(head, kPngSignature, sizeof(head)) == 0;
}

Result<Image> ReadPicture(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)),
                                   std::istreambuf_iterator<char>());
  Result<DecodedPng> decoded = DecodePng(bytes);
  if (!decoded.ok()) {
    Error error = std::move(decoded).error();
    error.argument = error.argument.empty() ? path : path + ": " + error.argument;
    return error;
  }
  return std::move(decoded->image);
}

}  // namespace

Result<CompareReport> CompareFiles(const std::string& path_a, const std::string& path_b) {
  const bool picture_a = LooksLikePng(path_a);
  const bool picture_b = LooksLikePng(path_b);
  if (!picture_a && !picture_b) return CompareTensorFiles(path_a, path_b);
  if (picture_a && picture_b) {
    SEGUE_ASSIGN_OR_RETURN(const Image a, ReadPicture(path_a));
    SEGUE_ASSIGN_OR_RETURN(const Image b, ReadPicture(path_b));
    return ComparePictures(a, b);
  }
  // A missing or unsound file explains itself better than a difference in kind.
  SEGUE_RETURN_IF_ERROR(model::TensorFile::Open(picture_a ? path_b : path_a));
  return Error{.code = ErrorCode::kInvalidArgument,
               .operation = kOperation,
               .argument = path_a + " and " + path_b,
               .got = "a PNG file and a safetensors file",
               .wanted = "two files of one kind"};
}

bool IsWithin(const TensorDifference& difference, const CompareLimits& limits) {
  if (!difference.comparable() || difference.non_finite_differences > 0) return false;
  const bool unlimited = !limits.max_abs.has_value() && !limits.relative_l2.has_value() &&
                         !limits.within_level.has_value();
  if (unlimited) return difference.different == 0;
  if (limits.max_abs.has_value() && difference.max_abs > *limits.max_abs) return false;
  if (limits.relative_l2.has_value() && difference.relative_l2 > *limits.relative_l2) return false;
  return !limits.within_level.has_value() ||
         difference.within_level.value_or(0) >= *limits.within_level;
}

}  // namespace segue
