// What the card says of itself while it works, from the driver's management library (NVML), loaded
// at run time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace segue::bench {

struct GpuState {
  std::optional<double> sm_clock_mhz;
  std::optional<double> power_w;
  std::optional<double> temp_c;
};

// "580.159.04", or empty without the library.
std::string NvmlDriverVersion();
// "00000000:19:00.0" of the current CUDA device, or empty.
std::string GpuBusId();

// Samples one card. Without the library, or where the card says nothing, its state stays empty.
class GpuSampler {
 public:
  explicit GpuSampler(const std::string& bus_id);

  void Sample();
  // Medians of the samples since the last call.
  GpuState Take();

 private:
  void* device_ = nullptr;
  std::vector<double> clock_, power_, temperature_;
};

}  // namespace segue::bench
