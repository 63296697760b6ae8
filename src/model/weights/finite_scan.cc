#include "model/weights/finite_scan.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace segue::model {
namespace {

// A value is finite unless all bits of its exponent are set.
template <typename Bits, Bits kExponent>
NonFiniteCount Count(Span<const uint8_t> bytes) {
  // Elements looked at before the verdict on them is: long enough for wide instructions, short
  // enough to stay in the first cache for the second look at a bad block.
  constexpr size_t kBlock = 4096;
  Bits block[kBlock];
  const size_t elements = bytes.size() / sizeof(Bits);
  NonFiniteCount result;
  for (size_t begin = 0; begin < elements; begin += kBlock) {
    const size_t count = std::min(kBlock, elements - begin);
    std::memcpy(block, bytes.data() + begin * sizeof(Bits), count * sizeof(Bits));
    unsigned any = 0;
    for (size_t i = 0; i < count; ++i) any |= (block[i] & kExponent) == kExponent ? 1u : 0u;
    if (any == 0) continue;
    for (size_t i = 0; i < count; ++i) {
      if ((block[i] & kExponent) != kExponent) continue;
      if (result.count++ == 0) result.first = static_cast<int64_t>(begin + i);
    }
  }
  return result;
}

// Where a file has data, for those that are sparse.
class Extents {
 public:
  explicit Extents(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Extents() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Extents(const Extents&) = delete;
  Extents& operator=(const Extents&) = delete;

  // The next stretch of data within [begin, end), or an empty one at `end`. A file system that
  // does not tell gives all of it.
  std::pair<int64_t, int64_t> Next(int64_t begin, int64_t end) const {
#ifdef SEEK_DATA
    if (descriptor_ >= 0) {
      const off_t data = ::lseek(descriptor_, begin, SEEK_DATA);
      if (data < 0 && errno == ENXIO) return {end, end};  // nothing but a hole up to the end
      if (data >= 0) {
        const off_t hole = ::lseek(descriptor_, data, SEEK_HOLE);
        const int64_t stop = hole < 0 ? end : static_cast<int64_t>(hole);
        return {std::min<int64_t>(data, end), std::min(stop, end)};
      }
    }
#endif
    return {begin, end};
  }

 private:
  int descriptor_;
};

NonFiniteTensor ScanTensor(const TensorTable::Item& item, const Extents& extents) {
  const TensorEntry& entry = *item.entry;
  const auto size = static_cast<int64_t>(SizeOf(*entry.dtype));
  const Span<const uint8_t> bytes = item.file->Bytes(entry);
  NonFiniteTensor found = {item.entry, item.file};
  for (int64_t at = 0; at < entry.bytes;) {
    auto [begin, end] = extents.Next(entry.offset + at, entry.offset + entry.bytes);
    // Whole elements, should an extent begin or end within one.
    begin = (begin - entry.offset) / size * size;
    end = std::min((end - entry.offset + size - 1) / size * size, entry.bytes);
    begin = std::max(begin, at);
    if (begin >= end) break;
    const NonFiniteCount count = CountNonFinite(
        bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), *entry.dtype);
    if (count.count > 0 && found.count == 0) found.first = begin / size + count.first;
    found.count += count.count;
    at = end;
  }
  return found;
}

}  // namespace

NonFiniteCount CountNonFinite(Span<const uint8_t> bytes, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Count<uint32_t, 0x7f800000u>(bytes);
    case DType::kF16:
      return Count<uint16_t, 0x7c00u>(bytes);
    case DType::kBF16:
      return Count<uint16_t, 0x7f80u>(bytes);
    default:
      return {};
  }
}

std::vector<NonFiniteTensor> FindNonFinite(const TensorTable& table) {
  std::vector<NonFiniteTensor> found;
  for (const auto& file : table.files()) {
    const Extents extents(file->path());
    for (const TensorEntry& entry : file->entries()) {
      const bool is_float =
          entry.dtype == DType::kF32 || entry.dtype == DType::kF16 || entry.dtype == DType::kBF16;
      if (!is_float || entry.bytes == 0) continue;
      const NonFiniteTensor tensor = ScanTensor({&entry, file.get()}, extents);
      if (tensor.count > 0) found.push_back(tensor);
    }
  }
  return found;
}

}  // namespace segue::model
