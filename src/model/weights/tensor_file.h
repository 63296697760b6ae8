// One safetensors file: an 8-byte little-endian header length, a JSON header, raw tensors.
//
// The rule for what is accepted, everywhere a file is read: the tensors of the header, ordered by
// offset, tile the data section exactly. No overlap, no hole, no byte behind the last tensor; a
// name occurs once. It is the reference library's own rule, so a file is sound in both or neither.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "base/span.h"
#include "device/tensor_view.h"
#include "segue/status.h"

namespace segue::model {

struct TensorEntry {
  std::string name;
  std::string dtype_name;      // as the file spells it, e.g. "BF16", "F8_E4M3"
  std::optional<DType> dtype;  // absent for a type the engine does not compute with
  Shape shape;
  int64_t offset = 0;  // bytes from the beginning of the file
  int64_t bytes = 0;
};

struct TensorHeader {
  std::vector<TensorEntry> entries;             // in file order
  std::map<std::string, std::string> metadata;  // the "__metadata__" object
};

// Reads the header of a whole safetensors file in memory. `path` is for error messages only.
// Errors (kCorrupt): a file cut short (got and wanted bytes), an absurd header length, a Git LFS
// pointer or a web page in place of weights, a header that is not strict JSON, repeated names,
// offsets outside the file, overlapping, leaving holes or trailing bytes, or unlike the shape.
Result<TensorHeader> ParseTensorHeader(Span<const uint8_t> file, const std::string& path);

// A file mapped read-only. Views point into the mapping and live as long as the object. Const
// after opening; any number of threads may read. (A file that another program shortens while it
// is mapped ends the process with SIGBUS, as with any mapping.)
class TensorFile {
 public:
  static Result<std::unique_ptr<const TensorFile>> Open(const std::string& path);
  ~TensorFile();
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }
  const uint8_t* data() const { return data_; }  // the mapping; null for an empty file
  const TensorHeader& header() const { return header_; }
  const std::vector<TensorEntry>& entries() const { return header_.entries; }
  // Null when the file has no such tensor.
  const TensorEntry* Find(std::string_view name) const;
  // Precondition: `entry` is one of entries(), and has a dtype.
  WeightView View(const TensorEntry& entry) const;
  // The raw bytes of any entry.
  Span<const uint8_t> Bytes(const TensorEntry& entry) const;

 private:
  TensorFile() = default;

  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_bytes_ = 0;
  TensorHeader header_;
  std::map<std::string_view, size_t> by_name_;
};

// The values of a float tensor, widened to float32. Error for integer tensors.
Result<std::vector<float>> ReadFloat32(const WeightView& view);

struct NamedTensor {
  std::string name;
  WeightView view;
};

// Writes a safetensors file of these tensors in this order. The file appears under its name only
// when complete. Errors: a repeated name (kInvalidArgument), what the system refuses (kIo).
Status WriteTensorFile(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace segue::model
