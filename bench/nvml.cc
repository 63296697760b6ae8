#include "bench/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace segue::bench {
namespace {

// Of nvml.h, whose binary interface is kept stable: results are 0 on success, devices are pointers.
using Init = int (*)();
using DriverVersion = int (*)(char* version, unsigned length);
using DeviceByBusId = int (*)(const char* id, void** device);
using ReadUnsigned = int (*)(void* device, unsigned* value);
using ReadKind = int (*)(void* device, int kind, unsigned* value);

constexpr int kSmClock = 1;
constexpr int kGpuTemperature = 0;

template <class Function>
Function Find(const char* name) {
  static void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  static const bool ready = [] {
    if (library == nullptr) return false;
    const auto init = reinterpret_cast<Init>(dlsym(library, "nvmlInit_v2"));
    return init != nullptr && init() == 0;
  }();
  return ready ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

std::optional<double> TakeMedian(std::vector<double>* samples) {
  if (samples->empty()) return std::nullopt;
  const auto middle = samples->begin() + static_cast<ptrdiff_t>(samples->size() / 2);
  std::nth_element(samples->begin(), middle, samples->end());
  const double median = *middle;
  samples->clear();
  return median;
}

}  // namespace

std::string NvmlDriverVersion() {
  const auto read = Find<DriverVersion>("nvmlSystemGetDriverVersion");
  std::array<char, 96> version{};
  if (read == nullptr || read(version.data(), version.size()) != 0) return "";
  return version.data();
}

GpuSampler::GpuSampler(const std::string& bus_id) {
  const auto find = Find<DeviceByBusId>("nvmlDeviceGetHandleByPciBusId_v2");
  if (find == nullptr || find(bus_id.c_str(), &device_) != 0) device_ = nullptr;
}

void GpuSampler::Sample() {
  if (device_ == nullptr) return;
  static const auto clock = Find<ReadKind>("nvmlDeviceGetClockInfo");
  static const auto power = Find<ReadUnsigned>("nvmlDeviceGetPowerUsage");
  static const auto temperature = Find<ReadKind>("nvmlDeviceGetTemperature");
  unsigned value = 0;
  if (clock != nullptr && clock(device_, kSmClock, &value) == 0) clock_.push_back(value);
  if (power != nullptr && power(device_, &value) == 0) power_.push_back(value * 1e-3);
  if (temperature != nullptr && temperature(device_, kGpuTemperature, &value) == 0) {
    temperature_.push_back(value);
  }
}

GpuState GpuSampler::Take() {
  return {.sm_clock_mhz = TakeMedian(&clock_),
          .power_w = TakeMedian(&power_),
          .temp_c = TakeMedian(&temperature_)};
}

}  // namespace segue::bench
