#include "gpu/repeated_runs.h"

namespace segue::kernels {
namespace {

std::string Text(cudaError_t status) {
  return status == cudaSuccess ? "" : cudaGetErrorString(status);
}

}  // namespace

RepeatedRuns::RepeatedRuns(Batch& batch) : batch_(batch), differences_(sizeof(Differences)) {
  for (const Batch::DeviceBytes& result : batch.Results()) {
    first_.push_back(std::make_unique<GpuMemory>(result.bytes));
  }
  const Differences none;
  differences_.Write(&none);
}

std::string RepeatedRuns::Run(cudaStream_t stream) {
  constexpr int kPattern = 0xc1;  // NaN in every type
  for (const Batch::DeviceBytes& result : batch_.Results()) {
    const cudaError_t status =
        cudaMemsetAsync(result.data, kPattern, static_cast<size_t>(result.bytes), stream);
    if (status != cudaSuccess) return Text(status);
  }
  const Status status = batch_.Run(Stream::Cuda(stream));
  return status.ok() ? "" : status.error().Message();
}

std::string RepeatedRuns::First(cudaStream_t stream) {
  if (std::string wrong = Run(stream); !wrong.empty()) return wrong;
  const auto results = batch_.Results();
  for (size_t i = 0; i < results.size(); ++i) {
    const cudaError_t status =
        cudaMemcpyAsync(first_[i]->data(), results[i].data, static_cast<size_t>(results[i].bytes),
                        cudaMemcpyDeviceToDevice, stream);
    if (status != cudaSuccess) return Text(status);
  }
  return Text(cudaStreamSynchronize(stream));
}

std::string RepeatedRuns::Again(uint32_t run, cudaStream_t stream) {
  if (std::string wrong = Run(stream); !wrong.empty()) return wrong;
  const auto results = batch_.Results();
  for (size_t i = 0; i < results.size(); ++i) {
    const cudaError_t status =
        CompareOnDevice(results[i].data, first_[i]->data(), results[i].bytes, run,
                        static_cast<Differences*>(differences_.data()), stream);
    if (status != cudaSuccess) return Text(status);
  }
  return "";
}

std::string RepeatedRuns::Different() const {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess) return Text(status);
  Differences found;
  differences_.Read(&found);
  if (found.words == 0) return "";
  return std::to_string(found.words) + " words differ, first in run " +
         std::to_string(found.first_run);
}

}  // namespace segue::kernels
