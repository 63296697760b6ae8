#include "model/weights/tensor_table.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <system_error>

#include "kernels/random_weights.h"
#include "model/weights/json.h"

namespace segue::model {
namespace {

constexpr const char* kOperation = "open weights";
constexpr std::string_view kSuffix = ".safetensors";

// "<stem>-00001-of-00009.safetensors"
bool IsShardName(std::string_view name, std::string_view stem) {
  constexpr std::string_view kPattern = "-ddddd-of-ddddd.safetensors";
  if (!name.starts_with(stem)) return false;
  name.remove_prefix(stem.size());
  if (name.size() != kPattern.size()) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(name[i])) != 0;
    // The 'd' of the suffix's own letters does not occur, so 'd' always means a digit.
    if (kPattern[i] == 'd' ? !digit : name[i] != kPattern[i]) return false;
  }
  return true;
}

struct Listing {
  std::vector<std::string> safetensors;  // the whole file or shards of this stem
  std::vector<std::string> others;       // other .safetensors files
  std::vector<std::string> pickles;      // .bin, .pt, .ckpt
};

Result<Listing> ListDirectory(const std::string& directory, const std::string& stem) {
  std::error_code error;
  std::filesystem::directory_iterator iterator(directory, error);
  if (error) {
    const bool missing =
        error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    return Error{missing ? ErrorCode::kNotFound : ErrorCode::kIo, kOperation, directory,
                 error.message(), "a directory of weights"};
  }
  Listing listing;
  while (iterator != std::filesystem::directory_iterator()) {
    const std::filesystem::path path = iterator->path();
    const std::string name = path.filename().string();
    const std::string extension = path.extension().string();
    if (name == stem + std::string(kSuffix) || IsShardName(name, stem)) {
      listing.safetensors.push_back(name);
    } else if (extension == kSuffix) {
      listing.others.push_back(name);
    } else if (extension == ".bin" || extension == ".pt" || extension == ".ckpt") {
      listing.pickles.push_back(name);
    }
    iterator.increment(error);
    if (error) {
      return Error{ErrorCode::kIo, kOperation, directory, error.message(), "a readable directory"};
    }
  }
  std::sort(listing.safetensors.begin(), listing.safetensors.end());
  std::sort(listing.others.begin(), listing.others.end());
  std::sort(listing.pickles.begin(), listing.pickles.end());
  return listing;
}

Error NoWeights(const std::string& directory, const std::string& stem, const Listing& listing) {
  const std::string wanted = stem + ".safetensors or " + stem + ".safetensors.index.json";
  if (!listing.safetensors.empty()) {
    return Error{ErrorCode::kNotFound, kOperation, directory,
                 "shards (" + JoinNames(listing.safetensors) + ") without their index", wanted};
  }
  if (!listing.pickles.empty()) {
    return Error{ErrorCode::kUnsupported, kOperation, directory,
                 "only PyTorch files (" + JoinNames(listing.pickles) + ")",
                 "safetensors: the format is not supported, convert it"};
  }
  if (!listing.others.empty()) {
    return Error{ErrorCode::kNotFound, kOperation, directory, JoinNames(listing.others), wanted};
  }
  return Error{ErrorCode::kNotFound, kOperation, directory, "no weights", wanted};
}

Status CheckShardName(const std::string& tensor, const std::string& shard,
                      const std::string& path) {
  const std::string where = path + ": weight_map: " + Quote(tensor);
  // A plain name: an index may not lead out of its directory. (The file itself may be a symbolic
  // link; download caches lay checkpoints out that way.)
  if (shard.find('/') != std::string::npos || shard.find('\\') != std::string::npos ||
      shard.find('\0') != std::string::npos || shard == "." || shard == ".." || shard.empty()) {
    return Error{ErrorCode::kCorrupt, kOperation, where, Quote(shard),
                 "the name of a file beside the index"};
  }
  if (!shard.ends_with(kSuffix)) {
    return Error{ErrorCode::kUnsupported, kOperation, where, Quote(shard),
                 "a .safetensors file: the format is not supported, convert it"};
  }
  return {};
}

}  // namespace

Result<WeightIndex> ParseWeightIndex(std::string_view text, const std::string& path) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  const Json* map = json.Find("weight_map");
  if (map == nullptr || map->AsObject() == nullptr || map->AsObject()->empty()) {
    return Error{ErrorCode::kCorrupt, kOperation, path + ": weight_map",
                 map == nullptr ? "nothing" : map->Describe(), "an object of tensor names"};
  }
  WeightIndex index;
  for (const auto& [tensor, shard] : *map->AsObject()) {
    if (shard.AsString() == nullptr) {
      return Error{ErrorCode::kCorrupt, kOperation, path + ": weight_map: " + Quote(tensor),
                   shard.Describe(), "a file name"};
    }
    SEGUE_RETURN_IF_ERROR(CheckShardName(tensor, *shard.AsString(), path));
    index[*shard.AsString()].insert(tensor);
  }
  return index;
}

namespace {

std::string PathOf(const std::string& directory, const std::string& name) {
  return (std::filesystem::path(directory) / name).string();
}

// The index and the directory name the same shards.
Status CheckShards(const WeightIndex& index, const Listing& listing, const std::string& directory,
                   const std::string& path) {
  std::vector<std::string> missing;
  for (const auto& [shard, tensors] : index) {
    std::error_code error;
    if (!std::filesystem::exists(PathOf(directory, shard), error)) missing.push_back(shard);
  }
  if (!missing.empty()) {
    return Error{ErrorCode::kNotFound, kOperation, directory,
                 std::to_string(index.size() - missing.size()) + " of " +
                     std::to_string(index.size()) + " shards; missing: " + JoinNames(missing),
                 "every shard that " + std::filesystem::path(path).filename().string() + " names"};
  }
  std::vector<std::string> extra;
  for (const std::string& name : listing.safetensors) {
    if (!index.contains(name)) extra.push_back(name);
  }
  if (!extra.empty()) {
    return Error{ErrorCode::kCorrupt, kOperation, directory,
                 "files that the index does not name: " + JoinNames(extra),
                 "the shards of " + path + " and no others (a stale index?)"};
  }
  return {};
}

// A shard holds exactly the tensors that the index says it does.
Status CheckShardTensors(const TensorFile& file, const std::set<std::string>& wanted,
                         const std::string& index_path) {
  std::vector<std::string> absent;
  for (const std::string& name : wanted) {
    if (file.Find(name) == nullptr) absent.push_back(name);
  }
  if (!absent.empty()) {
    return Error{ErrorCode::kCorrupt, kOperation, file.path(), "no tensors " + JoinNames(absent),
                 "every tensor that " + index_path + " places there"};
  }
  std::vector<std::string> extra;
  for (const TensorEntry& entry : file.entries()) {
    if (!wanted.contains(entry.name)) extra.push_back(entry.name);
  }
  if (!extra.empty()) {
    return Error{ErrorCode::kCorrupt, kOperation, file.path(),
                 "tensors that the index does not place there: " + JoinNames(extra),
                 "the tensors of " + index_path + " (a stale index?)"};
  }
  return {};
}

}  // namespace

Result<TensorTable> TensorTable::Open(const std::string& directory, const std::string& stem,
                                      const std::string& label) {
  SEGUE_ASSIGN_OR_RETURN(const Listing listing, ListDirectory(directory, stem));
  TensorTable table;
  table.label_ = label;
  const std::string index_path = directory + "/" + stem + ".safetensors.index.json";
  std::error_code error;
  if (!std::filesystem::exists(index_path, error)) {
    if (std::filesystem::exists(directory + "/" + stem + ".safetensors", error)) {
      SEGUE_ASSIGN_OR_RETURN(auto file, TensorFile::Open(directory + "/" + stem + ".safetensors"));
      SEGUE_RETURN_IF_ERROR(table.AddFile(std::move(file)));
      return table;
    }
    return NoWeights(directory, stem, listing);
  }
  SEGUE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(index_path, JsonLimits().max_bytes));
  SEGUE_ASSIGN_OR_RETURN(const WeightIndex index, ParseWeightIndex(text, index_path));
  SEGUE_RETURN_IF_ERROR(CheckShards(index, listing, directory, index_path));
  for (const auto& [shard, tensors] : index) {
    SEGUE_ASSIGN_OR_RETURN(auto file, TensorFile::Open(PathOf(directory, shard)));
    SEGUE_RETURN_IF_ERROR(CheckShardTensors(*file, tensors, index_path));
    SEGUE_RETURN_IF_ERROR(table.AddFile(std::move(file)));
  }
  return table;
}

Status TensorTable::AddFile(std::unique_ptr<const TensorFile> file) {
  for (const TensorEntry& entry : file->entries()) {
    const auto [place, added] = by_name_.emplace(entry.name, items_.size());
    if (!added) {
      return Error{ErrorCode::kCorrupt, kOperation, file->path(),
                   "tensor " + Quote(entry.name) + ", which " + items_[place->second].file->path() +
                       " also holds",
                   "every tensor in one file"};
    }
    items_.push_back({&entry, file.get()});
    total_parameters_ += entry.shape.NumElements();
    total_bytes_ += entry.bytes;
  }
  files_.push_back(std::move(file));
  return {};
}

const TensorEntry* TensorTable::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : items_[found->second].entry;
}

TensorTable TensorTable::Random(uint64_t seed, const std::string& label) {
  TensorTable table;
  table.label_ = label;
  table.seed_ = seed;
  return table;
}

WeightSource TensorTable::RandomSource(std::string_view name, const Shape& shape) const {
  WeightSource source{
      .name = label_ + ": random tensor " + Quote(name),
      .view = {.dtype = DType::kBF16, .shape = shape},
      .random_key = kernels::RandomWeightKey(*seed_, label_ + "." + std::string(name))};
  if (name.ends_with(".bias")) {
    source.deviation = 0.02f;
  } else if (shape.rank() < 2 || name.ends_with(".gamma")) {
    source.mean = 1;
    source.deviation = 0.05f;
  } else {
    const int64_t fan_in = shape.NumElements() / std::max<int64_t>(shape[0], 1);
    source.deviation =
        static_cast<float>(1 / std::sqrt(static_cast<double>(std::max<int64_t>(fan_in, 1))));
  }
  return source;
}

Result<WeightView> TensorTable::Get(std::string_view name, const Shape& shape) const {
  SEGUE_ASSIGN_OR_RETURN(const WeightSource source, Locate(name, shape));
  if (!source.random()) return source.view;
  return Error{ErrorCode::kUnsupported, "load weight", source.name, "a weight that lies nowhere",
               "a store that places it"};
}

Result<WeightView> TensorTable::GetOptional(std::string_view name, const Shape& shape) const {
  SEGUE_ASSIGN_OR_RETURN(const std::optional<WeightSource> source, LocateOptional(name, shape));
  return source ? source->view : WeightView();
}

Result<WeightSource> TensorTable::Locate(std::string_view name, const Shape& shape) const {
  if (seed_) return RandomSource(name, shape);
  SEGUE_ASSIGN_OR_RETURN(const std::optional<WeightSource> source, LocateOptional(name, shape));
  if (source) return *source;
  return Error{ErrorCode::kNotFound, "load weight", label_ + ": tensor " + Quote(name),
               "no such tensor in " + std::to_string(files_.size()) +
                   (files_.size() == 1 ? " file" : " files"),
               shape.ToString()};
}

Result<std::optional<WeightSource>> TensorTable::LocateOptional(std::string_view name,
                                                                const Shape& shape) const {
  constexpr const char* kLoad = "load weight";
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::optional<WeightSource>();
  const auto& [entry, file] = items_[found->second];
  const std::string where = file->path() + ": tensor " + Quote(name);
  if (entry->shape != shape) {
    return Error{ErrorCode::kCorrupt, kLoad, where, entry->shape.ToString(), shape.ToString()};
  }
  if (!entry->dtype || (*entry->dtype != DType::kF32 && *entry->dtype != DType::kF16 &&
                        *entry->dtype != DType::kBF16)) {
    return Error{ErrorCode::kUnsupported, kLoad, where, "dtype " + entry->dtype_name,
                 "F32, F16 or BF16 (quantised weights are not supported)"};
  }
  if (entry->offset % static_cast<int64_t>(SizeOf(*entry->dtype)) != 0) {
    return Error{ErrorCode::kUnsupported, kLoad, where,
                 "data at byte " + std::to_string(entry->offset),
                 "an offset aligned for " + entry->dtype_name + " (save the file again)"};
  }
  return std::optional(WeightSource{
      .name = where, .view = file->View(*entry), .file = file, .file_offset = entry->offset});
}

}  // namespace segue::model
