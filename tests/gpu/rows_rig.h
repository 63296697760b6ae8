// What tests of row operations on the GPU are built from: matrices of bfloat16 with canaries around
// every row, and the same values for the reference on the host.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "device/tensor_view.h"
#include "gpu/gpu_memory.h"
#include "kernels/registry.h"
#include "kernels/row_table.h"

namespace segue::kernels {

#define SEGUE_SKIP_WITHOUT_GPU()            \
  const std::string no_gpu = NoGpuReason(); \
  if (!no_gpu.empty()) GTEST_SKIP() << no_gpu

inline std::string Text(const Status& status) {
  return status.ok() ? "" : status.error().Message();
}

// Waits, and returns what the device complains about.
inline std::string Finish() {
  const cudaError_t status = cudaDeviceSynchronize();
  return status == cudaSuccess ? "" : cudaGetErrorString(status);
}

inline Context OnGpu(bool reference_only = false) {
  return {.stream = Stream::Cuda(nullptr), .reference_only = reference_only};
}

inline constexpr Rounding kRoundings[] = {Rounding::kNone, Rounding::kBF16};

// Values that bfloat16 holds, [rows, cols] without gaps.
struct Values {
  std::vector<float> data;
  int64_t rows = 0;
  int64_t cols = 0;

  float* Row(int64_t row) { return data.data() + row * cols; }
  const float* Row(int64_t row) const { return data.data() + row * cols; }
  MatrixView View() { return ContiguousMatrix(data.data(), rows, cols); }
};

inline Values RandomValues(int64_t rows, int64_t cols, uint32_t seed, float scale = 1.0f,
                           float center = 0.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(center, scale);
  Values values = {.rows = rows, .cols = cols};
  for (int64_t i = 0; i < rows * cols; ++i) values.data.push_back(RoundToBF16(normal(engine)));
  return values;
}

// Device memory of any element.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values)
      : count_(values.size()), memory_(static_cast<int64_t>(values.size() * sizeof(T))) {
    Set(values);
  }
  void Set(const std::vector<T>& values) {
    if (!values.empty()) memory_.Write(values.data());
  }
  std::vector<T> Get() const {
    std::vector<T> values(count_);
    if (count_ != 0) memory_.Read(values.data());
    return values;
  }
  T* data() const { return static_cast<T*>(memory_.data()); }

 private:
  size_t count_;
  GpuMemory memory_;
};

// A matrix on the device between canaries, which are NaN.
class DeviceMatrix {
 public:
  // `offset` elements more in front: 1 leaves no row aligned.
  DeviceMatrix(const Values& values, int64_t padding, int64_t offset = 0)
      : rows_(values.rows),
        cols_(values.cols),
        stride_(values.cols + padding),
        first_(kGuard + offset),
        bits_(static_cast<size_t>(first_ + rows_ * stride_ + kGuard), kCanary),
        memory_(static_cast<int64_t>(bits_.size() * sizeof(uint16_t))) {
    Set(values);
  }
  // Poisoned, to be written.
  static DeviceMatrix Poisoned(int64_t rows, int64_t cols, int64_t padding, int64_t offset = 0) {
    return {Values{.data = std::vector<float>(static_cast<size_t>(rows * cols), NAN),
                   .rows = rows,
                   .cols = cols},
            padding, offset};
  }

  void Set(const Values& values) {
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        bits_[At(row, col)] = FloatToBF16(values.Row(row)[col]);
      }
    }
    memory_.Write(bits_.data());
  }

  MatrixView View() const {
    return {.data = static_cast<uint16_t*>(memory_.data()) + first_,
            .dtype = DType::kBF16,
            .rows = rows_,
            .cols = cols_,
            .stride = stride_};
  }
  RowTable Table(const int32_t* index) const {
    return {.data = View().data, .rows = rows_, .stride = stride_, .index = index};
  }

  // Everything, canaries as well.
  std::vector<uint16_t> Bits() const {
    std::vector<uint16_t> bits(bits_.size());
    memory_.Read(bits.data());
    return bits;
  }
  Values Get() const {
    const std::vector<uint16_t> bits = Bits();
    Values values = {.rows = rows_, .cols = cols_};
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        values.data.push_back(BF16ToFloat(bits[At(row, col)]));
      }
    }
    return values;
  }
  // Whether only elements in columns [first, first + count) of the rows changed since Set.
  bool ChangedOnly(int64_t first, int64_t count) const {
    const std::vector<uint16_t> bits = Bits();
    for (size_t i = 0; i < bits.size(); ++i) {
      const int64_t in_rows = static_cast<int64_t>(i) - first_;
      const int64_t col = in_rows >= 0 && stride_ > 0 ? in_rows % stride_ : -1;
      const bool inside = in_rows >= 0 && in_rows < rows_ * stride_ && col >= first &&
                          col < first + count && col < cols_;
      if (!inside && bits[i] != bits_[i]) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr uint16_t kCanary = 0xffa5;

  size_t At(int64_t row, int64_t col) const {
    return static_cast<size_t>(first_ + row * stride_ + col);
  }

  int64_t rows_;
  int64_t cols_;
  int64_t stride_;
  int64_t first_;
  std::vector<uint16_t> bits_;
  GpuMemory memory_;
};

// How far two results are apart, in units of the last place of bfloat16.
struct Distance {
  int64_t differ = 0;  // elements
  int64_t worst = 0;   // places; huge where one is a NaN and the other is not
  int64_t count = 0;
};

inline Distance Compare(const Values& got, const Values& want) {
  const auto place = [](float value) {
    const uint16_t bits = FloatToBF16(value);
    const auto magnitude = static_cast<int64_t>(bits & 0x7fff);
    return bits >= 0x8000 ? -magnitude : magnitude;
  };
  Distance distance = {.count = static_cast<int64_t>(want.data.size())};
  for (size_t i = 0; i < want.data.size(); ++i) {
    if (std::isnan(got.data[i]) && std::isnan(want.data[i])) continue;
    const bool nan = std::isnan(got.data[i]) || std::isnan(want.data[i]);
    const int64_t apart = nan ? 1 << 20 : std::abs(place(got.data[i]) - place(want.data[i]));
    distance.differ += apart != 0 ? 1 : 0;
    distance.worst = std::max(distance.worst, apart);
  }
  return distance;
}

// The largest |got - want| / (relative |want| + absolute) over all elements; want in float64.
inline double WorstError(const Values& got, const std::vector<double>& want, double relative,
                         double absolute) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(double{got.data[i]} - want[i]);
    const double unit = error / (relative * std::abs(want[i]) + absolute);
    worst = std::isnan(unit) ? INFINITY : std::max(worst, unit);
  }
  return worst;
}

// Half a unit of bfloat16's last place, relative, and a little for the arithmetic before the
// rounding.
inline constexpr double kHalfUlp = 1.01 / 256;

inline std::vector<int32_t> RandomIndex(int64_t count, int32_t limit, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<int32_t> index;
  for (int64_t i = 0; i < count; ++i) {
    index.push_back(static_cast<int32_t>(engine() % static_cast<uint32_t>(limit)));
  }
  return index;
}

}  // namespace segue::kernels
