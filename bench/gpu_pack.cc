#include "bench/gpu_pack.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "bench/attention_case.h"
#include "bench/gpu.h"
#include "bench/gpu_measure.h"
#include "kernels/copy.h"
#include "kernels/pack.h"

namespace segue::bench {
namespace {

constexpr int64_t kElement = 2;  // bytes of a bfloat16
constexpr int64_t kRotatingBytes = int64_t{300} << 20;
constexpr double kGiga = 1e9;

// A case of two segments. Errors: its values.
Result<AttentionCase> ReadJointCase(const Case& one) {
  SEGUE_ASSIGN_OR_RETURN(AttentionCase shape, ReadAttentionCase(one));
  if (shape.segments != 2) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .operation = "read benchmark suite",
                 .argument = "case " + one.name,
                 .got = "no text",
                 .wanted = "text=<rows> and image=<rows>"};
  }
  return shape;
}

// The rows of `tensors` tensors, [text, width] and [image, width] on one side, packed on the other.
class Rows {
 public:
  // Errors: memory.
  static Result<Rows> Create(const AttentionCase& shape, int32_t tensors, const GpuStream& stream);

  // Both have `rotation` sets.
  GpuContender Pack();
  GpuContender Scatter();
  // From one buffer to another of as many bytes as either moves.
  GpuContender Copy();

  // Whether packed rows of set 0 are the padded ones, byte by byte.
  Result<bool> Agree() const;
  // Fills what the next call is to write.
  Status ClearPadded() const;

  int64_t Bytes() const { return tensors_ * (text_ + image_) * width_ * kElement; }

 private:
  struct Set {
    GpuBuffer text;    // [text, tensors x width]
    GpuBuffer image;   // [image, tensors x width]
    GpuBuffer packed;  // [tensors, text + image, width]
    GpuBuffer from;    // for the copy
    GpuBuffer to;
  };

  kernels::PackParams Params(const Set& set) const;

  int64_t tensors_ = 0;
  int64_t text_ = 0;
  int64_t image_ = 0;
  int64_t width_ = 0;
  GpuBuffer index_;
  std::vector<Set> sets_;
};

Result<Rows> Rows::Create(const AttentionCase& shape, int32_t tensors, const GpuStream& stream) {
  Rows rows;
  rows.tensors_ = tensors;
  rows.text_ = shape.rows[0].q_rows;
  rows.image_ = shape.rows.back().q_rows;
  rows.width_ = int64_t{shape.heads} * shape.head_dim;
  const int64_t bytes = rows.Bytes();
  // Read and written.
  const int64_t sets = kRotatingBytes / (2 * bytes) + 1;
  for (int64_t i = 0; i < sets; ++i) {
    Set set;
    const int64_t fused = tensors * rows.width_;
    SEGUE_ASSIGN_OR_RETURN(set.text, GpuBuffer::Allocate(rows.text_ * fused * kElement));
    SEGUE_ASSIGN_OR_RETURN(set.image, GpuBuffer::Allocate(rows.image_ * fused * kElement));
    SEGUE_ASSIGN_OR_RETURN(set.packed, GpuBuffer::Allocate(bytes));
    SEGUE_ASSIGN_OR_RETURN(set.from, GpuBuffer::Allocate(bytes));
    SEGUE_ASSIGN_OR_RETURN(set.to, GpuBuffer::Allocate(bytes));
    const uint64_t seed = 5000 + 10 * static_cast<uint64_t>(i);
    SEGUE_RETURN_IF_ERROR(FillNormal(set.text.data(), rows.text_ * fused, seed, stream));
    SEGUE_RETURN_IF_ERROR(FillNormal(set.image.data(), rows.image_ * fused, seed + 1, stream));
    SEGUE_RETURN_IF_ERROR(FillNormal(set.from.data(), bytes / kElement, seed + 2, stream));
    rows.sets_.push_back(std::move(set));
  }
  // Every row is valid, so that the index and its inverse are the same.
  std::vector<int32_t> index(static_cast<size_t>(rows.text_ + rows.image_));
  std::iota(index.begin(), index.end(), 0);
  const auto index_bytes = static_cast<int64_t>(index.size() * sizeof(int32_t));
  SEGUE_ASSIGN_OR_RETURN(rows.index_, GpuBuffer::Allocate(index_bytes));
  SEGUE_RETURN_IF_ERROR(Upload(rows.index_.data(), index.data(), index_bytes));
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  return rows;
}

kernels::PackParams Rows::Params(const Set& set) const {
  kernels::PackParams params;
  params.tensor_count = static_cast<int32_t>(tensors_);
  for (int64_t t = 0; t < tensors_; ++t) {
    params.tensors[t] = {
        .prefix = {.data = static_cast<uint16_t*>(set.text.data()) + t * width_,
                   .row_stride = tensors_ * width_},
        .main = {.data = static_cast<uint16_t*>(set.image.data()) + t * width_,
                 .row_stride = tensors_ * width_},
        .packed = static_cast<uint16_t*>(set.packed.data()) + t * (text_ + image_) * width_,
        .packed_row_stride = width_,
        .row_elements = width_};
  }
  params.batch = 1;
  params.prefix_rows = text_;
  params.main_rows = image_;
  params.index = index_.data();
  params.inverse = index_.data();
  params.index_type = DType::kI32;
  params.packed_rows = text_ + image_;
  params.element_type = DType::kBF16;
  return params;
}

GpuContender Rows::Pack() {
  return {.name = "segue",
          .version = "",
          .rotation = static_cast<int64_t>(sets_.size()),
          .enqueue = [this](void* stream, int64_t call) {
            return kernels::PackRows(Params(sets_[call]), {.stream = Stream::Cuda(stream)});
          }};
}

GpuContender Rows::Scatter() {
  return {.name = "segue",
          .version = "",
          .rotation = static_cast<int64_t>(sets_.size()),
          .enqueue = [this](void* stream, int64_t call) {
            return kernels::ScatterRows(Params(sets_[call]), {.stream = Stream::Cuda(stream)});
          }};
}

GpuContender Rows::Copy() {
  return {.name = "16-byte copy",
          .version = "",
          .rotation = static_cast<int64_t>(sets_.size()),
          .enqueue = [this](void* stream, int64_t call) {
            const Set& set = sets_[call];
            return kernels::CopyBytes(
                {.from = set.from.data(), .to = set.to.data(), .bytes = Bytes()},
                {.stream = Stream::Cuda(stream)});
          }};
}

Status Rows::ClearPadded() const {
  SEGUE_RETURN_IF_ERROR(FillBytes(sets_[0].text.data(), 0xff, sets_[0].text.bytes()));
  return FillBytes(sets_[0].image.data(), 0xff, sets_[0].image.bytes());
}

Result<bool> Rows::Agree() const {
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  const Set& set = sets_[0];
  const auto read = [](const GpuBuffer& buffer) -> Result<std::vector<uint16_t>> {
    std::vector<uint16_t> values(static_cast<size_t>(buffer.bytes() / kElement));
    SEGUE_RETURN_IF_ERROR(Download(values.data(), buffer.data(), buffer.bytes()));
    return values;
  };
  SEGUE_ASSIGN_OR_RETURN(const std::vector<uint16_t> text, read(set.text));
  SEGUE_ASSIGN_OR_RETURN(const std::vector<uint16_t> image, read(set.image));
  SEGUE_ASSIGN_OR_RETURN(const std::vector<uint16_t> packed, read(set.packed));
  bool agree = true;
  for (int64_t row = 0; row < text_ + image_; ++row) {
    const uint16_t* padded = row < text_ ? text.data() + row * tensors_ * width_
                                         : image.data() + (row - text_) * tensors_ * width_;
    for (int64_t t = 0; t < tensors_; ++t) {
      const uint16_t* at = packed.data() + (t * (text_ + image_) + row) * width_;
      agree = agree && std::memcmp(at, padded + t * width_, width_ * kElement) == 0;
    }
  }
  return agree;
}

Status RequireAgreement(const Rows& rows, const std::string& name) {
  SEGUE_ASSIGN_OR_RETURN(const bool agree, rows.Agree());
  if (agree) return {};
  return Error{.code = ErrorCode::kInternal,
               .operation = "verify packing",
               .argument = "case " + name,
               .got = "packed rows that differ from the padded ones",
               .wanted = "the same bytes"};
}

Result<std::vector<Row>> MeasureBesideCopy(const GpuContender& ours, Rows* rows, Row row,
                                           const SuiteOptions& options, const GpuStream& stream) {
  const GpuContender copy = rows->Copy();
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram our_program, Record(ours, stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuProgram copy_program, Record(copy, stream));
  SEGUE_ASSIGN_OR_RETURN(const GpuComparison comparison,
                         MeasureOnGpu(our_program, &copy_program, options.measure, stream));
  row.unit = "GB/s";
  row.peer = copy.name;
  return RowsOf(comparison, 2.0 * static_cast<double>(rows->Bytes()), kGiga, std::move(row));
}

}  // namespace

Result<std::vector<Row>> BenchGpuPack(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const AttentionCase shape, ReadJointCase(one));
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  SEGUE_ASSIGN_OR_RETURN(Rows rows, Rows::Create(shape, kernels::kMaxPackTensors, stream));
  const GpuContender pack = rows.Pack();
  SEGUE_RETURN_IF_ERROR(pack.enqueue(stream.get(), 0));
  SEGUE_RETURN_IF_ERROR(RequireAgreement(rows, one.name));
  return MeasureBesideCopy(pack, &rows, {.case_name = one.name, .variant = "pack"}, options,
                           stream);
}

Result<std::vector<Row>> BenchGpuScatter(const Case& one, const SuiteOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const AttentionCase shape, ReadJointCase(one));
  SEGUE_ASSIGN_OR_RETURN(const GpuStream stream, GpuStream::Create());
  SEGUE_ASSIGN_OR_RETURN(Rows rows, Rows::Create(shape, 1, stream));
  // Packed by the other kernel, then back over poisoned rows.
  SEGUE_RETURN_IF_ERROR(rows.Pack().enqueue(stream.get(), 0));
  SEGUE_RETURN_IF_ERROR(RequireAgreement(rows, one.name));
  SEGUE_RETURN_IF_ERROR(rows.ClearPadded());
  SEGUE_RETURN_IF_ERROR(SynchronizeGpu());
  const GpuContender scatter = rows.Scatter();
  SEGUE_RETURN_IF_ERROR(scatter.enqueue(stream.get(), 0));
  SEGUE_RETURN_IF_ERROR(RequireAgreement(rows, one.name));
  return MeasureBesideCopy(scatter, &rows, {.case_name = one.name, .variant = "scatter"}, options,
                           stream);
}

}  // namespace segue::bench
