#include "kernels/pack_case.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace segue::kernels {
namespace {

constexpr uint8_t kCanary = 0xa5;
constexpr int64_t kGuardBytes = 64;  // canaries behind each memory

// Quiet and signalling NaN with payloads, -0, infinities, subnormals.
constexpr uint32_t kSpecial16[] = {0x7fc1, 0xffa5, 0x7f81, 0x8000, 0x7f80, 0xff80,
                                   0x7e01, 0x7c01, 0x7c00, 0xfc00, 0x0001, 0x8001};
constexpr uint32_t kSpecial32[] = {0x7fc00001, 0xffc12345, 0x7f800001, 0x80000000,
                                   0x7f800000, 0xff800000, 0x00000001, 0x807fffff};

Bytes RandomRow(int64_t elements, DType type, std::mt19937& random) {
  const auto size = static_cast<int64_t>(SizeOf(type));
  Bytes row(elements * size);
  for (int64_t i = 0; i < elements; ++i) {
    uint32_t value = random();
    if (value % 4 == 0) {
      value = size == 2 ? kSpecial16[random() % std::size(kSpecial16)]
                        : kSpecial32[random() % std::size(kSpecial32)];
    }
    std::memcpy(row.data() + i * size, &value, size);
  }
  return row;
}

}  // namespace

std::vector<uint8_t> MakeMask(MaskPattern pattern, int64_t batch, int64_t rows, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> mask(batch * rows, 0);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = rows == 0 ? 0 : static_cast<int64_t>(random() % (rows + 1));
    const int64_t start = rows == length ? 0 : static_cast<int64_t>(random() % (rows - length));
    for (int64_t row = 0; row < rows; ++row) {
      bool valid = false;
      switch (pattern) {
        case MaskPattern::kFull:
          valid = true;
          break;
        case MaskPattern::kEmpty:
          break;
        case MaskPattern::kRight:
          valid = row < length;
          break;
        case MaskPattern::kLeft:
          valid = row >= rows - length;
          break;
        case MaskPattern::kGap:
          valid = row < start || row >= start + length;
          break;
        case MaskPattern::kAlternating:
          valid = (row + b) % 2 == 0;
          break;
        case MaskPattern::kLast:
          valid = row == rows - 1;
          break;
        case MaskPattern::kRandom:
          valid = random() % 3 != 0;
          break;
      }
      mask[b * rows + row] = valid ? 1 : 0;
    }
  }
  return mask;
}

PackCase::PackCase(const PackOptions& options, const std::vector<uint8_t>& mask)
    : options_(options) {
  const int64_t sequence_rows = options.prefix_rows + options.main_rows;
  for (int64_t b = 0; b < options.batch; ++b) {
    cu_seqlens_.push_back(static_cast<int32_t>(index_.size()));
    for (int64_t row = b * sequence_rows; row < (b + 1) * sequence_rows; ++row) {
      inverse_.push_back(mask[row] != 0 ? static_cast<int64_t>(index_.size()) : -1);
      if (mask[row] != 0) index_.push_back(row);
    }
  }
  cu_seqlens_.push_back(static_cast<int32_t>(index_.size()));
  packed_rows_ = count() + (options.pass_count ? options.spare_rows : 0);
  std::mt19937 random(options.seed);
  rows_.resize(options.widths.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (int64_t row = 0; row < options.batch * sequence_rows; ++row) {
      rows_[i].push_back(RandomRow(options.widths[i], options.element_type, random));
    }
  }
}

int64_t PackCase::RowBytes(size_t tensor) const {
  return options_.widths[tensor] * static_cast<int64_t>(SizeOf(options_.element_type));
}

Bytes PackCase::Packed(size_t tensor, bool filled) const {
  const auto size = static_cast<int64_t>(SizeOf(options_.element_type));
  const int64_t stride = RowBytes(tensor) + options_.packed_gap * size;
  Bytes bytes(options_.offset * size + packed_rows_ * stride + kGuardBytes, kCanary);
  for (int64_t t = 0; filled && t < count(); ++t) {
    const Bytes& row = rows_[tensor][index_[t]];
    std::copy(row.begin(), row.end(), bytes.begin() + options_.offset * size + t * stride);
  }
  return bytes;
}

Bytes PackCase::Padded(size_t tensor, bool prefix, bool scattered) const {
  const auto size = static_cast<int64_t>(SizeOf(options_.element_type));
  const int64_t count = prefix ? options_.prefix_rows : options_.main_rows;
  const int64_t before = prefix ? 0 : options_.prefix_rows;
  const int64_t stride = RowBytes(tensor) + options_.row_gap * size;
  const int64_t batch_stride = count * stride + options_.batch_gap * size;
  Bytes bytes(options_.offset * size + options_.batch * batch_stride + kGuardBytes, kCanary);
  for (int64_t b = 0; b < options_.batch; ++b) {
    for (int64_t row = 0; row < count; ++row) {
      const int64_t padded = b * (options_.prefix_rows + options_.main_rows) + before + row;
      Bytes values = rows_[tensor][padded];
      if (scattered && inverse_[padded] < 0) std::fill(values.begin(), values.end(), 0);
      std::copy(values.begin(), values.end(),
                bytes.begin() + options_.offset * size + b * batch_stride + row * stride);
    }
  }
  return bytes;
}

std::vector<Bytes> PackCase::BeforePack() const {
  std::vector<Bytes> memory;
  for (size_t i = 0; i < rows_.size(); ++i) {
    memory.push_back(Padded(i, true, false));
    memory.push_back(Padded(i, false, false));
    memory.push_back(Packed(i, false));
  }
  std::vector<int64_t> index = index_;
  index.resize(packed_rows_, -1);
  memory.push_back(IndexBytes(index, options_.index_type));
  memory.push_back(IndexBytes(inverse_, options_.index_type));
  Bytes cu_seqlens(cu_seqlens_.size() * sizeof(int32_t));
  std::memcpy(cu_seqlens.data(), cu_seqlens_.data(), cu_seqlens.size());
  memory.push_back(cu_seqlens);
  return memory;
}

std::vector<Bytes> PackCase::AfterPack() const {
  std::vector<Bytes> memory = BeforePack();
  for (size_t i = 0; i < rows_.size(); ++i) memory[3 * i + 2] = Packed(i, true);
  return memory;
}

std::vector<Bytes> PackCase::BeforeScatter() const {
  std::vector<Bytes> memory = AfterPack();
  for (size_t i = 0; i < rows_.size(); ++i) {
    for (const size_t at : {3 * i, 3 * i + 1}) {
      std::fill(memory[at].begin(), memory[at].end(), kCanary);
    }
  }
  return memory;
}

std::vector<Bytes> PackCase::AfterScatter() const {
  std::vector<Bytes> memory = AfterPack();
  for (size_t i = 0; i < rows_.size(); ++i) {
    memory[3 * i] = Padded(i, true, true);
    memory[3 * i + 1] = Padded(i, false, true);
  }
  return memory;
}

PackParams PackCase::Params(const std::vector<void*>& memory) const {
  PackParams params;
  params.tensor_count = static_cast<int32_t>(rows_.size());
  params.batch = options_.batch;
  params.prefix_rows = options_.prefix_rows;
  params.main_rows = options_.main_rows;
  params.packed_rows = packed_rows_;
  params.element_type = options_.element_type;
  params.index_type = options_.index_type;
  const int64_t offset = options_.offset * static_cast<int64_t>(SizeOf(options_.element_type));
  for (size_t i = 0; i < rows_.size(); ++i) {
    PackTensor& tensor = params.tensors[i];
    tensor.row_elements = options_.widths[i];
    const int64_t stride = options_.widths[i] + options_.row_gap;
    const auto rows = [&](size_t at, int64_t count) {
      const int64_t batch_stride =
          options_.batch_gap == 0 ? 0 : count * stride + options_.batch_gap;
      return PaddedRows{static_cast<char*>(memory[at]) + offset, stride, batch_stride};
    };
    tensor.prefix = rows(3 * i, options_.prefix_rows);
    tensor.main = rows(3 * i + 1, options_.main_rows);
    tensor.packed = static_cast<char*>(memory[3 * i + 2]) + offset;
    tensor.packed_row_stride = options_.widths[i] + options_.packed_gap;
  }
  const size_t behind = 3 * rows_.size();
  params.index = memory[behind];
  params.inverse = memory[behind + 1];
  if (options_.pass_count) {
    params.packed_count = static_cast<const int32_t*>(memory[behind + 2]) + options_.batch;
  }
  return params;
}

std::string PackCase::Describe() const {
  std::string widths;
  for (const int64_t width : options_.widths) widths += " " + std::to_string(width);
  return "batch " + std::to_string(options_.batch) + ", rows " +
         std::to_string(options_.prefix_rows) + " + " + std::to_string(options_.main_rows) +
         ", packed " + std::to_string(count()) + " of " + std::to_string(packed_rows_) +
         ", widths" + widths + " " + DTypeName(options_.element_type) + ", index " +
         DTypeName(options_.index_type) + ", gaps " + std::to_string(options_.row_gap) + " " +
         std::to_string(options_.packed_gap) + " " + std::to_string(options_.batch_gap) +
         ", offset " + std::to_string(options_.offset);
}

std::string FirstDifference(const std::vector<Bytes>& got, const std::vector<Bytes>& want) {
  if (got.size() != want.size()) return "another number of memories";
  for (size_t i = 0; i < got.size(); ++i) {
    const auto [at, other] =
        std::mismatch(got[i].begin(), got[i].end(), want[i].begin(), want[i].end());
    if (at == got[i].end() && other == want[i].end()) continue;
    if (at == got[i].end() || other == want[i].end()) return "another size";
    return "memory " + std::to_string(i) + ", byte " + std::to_string(at - got[i].begin()) +
           " of " + std::to_string(got[i].size()) + ": got " + std::to_string(*at) + ", wanted " +
           std::to_string(*other);
  }
  return "";
}

Bytes IndexBytes(const std::vector<int64_t>& values, DType index_type) {
  const size_t size = SizeOf(index_type);
  Bytes bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    std::memcpy(bytes.data() + i * size, &values[i], size);  // little-endian
  }
  return bytes;
}

std::vector<void*> Addresses(std::vector<Bytes>& memory) {
  std::vector<void*> addresses;
  addresses.reserve(memory.size());
  for (Bytes& bytes : memory) addresses.push_back(bytes.data());
  return addresses;
}

}  // namespace segue::kernels
