#include "kernels/cuda/cudnn/descriptor.h"

namespace segue::kernels::cudnn {

Error CallError(const std::string& call, cudnnStatus_t status) {
  return {.code = ErrorCode::kUnsupported,
          .operation = "call cuDNN",
          .argument = call,
          .got = cudnnGetErrorString(status),
          .wanted = "what the library takes"};
}

Handle::~Handle() {
  if (handle_ != nullptr) cudnnDestroy(handle_);
}

Status Handle::Create() {
  const cudnnStatus_t status = cudnnCreate(&handle_);
  if (status == CUDNN_STATUS_SUCCESS) return {};
  handle_ = nullptr;
  return CallError("cudnnCreate", status);
}

Status Handle::SetStream(void* stream) const {
  const cudnnStatus_t status = cudnnSetStream(handle_, static_cast<cudaStream_t>(stream));
  if (status == CUDNN_STATUS_SUCCESS) return {};
  return CallError("cudnnSetStream", status);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type, const char* name) : name_(name) {
  status_ = cudnnBackendCreateDescriptor(type, &descriptor_);
}

Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
}

void Descriptor::SetRaw(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                        int64_t count, const void* values) {
  if (status_ != CUDNN_STATUS_SUCCESS) return;
  status_ = cudnnBackendSetAttribute(descriptor_, attribute, type, count, values);
  if (status_ != CUDNN_STATUS_SUCCESS) failed_ = static_cast<int>(attribute);
}

Status Descriptor::Finalize() {
  if (status_ == CUDNN_STATUS_SUCCESS) status_ = cudnnBackendFinalize(descriptor_);
  if (status_ == CUDNN_STATUS_SUCCESS) return {};
  const std::string attribute = failed_ < 0 ? "" : ", attribute " + std::to_string(failed_);
  return CallError(name_ + attribute, status_);
}

int64_t Descriptor::Get(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                        int64_t count, void* values) const {
  int64_t found = 0;
  const cudnnStatus_t status =
      cudnnBackendGetAttribute(descriptor_, attribute, type, count, &found, values);
  return status == CUDNN_STATUS_SUCCESS ? found : 0;
}

}  // namespace segue::kernels::cudnn
