// The packed product of Linear.
#pragma once

#include "kernels/cpu/blocks.h"
#include "kernels/linear.h"

namespace segue::kernels::cpu {

Status LinearAvx2(const LinearParams& params, const Context& context);
Status LinearAvx512(const LinearParams& params, const Context& context);

// What is compiled for an instruction set. A task computes one block of y; `scratch` is the
// worker's (ThreadPool::Scratch).
struct LinearCode {
  TileLimits limits;
  void (*run_task)(const LinearParams& params, const ProductBlocks& blocks, int64_t task,
                   void* scratch);
};

extern const LinearCode kLinearAvx2;
extern const LinearCode kLinearAvx512;

}  // namespace segue::kernels::cpu
