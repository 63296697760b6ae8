// Descriptors of cuDNN's graph API, and the handle they are finalised with.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/span.h"
#include "segue/status.h"

namespace segue::kernels::cudnn {

// The error of a call of the library; `call` names it and what it was for.
Error CallError(const std::string& call, cudnnStatus_t status);

class Handle {
 public:
  Handle() = default;
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  Status Create();
  Status SetStream(void* stream) const;
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

// The library allocates and loads code while it makes a plan, which a capture elsewhere in the
// process would otherwise make an error.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// One descriptor. The first call that fails is kept, so that setting up reads as a list; Finalize
// reports it.
class Descriptor {
 public:
  // `name` is a literal: what the descriptor is, in errors.
  Descriptor(cudnnBackendDescriptorType_t type, const char* name);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept
      : name_(other.name_),
        descriptor_(std::exchange(other.descriptor_, nullptr)),
        status_(other.status_),
        failed_(other.failed_) {}
  Descriptor& operator=(Descriptor&& other) = delete;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void Set(cudnnBackendAttributeName_t attribute, int64_t value) {
    SetRaw(attribute, CUDNN_TYPE_INT64, 1, &value);
  }
  void Set(cudnnBackendAttributeName_t attribute, Span<const int64_t> values) {
    SetRaw(attribute, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  void Set(cudnnBackendAttributeName_t attribute, float value) {
    SetRaw(attribute, CUDNN_TYPE_FLOAT, 1, &value);
  }
  void Set(cudnnBackendAttributeName_t attribute, cudnnDataType_t value) {
    SetRaw(attribute, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void Set(cudnnBackendAttributeName_t attribute, const Descriptor& value) {
    SetRaw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  void SetRaw(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
              int64_t count, const void* values);
  Status Finalize();

  // How many there are, and the first `count` of them; 0 where the library has none.
  int64_t Get(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
              int64_t count, void* values) const;

  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  const char* name_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
  int failed_ = -1;  // the attribute
};

}  // namespace segue::kernels::cudnn
