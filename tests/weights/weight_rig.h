// Checkpoints of random tensors, and what a store should make of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "model/weights/tensor_table.h"
#include "weights/files.h"

namespace segue::model {

// The element's bits, in the dtype given.
inline std::vector<uint8_t> RandomElements(DType dtype, int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<uint8_t> bytes(static_cast<size_t>(count) * SizeOf(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(generator);
    const uint16_t half = dtype == DType::kBF16 ? FloatToBF16(value) : FloatToF16(value);
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[static_cast<size_t>(i) * 4], &value, 4);
    } else {
      std::memcpy(&bytes[static_cast<size_t>(i) * 2], &half, 2);
    }
  }
  return bytes;
}

// One file "model.safetensors" of tensors that a test describes.
class TestWeights {
 public:
  void Add(const std::string& name, DType dtype, const Shape& shape) {
    const auto seed = static_cast<uint32_t>(100 + tensors_.size());
    elements_[name] = RandomElements(dtype, shape.NumElements(), seed);
    tensors_.push_back({name, {elements_[name].data(), dtype, shape}});
  }

  void Write() {
    ASSERT_TRUE(WriteTensorFile(directory_ / "model.safetensors", tensors_).ok());
    Result<TensorTable> table = TensorTable::Open(directory_.path(), "model", "part");
    ASSERT_TRUE(table.ok()) << table.error().Message();
    table_ = std::make_unique<TensorTable>(std::move(*table));
  }

  const TensorTable& table() const { return *table_; }
  std::string path() const { return directory_ / "model.safetensors"; }

  WeightPart Part(const std::string& name, const WeightSlice& slice = {}) const {
    for (const NamedTensor& tensor : tensors_) {
      if (tensor.name == name) return {*table_->Locate(name, tensor.view.shape), slice};
    }
    ADD_FAILURE() << name;
    return {};
  }

  // Rows [row, row + rows) and columns [col, col + cols) of a matrix, or elements of a vector as
  // rows of one, rounded to bfloat16.
  std::vector<uint16_t> Rounded(const std::string& name, int64_t row, int64_t rows, int64_t col,
                                int64_t cols) const {
    for (const NamedTensor& tensor : tensors_) {
      if (tensor.name != name) continue;
      const Result<std::vector<float>> values = ReadFloat32(tensor.view);
      const int64_t stride = tensor.view.shape.NumElements() / tensor.view.shape[0];
      std::vector<uint16_t> rounded;
      for (int64_t r = row; r < row + rows; ++r) {
        for (int64_t c = col; c < col + cols; ++c) {
          rounded.push_back(FloatToBF16((*values)[static_cast<size_t>(r * stride + c)]));
        }
      }
      return rounded;
    }
    ADD_FAILURE() << name;
    return {};
  }
  std::vector<uint16_t> Rounded(const std::string& name) const {
    for (const NamedTensor& tensor : tensors_) {
      if (tensor.name != name) continue;
      const Shape& shape = tensor.view.shape;
      return Rounded(name, 0, shape[0], 0, shape.NumElements() / shape[0]);
    }
    return {};
  }

 private:
  segue::testing::TempDirectory directory_;
  std::map<std::string, std::vector<uint8_t>> elements_;
  std::vector<NamedTensor> tensors_;
  std::unique_ptr<TensorTable> table_;
};

// The elements of a bfloat16 view in host memory.
inline std::vector<uint16_t> ElementsOf(const WeightView& view) {
  EXPECT_EQ(view.dtype, DType::kBF16);
  const auto* begin = static_cast<const uint16_t*>(view.data);
  return {begin, begin + view.shape.NumElements()};
}

}  // namespace segue::model
