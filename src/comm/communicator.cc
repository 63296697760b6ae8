#include "comm/communicator.h"

#include <array>
#include <string>

#include "device/transfer.h"

namespace segue::comm {
namespace {

constexpr char kOperation[] = "all-reduce";

Error ArgumentError(const char* argument, std::string got, std::string wanted) {
  return {.code = ErrorCode::kInvalidArgument,
          .operation = kOperation,
          .argument = argument,
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

std::string ShapeText(const MatrixView& view) {
  return "[" + std::to_string(view.rows) + ", " + std::to_string(view.cols) + "] " +
         DTypeName(view.dtype);
}

}  // namespace

Status CheckSumParts(Span<const SumPart> parts) {
  if (parts.size() > kMaxSumParts) {
    return ArgumentError("parts", std::to_string(parts.size()),
                         "at most " + std::to_string(kMaxSumParts));
  }
  for (const SumPart& part : parts) {
    if (part.sum.dtype != DType::kF32 && part.sum.dtype != DType::kBF16) {
      return ArgumentError("values", DTypeName(part.sum.dtype), "F32 or BF16");
    }
    if (part.sum.dtype != parts[0].sum.dtype) {
      return ArgumentError("values", DTypeName(part.sum.dtype), "one dtype for all parts");
    }
    if (part.partial.rows != part.sum.rows || part.partial.cols != part.sum.cols ||
        part.partial.dtype != part.sum.dtype) {
      return ArgumentError("partial", ShapeText(part.partial), ShapeText(part.sum));
    }
  }
  return {};
}

int64_t SumBytes(Span<const SumPart> parts) {
  int64_t bytes = 0;
  for (const SumPart& part : parts) {
    bytes += part.sum.rows * part.sum.cols * static_cast<int64_t>(SizeOf(part.sum.dtype));
  }
  return bytes;
}

Status Communicator::AllReduceSum(const MatrixView& values, const kernels::Context& context) const {
  const SumPart part = {.partial = values, .sum = values};
  return AllReduceSum({&part, 1}, context);
}

Status Communicator::SumAndModulatedNorm(const kernels::ModulatedNormParams& params,
                                         const kernels::Context& context) const {
  std::array<SumPart, kMaxSumParts> parts;
  std::array<kernels::ModulatedNormStream, kMaxSumParts> streams;
  if (params.streams.size() > parts.size()) {
    return ArgumentError("streams", std::to_string(params.streams.size()),
                         "at most " + std::to_string(parts.size()));
  }
  for (size_t i = 0; i < params.streams.size(); ++i) {
    streams[i] = params.streams[i];
    if (streams[i].branch.data == nullptr && streams[i].h.rows > 0) {
      return ArgumentError("branch", "none", "a partial sum for every stream");
    }
    parts[i] = {.partial = streams[i].branch, .sum = streams[i].y};
    streams[i].branch = streams[i].y;
  }
  const size_t count = params.streams.size();
  SEGUE_RETURN_IF_ERROR(AllReduceSum(Span<const SumPart>(parts.data(), count), context));
  kernels::ModulatedNormParams rest = params;
  rest.streams = {streams.data(), count};
  return kernels::ModulatedNorm(rest, context);
}

Status Communicator::EndRun(const kernels::Context& /*context*/) const { return {}; }

void Communicator::DropRun() const {}

void Communicator::Fail(const Error& /*reason*/) const {}

Status Communicator::health() const { return {}; }

void SingleRank::PlacePartials(Span<SumPart> parts) const {
  for (SumPart& part : parts) part.partial = part.sum;
}

Status SingleRank::AllReduceSum(Span<const SumPart> parts, const kernels::Context& context) const {
  SEGUE_RETURN_IF_ERROR(CheckSumParts(parts));
  for (const SumPart& part : parts) {
    if (part.partial.data == part.sum.data) continue;
    SEGUE_RETURN_IF_ERROR(CopyMatrix(part.sum, part.partial, context.stream));
  }
  return {};
}

}  // namespace segue::comm
