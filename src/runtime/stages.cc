#include "segue/stages.h"

#include <cmath>
#include <memory>
#include <utility>

#include "model/weights/tensor_file.h"

namespace segue {
namespace {

constexpr char kRead[] = "read latents";
constexpr const char* kNames[] = {"latents", "noise"};  // the first that is there is meant

Error LatentsError(ErrorCode code, std::string argument, std::string got, std::string wanted) {
  return {.code = code,
          .operation = kRead,
          .argument = std::move(argument),
          .got = std::move(got),
          .wanted = std::move(wanted)};
}

// The tensor that is meant, or an error that lists what is there.
Result<const model::TensorEntry*> FindLatents(const model::TensorFile& file) {
  for (const char* name : kNames) {
    if (const model::TensorEntry* entry = file.Find(name); entry != nullptr) return entry;
  }
  if (file.entries().size() == 1) return &file.entries().front();
  std::string names;
  for (const model::TensorEntry& entry : file.entries()) {
    names += (names.empty() ? "" : ", ") + entry.name;
    if (names.size() > 200) {
      names += ", ...";
      break;
    }
  }
  return LatentsError(ErrorCode::kNotFound, file.path(),
                      names.empty() ? "no tensor" : "tensors " + names,
                      "one tensor, or one named latents or noise");
}

// The shape without a leading 1, if it is [rows, channels] then.
Result<std::vector<int64_t>> RowsAndChannels(const Shape& shape, const std::string& argument) {
  const int leading = shape.rank() == 3 && shape[0] == 1 ? 1 : 0;
  if (shape.rank() - leading != 2 || shape.NumElements() == 0) {
    return LatentsError(ErrorCode::kInvalidArgument, argument, "shape " + shape.ToString(),
                        "[rows, channels] or [1, rows, channels]");
  }
  return std::vector<int64_t>{shape[leading], shape[leading + 1]};
}

Status CheckStage(const StageTensor& stage) {
  int64_t count = 1;
  bool fits = stage.shape.size() <= static_cast<size_t>(Shape::kMaxRank);
  for (const int64_t extent : stage.shape) {
    if (!fits || extent < 0 || __builtin_mul_overflow(count, extent, &count)) fits = false;
  }
  if (fits && static_cast<uint64_t>(count) == stage.values.size()) return {};
  return Error{.code = ErrorCode::kInvalidArgument,
               .operation = "write stages",
               .argument = stage.name,
               .got = std::to_string(stage.values.size()) + " values",
               .wanted = "as many as the shape holds, of rank 5 at most"};
}

}  // namespace

Status WriteStages(const std::string& path, const std::vector<StageTensor>& stages) {
  std::vector<model::NamedTensor> tensors;
  for (const StageTensor& stage : stages) {
    SEGUE_RETURN_IF_ERROR(CheckStage(stage));
    Shape shape;
    for (const int64_t extent : stage.shape) shape.Append(extent);
    tensors.push_back(
        {.name = stage.name,
         .view = {.data = stage.values.data(), .dtype = DType::kF32, .shape = shape}});
  }
  return model::WriteTensorFile(path, tensors);
}

Result<StageTensor> ReadLatents(const std::string& path) {
  SEGUE_ASSIGN_OR_RETURN(const auto file, model::TensorFile::Open(path));
  SEGUE_ASSIGN_OR_RETURN(const model::TensorEntry* const entry, FindLatents(*file));
  const std::string argument = path + ": tensor '" + entry->name + "'";
  const bool is_float =
      entry->dtype == DType::kF32 || entry->dtype == DType::kF16 || entry->dtype == DType::kBF16;
  if (!is_float) {
    return LatentsError(ErrorCode::kInvalidArgument, argument, entry->dtype_name,
                        "F32, F16 or BF16");
  }
  StageTensor latents{.name = entry->name};
  SEGUE_ASSIGN_OR_RETURN(latents.shape, RowsAndChannels(entry->shape, argument));
  SEGUE_ASSIGN_OR_RETURN(latents.values, model::ReadFloat32(file->View(*entry)));
  for (size_t i = 0; i < latents.values.size(); ++i) {
    if (std::isfinite(latents.values[i])) continue;
    return LatentsError(ErrorCode::kNonFinite, argument,
                        std::to_string(latents.values[i]) + " at index " + std::to_string(i),
                        "finite values");
  }
  return latents;
}

}  // namespace segue
