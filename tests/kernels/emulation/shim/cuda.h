// Stands for the CUDA driver's header when the attention kernel is compiled for the host.
#pragma once

#include "kernels/emulation/machine.h"

using CUtensorMap = segue::kernels::emulation::TensorMap;
