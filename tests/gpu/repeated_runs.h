// One batch run again and again, every run's bytes compared with the first one's on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu/attention_batch.h"
#include "gpu/device_compare.h"

namespace segue::kernels {

class RepeatedRuns {
 public:
  // The batch is uploaded and its schedule made; it must live as long as this does.
  explicit RepeatedRuns(Batch& batch);

  // Each returns what went wrong with a call; empty: nothing. Results are overwritten before a run,
  // so that bytes which a run leaves out cannot be those of an earlier one.
  std::string First(cudaStream_t stream);
  std::string Again(uint32_t run, cudaStream_t stream);
  // Waits; empty where every run gave the first one's bytes.
  std::string Different() const;

 private:
  std::string Run(cudaStream_t stream);

  Batch& batch_;
  std::vector<std::unique_ptr<GpuMemory>> first_;
  GpuMemory differences_;
};

}  // namespace segue::kernels
