// Overlap of a kernel's end with the next one's start (programmatic dependent launch).
#pragma once

#include <cuda_runtime.h>

namespace segue::kernels::device {

// Waits until all of the kernel launched before on the stream is done and its memory is there.
// Every CTA of a kernel launched with Grid::overlaps calls it before it touches memory, also one
// without work: the kernel after it relies on this one having waited.
__device__ __forceinline__ void WaitForPreviousKernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the next kernel's CTAs take the room that this one's leave; they wait there.
__device__ __forceinline__ void LetNextKernelStart() {
  asm volatile("griddepcontrol.launch_dependents;");
}

}  // namespace segue::kernels::device
