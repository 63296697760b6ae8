#include "runtime/gpu_resources.h"

#include <charconv>
#include <utility>

#include "device/gpu.h"

namespace segue::runtime {
Result<int> ParseDevice(const std::string& name) {
  if (name.empty() || name == "cpu") return -1;
  if (name == "cuda") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  int index = -1;
  if (name.starts_with(kPrefix)) {
    const char* begin = name.data() + kPrefix.size();
    const char* end = name.data() + name.size();
    const auto [stop, status] = std::from_chars(begin, end, index);
    if (status == std::errc() && stop == end && index >= 0) return index;
  }
  return Error{.code = ErrorCode::kInvalidArgument,
               .operation = "choose a device",
               .argument = "device",
               .got = "'" + name + "'",
               .wanted = "cpu, cuda or cuda:N"};
}

Result<std::string> GpuName(int device) {
  SEGUE_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, CudaDevices());
  for (const DeviceInfo& info : devices) {
    if (info.index == device) return info.name;
  }
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "load model",
               .argument = "device",
               .got = "cuda:" + std::to_string(device),
               .wanted = "one of " + std::to_string(devices.size()) + " GPUs"};
}

GpuResources::~GpuResources() {
  if (stream_) (void)stream_->Synchronize();
  products_.reset();
  convolutions_.reset();
  for (void* workspace : {product_workspace_, convolution_workspace_}) {
    if (workspace != nullptr) memory_.Free(workspace);
  }
}

Result<std::unique_ptr<GpuResources>> GpuResources::Create(int device,
                                                           const std::string& cache_directory,
                                                           const EngineMemory& memory) {
  std::unique_ptr<GpuResources> resources(new GpuResources(device, memory));
  SEGUE_RETURN_IF_ERROR(SetCurrentDevice(device));
  SEGUE_ASSIGN_OR_RETURN(const GpuMemoryInfo before, FreeAndTotal());
  resources->free_before_ = before.free_bytes;
  resources->placement_.device = DeviceKind::kCuda;
  SEGUE_ASSIGN_OR_RETURN(resources->placement_.gpu, attention::CurrentGpu());
  SEGUE_ASSIGN_OR_RETURN(GpuStream stream, GpuStream::Create());
  resources->stream_ = std::make_unique<GpuStream>(std::move(stream));
  SEGUE_ASSIGN_OR_RETURN(resources->product_workspace_,
                         resources->TakeWorkspace("workspace of products", kProductWorkspaceBytes));
  SEGUE_ASSIGN_OR_RETURN(resources->products_, kernels::ProductLibrary::Create(
                                                   {.cache_directory = cache_directory,
                                                    .workspace = resources->product_workspace_,
                                                    .workspace_bytes = kProductWorkspaceBytes,
                                                    .memory = &resources->memory_}));
  constexpr int64_t kBytes = kernels::ConvolutionLibrary::kWorkspaceBytes;
  SEGUE_ASSIGN_OR_RETURN(resources->convolution_workspace_,
                         resources->TakeWorkspace("workspace of convolutions", kBytes));
  auto convolutions = kernels::ConvolutionLibrary::Create(
      {.workspace = resources->convolution_workspace_, .workspace_bytes = kBytes});
  if (convolutions.ok()) {
    resources->convolutions_ = std::move(*convolutions);
  } else if (convolutions.error().code != ErrorCode::kUnsupported) {
    return convolutions.error();
  }
  return resources;
}

Result<void*> GpuResources::TakeWorkspace(const char* name, int64_t bytes) {
  void* workspace = memory_.Allocate(bytes);
  if (workspace != nullptr) return workspace;
  return Error{.code = ErrorCode::kOutOfMemory,
               .operation = "load model",
               .argument = name,
               .got = "a refused allocation",
               .wanted = std::to_string(bytes) + " bytes on device " + std::to_string(device())};
}

}  // namespace segue::runtime
