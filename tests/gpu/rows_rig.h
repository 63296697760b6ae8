// What tests of row operations on the GPU are built from, beside matrices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "gpu/device_matrix.h"
#include "gpu/gpu_memory.h"
#include "gpu/gpu_rig.h"

namespace segue::kernels {

inline constexpr Rounding kRoundings[] = {Rounding::kNone, Rounding::kBF16};

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
