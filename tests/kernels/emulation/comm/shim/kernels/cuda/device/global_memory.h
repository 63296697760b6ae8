// Stands for kernels/cuda/device/global_memory.h on the host: what norms read.
#pragma once

#include "kernels/cuda/device/system_memory.h"

namespace segue::kernels::device {

inline uint4 LoadOnce(const void* from) { return LoadPeer(from); }

}  // namespace segue::kernels::device
