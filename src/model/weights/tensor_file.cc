#include "model/weights/tensor_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace segue::model {
namespace {

constexpr const char* kOperation = "open safetensors";

Error SystemError(const std::string& path, int reason) {
  const bool missing = reason == ENOENT || reason == ENOTDIR;
  return Error{missing ? ErrorCode::kNotFound : ErrorCode::kIo, kOperation, path,
               std::generic_category().message(reason), "a readable file"};
}

}  // namespace

Result<std::unique_ptr<const TensorFile>> TensorFile::Open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return SystemError(path, errno);
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    const int reason = errno;
    ::close(descriptor);
    return SystemError(path, reason);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(descriptor);
    return Error{ErrorCode::kInvalidArgument, kOperation, path,
                 S_ISDIR(info.st_mode) ? "a directory" : "a special file", "a regular file"};
  }
  std::unique_ptr<TensorFile> file(new TensorFile);
  file->path_ = path;
  file->size_bytes_ = info.st_size;
  // An empty file cannot be mapped; its header is then found to be cut short.
  if (info.st_size > 0) {
    void* mapping =
        ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapping == MAP_FAILED) {
      const int reason = errno;
      ::close(descriptor);
      return SystemError(path, reason);
    }
    file->data_ = static_cast<const uint8_t*>(mapping);
  }
  ::close(descriptor);  // the mapping keeps the file open

  SEGUE_ASSIGN_OR_RETURN(
      file->header_,
      ParseTensorHeader({file->data_, static_cast<size_t>(file->size_bytes_)}, path));
  const std::vector<TensorEntry>& entries = file->header_.entries;
  for (size_t i = 0; i < entries.size(); ++i) file->by_name_.emplace(entries[i].name, i);
  return std::unique_ptr<const TensorFile>(std::move(file));
}

TensorFile::~TensorFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_bytes_));
  }
}

const TensorEntry* TensorFile::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.entries[found->second];
}

WeightView TensorFile::View(const TensorEntry& entry) const {
  return {data_ + entry.offset, *entry.dtype, entry.shape};
}

Span<const uint8_t> TensorFile::Bytes(const TensorEntry& entry) const {
  return {data_ + entry.offset, static_cast<size_t>(entry.bytes)};
}

Result<std::vector<float>> ReadFloat32(const WeightView& view) {
  const auto count = static_cast<size_t>(view.shape.NumElements());
  const size_t size = SizeOf(view.dtype);
  const auto* bytes = static_cast<const uint8_t*>(view.data);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    uint16_t half = 0;
    switch (view.dtype) {
      case DType::kF32:
        std::memcpy(&values[i], bytes + i * size, size);
        break;
      case DType::kF16:
        std::memcpy(&half, bytes + i * size, size);
        values[i] = F16ToFloat(half);
        break;
      case DType::kBF16:
        std::memcpy(&half, bytes + i * size, size);
        values[i] = BF16ToFloat(half);
        break;
      default:
        return Error{ErrorCode::kUnsupported, "read tensor as float32", "dtype",
                     DTypeName(view.dtype), "F32, F16 or BF16"};
    }
  }
  return values;
}

}  // namespace segue::model
