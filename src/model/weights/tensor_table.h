// The tensors of one component (a transformer, a text encoder, a VAE) over all of its files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/shape.h"
#include "base/span.h"
#include "device/tensor_view.h"
#include "model/weights/tensor_file.h"
#include "model/weights/weight_source.h"
#include "model/weights/weight_store.h"
#include "segue/status.h"

namespace segue::model {

// Of each shard, the tensors an index's weight_map places there.
using WeightIndex = std::map<std::string, std::set<std::string>>;
// Reads a "*.safetensors.index.json". `path` is for error messages only. Errors (kCorrupt): not
// strict JSON, no weight_map, a shard that is not a plain file name; kUnsupported: not safetensors.
Result<WeightIndex> ParseWeightIndex(std::string_view text, const std::string& path);

// Const after opening; views live as long as the table.
class TensorTable {
 public:
  // Opens `<directory>/<stem>.safetensors`, or every shard `<stem>.safetensors.index.json` names.
  // `label` is the directory as error messages spell it ("transformer"). Errors: neither there
  // (only .bin shards: kUnsupported), an index that is not strict JSON or points outside the
  // directory, missing shards (all named), shards on disk that the index does not name, tensors
  // that the index and a shard's header disagree about, and whatever a shard's header errs in.
  static Result<TensorTable> Open(const std::string& directory, const std::string& stem,
                                  const std::string& label);
  // A table without files that has a bfloat16 tensor for every name and shape it is asked for: the
  // same for the same seed, label, name and shape. Weights are about normal with the deviation
  // 1 / sqrt(fan in), biases 0.02, and scales of norms 1 +- 0.05. It lists nothing, and what is
  // optional is not there.
  static TensorTable Random(uint64_t seed, const std::string& label);

  // A weight of a known shape, in its stored dtype (F32, F16 or BF16). Errors name file, tensor,
  // got and wanted: absent (kNotFound), another shape (kCorrupt), another dtype (kUnsupported).
  Result<WeightView> Get(std::string_view name, const Shape& shape) const;
  // The same, but a tensor that is not there gives a view whose present() is false.
  Result<WeightView> GetOptional(std::string_view name, const Shape& shape) const;
  // The same weight for a WeightStore to place. Only so are random ones to be had: Get() refuses
  // them (kUnsupported), since they lie nowhere yet.
  Result<WeightSource> Locate(std::string_view name, const Shape& shape) const;
  Result<std::optional<WeightSource>> LocateOptional(std::string_view name,
                                                     const Shape& shape) const;

  bool Contains(std::string_view name) const { return by_name_.contains(name); }
  // Null when absent.
  const TensorEntry* Find(std::string_view name) const;

  struct Item {
    const TensorEntry* entry = nullptr;
    const TensorFile* file = nullptr;
  };
  // Every tensor, in the order of files and of offsets within them.
  const std::vector<Item>& items() const { return items_; }
  const std::vector<std::unique_ptr<const TensorFile>>& files() const { return files_; }
  const std::string& label() const { return label_; }
  bool random() const { return seed_.has_value(); }
  // Totals over all tensors; bytes are of the data sections.
  int64_t total_parameters() const { return total_parameters_; }
  int64_t total_bytes() const { return total_bytes_; }

 private:
  Status AddFile(std::unique_ptr<const TensorFile> file);
  WeightSource RandomSource(std::string_view name, const Shape& shape) const;

  std::string label_;
  std::optional<uint64_t> seed_;  // of a table of random weights
  std::vector<std::unique_ptr<const TensorFile>> files_;
  std::vector<Item> items_;
  std::unordered_map<std::string_view, size_t> by_name_;
  int64_t total_parameters_ = 0;
  int64_t total_bytes_ = 0;
};

// What a network takes of a tensor, and for how long.
struct WeightUse {
  WeightSlice slice;
  WeightGroup group = WeightGroup::kResident;
};

// A part of a stack: `slice` of the tensor `name`, whose whole shape is `shape`.
struct StackedPart {
  std::string name;
  Shape shape;
  WeightSlice slice;
};

// Takes a network's weights out of a table one by one, keeping the errors: a network's loading
// code states names and shapes and nothing else, and Finish() reports all that is missing or
// wrong at once. For one thread.
class WeightReader {
 public:
  // Views into the table's mappings, which live as long as the table. Columns and random weights,
  // which need memory of their own, are errors. Precondition: `table` outlives the reader.
  explicit WeightReader(const TensorTable& table) : table_(&table) {}
  // Views that the store gives. Precondition: both outlive the reader; the store what is loaded,
  // and the table the store's Load().
  WeightReader(const TensorTable& table, WeightStore& store) : table_(&table), store_(&store) {}

  // A view that is not present() when there is an error, which Finish() will report. `shape` is the
  // whole tensor's, the view's that of the slice.
  WeightView Take(const std::string& name, const Shape& shape, const WeightUse& use = {});
  // The same, but the tensor may be absent.
  WeightView TakeOptional(const std::string& name, const Shape& shape, const WeightUse& use = {});
  // Several tensors, or slices, one under another: see StackedWeight. `parts` is empty when there
  // is an error. A tensor may occur in several parts.
  StackedWeight TakeStacked(Span<const StackedPart> parts,
                            WeightGroup group = WeightGroup::kResident);
  const TensorTable& table() const { return *table_; }
  // Null: views into the mappings.
  WeightStore* store() const { return store_; }

  // The first error; when several tensors are missing or wrong, all of them are named.
  Status Finish() const;
  // Tensors of the table that nobody took, in the table's order.
  std::vector<std::string> Unused() const;

 private:
  WeightView Place(const WeightSource& source, const WeightUse& use);

  const TensorTable* table_;
  WeightStore* store_ = nullptr;
  std::set<std::string, std::less<>> taken_;
  std::vector<Error> errors_;
};

}  // namespace segue::model
