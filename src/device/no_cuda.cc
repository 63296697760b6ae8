// Linked in place of the files that call CUDA where no CUDA toolkit was found.
#include "device/device.h"
#include "device/gpu.h"
#include "device/upload_ring.h"

namespace segue {
namespace {

Error NoCuda(const char* operation) {
  return {.code = ErrorCode::kUnsupported,
          .operation = operation,
          .argument = "",
          .got = "a build without CUDA",
          .wanted = "a build with the preset 'cuda', which needs nvcc"};
}

}  // namespace

Result<std::vector<DeviceInfo>> CudaDevices() { return NoCuda("list CUDA devices"); }

Result<GpuTraits> CurrentGpuTraits() { return NoCuda("ask the GPU"); }

Status SetToZero(void*, int64_t, void*) { return NoCuda("set device memory to zero"); }

Status CopyPieces(const DevicePieces&, const DevicePieces&, int64_t, int64_t, void*) {
  return NoCuda("copy device memory");
}

Status SetPiecesToZero(const DevicePieces&, int64_t, int64_t, void*) {
  return NoCuda("set device memory to zero");
}

Status SetToMinusInfinity(float*, int64_t, void*) { return NoCuda("set device memory"); }

Status ReadBack(void*, const void*, int64_t, void*) { return NoCuda("read device memory"); }

Result<bool> IsCapturing(void*) { return NoCuda("ask a stream"); }

UploadRing::~UploadRing() {}  // nothing was ever acquired

Status UploadRing::Reserve(int64_t) { return NoCuda("upload to the GPU"); }

Result<void*> UploadRing::Acquire(int64_t) { return NoCuda("upload to the GPU"); }

Status UploadRing::Upload(Span<const Copy>, void*) { return NoCuda("upload to the GPU"); }

}  // namespace segue
