// Linked in place of gpu_cuda.cc where no CUDA toolkit was found.
#include "bench/gpu.h"
#include "bench/nvml.h"

namespace segue::bench {
namespace {

Error NoCuda() {
  return {.code = ErrorCode::kUnsupported,
          .operation = "measure on the GPU",
          .argument = "",
          .got = "a build without CUDA",
          .wanted = "a build with the preset 'cuda', which needs nvcc"};
}

}  // namespace

Result<GpuIdentity> IdentifyGpu() { return NoCuda(); }
std::string GpuBusId() { return ""; }

Result<GpuBuffer> GpuBuffer::Allocate(int64_t) { return NoCuda(); }
void GpuBuffer::Free::operator()(void*) const {}
Result<GpuStream> GpuStream::Create() { return NoCuda(); }
void GpuStream::Destroy::operator()(void*) const {}
Result<GpuGraph> GpuGraph::Capture(const GpuStream&, const std::function<Status(void*)>&) {
  return NoCuda();
}
Status GpuGraph::Launch(const GpuStream&) const { return NoCuda(); }
void GpuGraph::Destroy::operator()(void*) const {}
Result<GpuEvent> GpuEvent::Create() { return NoCuda(); }
Status GpuEvent::Record(const GpuStream&) const { return NoCuda(); }
Status GpuEvent::Wait() const { return NoCuda(); }
Result<double> GpuEvent::Since(const GpuEvent&) const { return NoCuda(); }
void GpuEvent::Destroy::operator()(void*) const {}

Status Upload(void*, const void*, int64_t) { return NoCuda(); }
Status Download(void*, const void*, int64_t) { return NoCuda(); }
Status DownloadRows(void*, const void*, int64_t, int64_t, int64_t) { return NoCuda(); }
Status FillBytes(void*, int, int64_t) { return NoCuda(); }
Status SynchronizeGpu() { return NoCuda(); }
Status FillNormal(void*, int64_t, uint64_t, const GpuStream&) { return NoCuda(); }
Result<int64_t> CountNonFinite(const void*, int64_t, int64_t, int64_t, const GpuStream&) {
  return NoCuda();
}

}  // namespace segue::bench
