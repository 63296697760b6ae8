// The functions of cuDNN that its frontend headers call, forwarded to the library found at run
// time. Hidden, so that neither the library itself nor a program that brings another copy of it
// ever meets ours.
#include "kernels/cuda/cudnn/library.h"

#include <cudnn.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <cstdlib>
#include <string>

namespace segue::kernels {
namespace {

constexpr char kSoname[] = "libcudnn.so.9";

struct Library {
  void* handle = nullptr;
  std::string tried;  // when it was not found
};

Library Open() {
  const char* chosen = std::getenv("SEGUE_CUDNN");
  const bool by_name = chosen != nullptr && *chosen != '\0';
  const char* path = by_name ? chosen : kSoname;
  Library library;
  library.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library.handle != nullptr) return library;
  const char* error = dlerror();
  library.tried = std::string(by_name ? "SEGUE_CUDNN=" : "SEGUE_CUDNN is not set; ") + path + ": " +
                  (error == nullptr ? "not found" : error);
  return library;
}

// Opened once and never closed: the library keeps threads and atexit handlers.
const Library& TheLibrary() {
  static const Library library = Open();
  return library;
}

template <class Function>
Function* Find(const char* name) {
  if (TheLibrary().handle == nullptr) return nullptr;
  return reinterpret_cast<Function*>(dlsym(TheLibrary().handle, name));
}

template <class Function, class... Arguments>
cudnnStatus_t Forward(Function* function, Arguments... arguments) {
  return function == nullptr ? CUDNN_STATUS_NOT_INITIALIZED : function(arguments...);
}

}  // namespace

Status LoadCudnn() {
  const Library& library = TheLibrary();
  const bool complete = Find<decltype(cudnnCreate)>("cudnnCreate") != nullptr &&
                        Find<decltype(cudnnBackendExecute)>("cudnnBackendExecute") != nullptr;
  if (complete) return {};
  return Error{.code = ErrorCode::kUnsupported,
               .operation = "load cuDNN",
               .argument = "",
               .got = library.tried.empty() ? "a library without cuDNN's functions" : library.tried,
               .wanted = "cuDNN 9, on the loader's path or named by SEGUE_CUDNN"};
}

}  // namespace segue::kernels

#define SEGUE_HIDDEN __attribute__((visibility("hidden")))
// Defines a function of cuDNN: its name, its parameters, its arguments.
#define SEGUE_FORWARD(name, parameters, ...)                                  \
  SEGUE_HIDDEN cudnnStatus_t name parameters {                                \
    static const auto function = segue::kernels::Find<decltype(name)>(#name); \
    return segue::kernels::Forward(function, __VA_ARGS__);                    \
  }
// Code that the frontend compiles for other operations; ours never asks for any.
#define SEGUE_NO_COMPILER(name, parameters) \
  SEGUE_HIDDEN nvrtcResult name parameters { return NVRTC_ERROR_COMPILATION; }

extern "C" {

SEGUE_FORWARD(cudnnCreate, (cudnnHandle_t * handle), handle)
SEGUE_FORWARD(cudnnDestroy, (cudnnHandle_t handle), handle)
SEGUE_FORWARD(cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), handle, stream)
SEGUE_FORWARD(cudnnGetStream, (cudnnHandle_t handle, cudaStream_t* stream), handle, stream)
SEGUE_FORWARD(cudnnBackendCreateDescriptor,
              (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor), type,
              descriptor)
SEGUE_FORWARD(cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), descriptor)
SEGUE_FORWARD(cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), descriptor)
SEGUE_FORWARD(cudnnBackendSetAttribute,
              (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t count, const void* elements),
              descriptor, name, type, count, elements)
SEGUE_FORWARD(cudnnBackendGetAttribute,
              (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count, void* elements),
              descriptor, name, type, wanted, count, elements)
SEGUE_FORWARD(cudnnBackendExecute,
              (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack),
              handle, plan, pack)

// Of convolutions; a compiler that drops unused code does without.
SEGUE_FORWARD(cudnnCreateFilterDescriptor, (cudnnFilterDescriptor_t * descriptor), descriptor)
SEGUE_FORWARD(cudnnDestroyFilterDescriptor, (cudnnFilterDescriptor_t descriptor), descriptor)
SEGUE_FORWARD(cudnnSetFilterNdDescriptor,
              (cudnnFilterDescriptor_t descriptor, cudnnDataType_t type, cudnnTensorFormat_t format,
               int dims, const int* sizes),
              descriptor, type, format, dims, sizes)
SEGUE_FORWARD(cudnnReorderFilterAndBias,
              (cudnnHandle_t handle, const cudnnFilterDescriptor_t descriptor,
               cudnnReorderType_t order, const void* filter, void* filter_to, int reorder_bias,
               const void* bias, void* bias_to),
              handle, descriptor, order, filter, filter_to, reorder_bias, bias, bias_to)

SEGUE_HIDDEN size_t cudnnGetVersion() {
  static const auto function = segue::kernels::Find<decltype(cudnnGetVersion)>("cudnnGetVersion");
  return function == nullptr ? 0 : function();
}
SEGUE_HIDDEN const char* cudnnGetErrorString(cudnnStatus_t status) {
  static const auto function =
      segue::kernels::Find<decltype(cudnnGetErrorString)>("cudnnGetErrorString");
  return function == nullptr ? "the library was not found" : function(status);
}
SEGUE_HIDDEN void cudnnGetLastErrorString(char* message, size_t size) {
  static const auto function =
      segue::kernels::Find<decltype(cudnnGetLastErrorString)>("cudnnGetLastErrorString");
  if (function != nullptr) function(message, size);
}

SEGUE_NO_COMPILER(nvrtcCreateProgram, (nvrtcProgram*, const char*, const char*, int,
                                       const char* const*, const char* const*))
SEGUE_NO_COMPILER(nvrtcDestroyProgram, (nvrtcProgram*))
SEGUE_NO_COMPILER(nvrtcCompileProgram, (nvrtcProgram, int, const char* const*))
SEGUE_NO_COMPILER(nvrtcGetCUBIN, (nvrtcProgram, char*))
SEGUE_NO_COMPILER(nvrtcGetCUBINSize, (nvrtcProgram, size_t*))
SEGUE_NO_COMPILER(nvrtcGetProgramLog, (nvrtcProgram, char*))
SEGUE_NO_COMPILER(nvrtcGetProgramLogSize, (nvrtcProgram, size_t*))

}  // extern "C"
