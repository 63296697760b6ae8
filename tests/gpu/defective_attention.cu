#include "gpu/defective_attention.h"

#include "kernels/cuda/attention/launch.h"

#ifndef SEGUE_PLANTED_DEFECTS
#error "a build without defects shows nothing"
#endif

namespace segue::kernels {
namespace sm90 {

template cudaError_t Launch<Config<device::BFloat16, false>>(const KernelParams&, int32_t,
                                                             cudaStream_t);

}  // namespace sm90

cudaError_t PlantDefect(int32_t defect) {
  const auto value = static_cast<device::Defect>(defect);
  return cudaMemcpyToSymbol(device::planted_defect, &value, sizeof(value));
}

}  // namespace segue::kernels
