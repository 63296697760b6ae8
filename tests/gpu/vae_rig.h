// What tests of the picture decoder on a GPU are built from.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "device/gpu_stream.h"
#include "gpu/device_rig.h"
#include "kernels/convolution_library.h"
#include "kernels/product_library.h"

namespace segue::kernels {

inline std::string Text(const Status& status) {
  return status.ok() ? "" : status.error().Message();
}

// A stream and the libraries with their workspaces. `reason` is not empty where there is no GPU or
// no library.
struct VaeRig {
  VaeRig() {
    const auto traits = CurrentGpuTraits();
    if (!traits) {
      reason = traits.error().Message();
      return;
    }
    auto made = GpuStream::Create();
    auto product_library = ProductLibrary::Create({.workspace = product_memory.data(),
                                                   .workspace_bytes = product_memory.bytes(),
                                                   .memory = &memory});
    auto convolution_library = ConvolutionLibrary::Create(
        {.workspace = convolution_memory.data(), .workspace_bytes = convolution_memory.bytes()});
    if (!made || !product_library || !convolution_library) {
      reason = !made              ? made.error().Message()
               : !product_library ? product_library.error().Message()
                                  : convolution_library.error().Message();
      return;
    }
    stream = std::make_unique<GpuStream>(std::move(*made));
    products = std::move(*product_library);
    convolutions = std::move(*convolution_library);
  }

  Context On(bool reference_only = false) const {
    return {.stream = stream->stream(),
            .reference_only = reference_only,
            .products = products.get(),
            .convolutions = convolutions.get()};
  }
  // Waits, and returns what the device complains about.
  std::string Finish() const { return Text(stream->Synchronize()); }

  std::string reason;
  CudaMemory memory{0};
  DeviceBytes product_memory{int64_t{32} << 20};
  DeviceBytes convolution_memory{ConvolutionLibrary::kWorkspaceBytes};
  std::unique_ptr<GpuStream> stream;
  std::unique_ptr<ProductLibrary> products;
  std::unique_ptr<ConvolutionLibrary> convolutions;
};

#define SEGUE_SKIP_WITHOUT_VAE(rig) \
  if (!(rig).reason.empty()) GTEST_SKIP() << (rig).reason

// A matrix of bfloat16 in device memory with `padding` canaries behind every row and 64 around all.
// Without values it is full of NaN.
class GpuMatrix {
 public:
  GpuMatrix(int64_t rows, int64_t cols, int64_t padding = 0)
      : rows_(rows),
        cols_(cols),
        stride_(cols + padding),
        memory_(std::make_unique<DeviceBytes>(2 * (rows * stride_ + 2 * kCanaries))) {}

  static GpuMatrix Random(int64_t rows, int64_t cols, uint32_t seed, float scale = 1.0f,
                          int64_t padding = 0) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    GpuMatrix matrix(rows, cols, padding);
    std::vector<uint16_t> bits(static_cast<size_t>(rows * cols));
    for (uint16_t& value : bits) value = FloatToBF16(normal(engine));
    matrix.Write(bits);
    return matrix;
  }

  MatrixView View() const {
    return {.data = Data(), .dtype = DType::kBF16, .rows = rows_, .cols = cols_, .stride = stride_};
  }
  WeightView Weight(const Shape& shape) const {
    return {.data = Data(), .dtype = DType::kBF16, .shape = shape};
  }
  void Write(const std::vector<uint16_t>& bits) const {
    cudaMemcpy2D(Data(), 2 * stride_, bits.data(), 2 * cols_, 2 * cols_, rows_,
                 cudaMemcpyHostToDevice);
  }
  // The elements, without gaps.
  std::vector<uint16_t> Bits() const {
    std::vector<uint16_t> bits(static_cast<size_t>(rows_ * cols_));
    cudaMemcpy2D(bits.data(), 2 * cols_, Data(), 2 * stride_, 2 * cols_, rows_,
                 cudaMemcpyDeviceToHost);
    return bits;
  }
  std::vector<float> Floats() const {
    std::vector<float> floats;
    for (const uint16_t bits : Bits()) floats.push_back(BF16ToFloat(bits));
    return floats;
  }
  // Whether everything but the elements is as it was made.
  bool CanariesLive() const {
    const std::vector<uint8_t> bytes = Read(memory_->data(), memory_->bytes());
    std::vector<uint16_t> all(bytes.size() / 2);
    std::memcpy(all.data(), bytes.data(), bytes.size());
    for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i) {
      const int64_t at = i - kCanaries;
      const bool element = at >= 0 && at < rows_ * stride_ && at % stride_ < cols_;
      if (!element && all[static_cast<size_t>(i)] != 0xffff) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kCanaries = 64;
  void* Data() const { return static_cast<uint16_t*>(memory_->data()) + kCanaries; }

  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  std::unique_ptr<DeviceBytes> memory_;
};

}  // namespace segue::kernels
