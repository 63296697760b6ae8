#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "bench/gpu.h"
#include "bench/gpu_kernels.h"
#include "bench/nvml.h"

namespace segue::bench {
namespace {

Status Check(const char* call, cudaError_t status) {
  if (status == cudaSuccess) return {};
  return Error{.code = status == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory
                                                           : ErrorCode::kUnsupported,
               .operation = "measure on the GPU",
               .argument = call,
               .got = cudaGetErrorString(status),
               .wanted = "a CUDA GPU, and a driver for CUDA 13"};
}

std::string Version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

cudaStream_t StreamOf(const GpuStream& stream) { return static_cast<cudaStream_t>(stream.get()); }

}  // namespace

Result<GpuIdentity> IdentifyGpu() {
  int device = 0;
  SEGUE_RETURN_IF_ERROR(Check("cudaGetDevice", cudaGetDevice(&device)));
  cudaDeviceProp properties{};
  SEGUE_RETURN_IF_ERROR(
      Check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device)));
  int driver = 0;
  int runtime = 0;
  SEGUE_RETURN_IF_ERROR(Check("cudaDriverGetVersion", cudaDriverGetVersion(&driver)));
  SEGUE_RETURN_IF_ERROR(Check("cudaRuntimeGetVersion", cudaRuntimeGetVersion(&runtime)));
  GpuIdentity identity{
      .name = properties.name, .driver = NvmlDriverVersion(), .cuda = Version(runtime)};
  if (identity.driver.empty()) identity.driver = "for CUDA " + Version(driver);
  return identity;
}

std::string GpuBusId() {
  int device = 0;
  char id[32] = "";
  if (cudaGetDevice(&device) != cudaSuccess) return "";
  return cudaDeviceGetPCIBusId(id, sizeof(id), device) == cudaSuccess ? id : "";
}

Result<GpuBuffer> GpuBuffer::Allocate(int64_t bytes) {
  GpuBuffer buffer;
  void* data = nullptr;
  const std::string call = "cudaMalloc of " + std::to_string(bytes) + " bytes";
  SEGUE_RETURN_IF_ERROR(
      Check(call.c_str(), cudaMalloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 256)))));
  buffer.data_.reset(data);
  buffer.bytes_ = bytes;
  return buffer;
}
void GpuBuffer::Free::operator()(void* pointer) const { cudaFree(pointer); }

Result<GpuStream> GpuStream::Create() {
  GpuStream result;
  cudaStream_t stream = nullptr;
  SEGUE_RETURN_IF_ERROR(Check("cudaStreamCreateWithFlags",
                              cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
  result.stream_.reset(stream);
  return result;
}
void GpuStream::Destroy::operator()(void* stream) const {
  cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

Result<GpuGraph> GpuGraph::Capture(const GpuStream& stream,
                                   const std::function<Status(void* stream)>& enqueue) {
  SEGUE_RETURN_IF_ERROR(
      Check("cudaStreamBeginCapture",
            cudaStreamBeginCapture(StreamOf(stream), cudaStreamCaptureModeThreadLocal)));
  const Status enqueued = enqueue(stream.get());
  cudaGraph_t graph = nullptr;
  const Status ended =
      Check("cudaStreamEndCapture", cudaStreamEndCapture(StreamOf(stream), &graph));
  if (!enqueued.ok() || !ended.ok()) {
    if (graph != nullptr) cudaGraphDestroy(graph);
    return enqueued.ok() ? ended.error() : enqueued.error();
  }
  cudaGraphExec_t executable = nullptr;
  const Status made = Check("cudaGraphInstantiate", cudaGraphInstantiate(&executable, graph, 0));
  cudaGraphDestroy(graph);
  SEGUE_RETURN_IF_ERROR(made);
  GpuGraph result;
  result.executable_.reset(executable);
  SEGUE_RETURN_IF_ERROR(Check("cudaGraphUpload", cudaGraphUpload(executable, StreamOf(stream))));
  return result;
}
Status GpuGraph::Launch(const GpuStream& stream) const {
  return Check("cudaGraphLaunch",
               cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_.get()), StreamOf(stream)));
}
void GpuGraph::Destroy::operator()(void* executable) const {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable));
}

Result<GpuEvent> GpuEvent::Create() {
  GpuEvent result;
  cudaEvent_t event = nullptr;
  SEGUE_RETURN_IF_ERROR(Check("cudaEventCreate", cudaEventCreate(&event)));
  result.event_.reset(event);
  return result;
}
Status GpuEvent::Record(const GpuStream& stream) const {
  return Check("cudaEventRecord",
               cudaEventRecord(static_cast<cudaEvent_t>(event_.get()), StreamOf(stream)));
}
Status GpuEvent::Wait() const {
  return Check("cudaEventSynchronize",
               cudaEventSynchronize(static_cast<cudaEvent_t>(event_.get())));
}
Result<double> GpuEvent::Since(const GpuEvent& earlier) const {
  float milliseconds = 0.0f;
  SEGUE_RETURN_IF_ERROR(
      Check("cudaEventElapsedTime",
            cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier.event_.get()),
                                 static_cast<cudaEvent_t>(event_.get()))));
  return double{milliseconds} * 1e3;
}
void GpuEvent::Destroy::operator()(void* event) const {
  cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

Status Upload(void* device, const void* host, int64_t bytes) {
  return Check("cudaMemcpy to the device",
               cudaMemcpy(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
}
Status Download(void* host, const void* device, int64_t bytes) {
  return Check("cudaMemcpy from the device",
               cudaMemcpy(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost));
}
Status DownloadRows(void* host, const void* device, int64_t rows, int64_t row_bytes,
                    int64_t pitch) {
  if (rows == 0) return {};
  return Check("cudaMemcpy2D from the device",
               cudaMemcpy2D(host, static_cast<size_t>(row_bytes), device,
                            static_cast<size_t>(pitch), static_cast<size_t>(row_bytes),
                            static_cast<size_t>(rows), cudaMemcpyDeviceToHost));
}
Status FillBytes(void* device, int value, int64_t bytes) {
  return Check("cudaMemset", cudaMemset(device, value, static_cast<size_t>(bytes)));
}
Status SynchronizeGpu() { return Check("cudaDeviceSynchronize", cudaDeviceSynchronize()); }

Status FillNormal(void* device, int64_t count, uint64_t seed, const GpuStream& stream) {
  return Check("fill",
               LaunchFillNormal(static_cast<uint16_t*>(device), count, seed, StreamOf(stream)));
}

Result<int64_t> CountNonFinite(const void* device, int64_t rows, int64_t row_elements,
                               int64_t row_stride, const GpuStream& stream) {
  SEGUE_ASSIGN_OR_RETURN(const GpuBuffer total, GpuBuffer::Allocate(sizeof(uint64_t)));
  SEGUE_RETURN_IF_ERROR(Check(
      "cudaMemsetAsync", cudaMemsetAsync(total.data(), 0, sizeof(uint64_t), StreamOf(stream))));
  SEGUE_RETURN_IF_ERROR(Check(
      "count",
      LaunchCountNonFinite(static_cast<const uint16_t*>(device), rows, row_elements, row_stride,
                           static_cast<unsigned long long*>(total.data()), StreamOf(stream))));
  SEGUE_RETURN_IF_ERROR(Check("cudaStreamSynchronize", cudaStreamSynchronize(StreamOf(stream))));
  uint64_t found = 0;
  SEGUE_RETURN_IF_ERROR(Download(&found, total.data(), sizeof(found)));
  return static_cast<int64_t>(found);
}

}  // namespace segue::bench
