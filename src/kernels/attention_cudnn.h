// Forward attention by cuDNN, NVIDIA's library: for head sizes and GPUs that our own kernel does
// not serve, and as the peer it is measured beside.
//
// The library is loaded when first asked for (SEGUE_CUDNN names it, else libcudnn.so.9 of the
// system), so that a program starts without it. It needs lengths on the host: a graph is built once
// for a shape and then enqueued any number of times, inside a capture or outside.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/stream.h"
#include "segue/attention.h"
#include "segue/status.h"

namespace segue::kernels {

// Strides in elements: row r of head h of sequence b begins at data + b * batch + h * head + r *
// row.
struct CudnnStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;

  bool operator==(const CudnnStrides&) const = default;
};

// All that a graph depends on. Strides are multiples of 8 elements.
struct AttentionCudnnShape {
  int64_t batch = 1;
  int64_t q_rows = 0;   // > 0
  int64_t kv_rows = 0;  // > 0; causal: at least q_rows, unless `lengths`
  int32_t q_heads = 0;
  int32_t kv_heads = 0;  // divides q_heads
  int32_t head_dim = 0;  // a multiple of 8, at most 256
  CudnnStrides q;
  CudnnStrides k;
  CudnnStrides v;
  CudnnStrides o;
  float softmax_scale = 0.0f;
  bool causal = false;  // aligned bottom right
  bool lse = false;     // whether AttentionCudnnTensors::lse is written
  bool lengths =
      false;  // whether sequences are shorter than q_rows and kv_rows: q_lengths, kv_lengths
  attention::ElementType element_type = attention::ElementType::kBFloat16;

  bool operator==(const AttentionCudnnShape&) const = default;
};

// Device memory, 16-byte aligned.
struct AttentionCudnnTensors {
  const void* q = nullptr;              // [batch, q_rows, q_heads, head_dim] by strides
  const void* k = nullptr;              // [batch, kv_rows, kv_heads, head_dim]
  const void* v = nullptr;              // [batch, kv_rows, kv_heads, head_dim]
  void* o = nullptr;                    // [batch, q_rows, q_heads, head_dim], written
  float* lse = nullptr;                 // [batch, q_heads, q_rows], natural logarithm
  const int32_t* q_lengths = nullptr;   // [batch], each at least 1
  const int32_t* kv_lengths = nullptr;  // [batch], each at least 1
};

// "9.19.0" of the library that is loaded. Error (kUnsupported): this build has no cuDNN headers, or
// there is no library; what was tried stands in it.
Result<std::string> CudnnVersion();

// A graph built for one shape on the calling thread's current device. Enqueuing on several streams
// at once needs a workspace each.
class AttentionCudnn {
 public:
  // Takes some tenths of a second, since the library compiles code for the shape. Legal while
  // another stream of the thread is captured. Several may be made at once, on threads of their own.
  // Errors: no library; a shape that it does not take, in its own words.
  static Result<std::unique_ptr<AttentionCudnn>> Create(const AttentionCudnnShape& shape);
  AttentionCudnn(const AttentionCudnn&) = delete;
  AttentionCudnn& operator=(const AttentionCudnn&) = delete;
  virtual ~AttentionCudnn() = default;

  // Bytes of device memory, aligned to 256; often 0.
  virtual int64_t workspace_bytes() const = 0;
  // Enqueues o = softmax(scale q k^T) v. Errors: pointers that are not aligned; what the library
  // refuses.
  virtual Status Run(const AttentionCudnnTensors& tensors, void* workspace,
                     const Stream& stream) const = 0;

 protected:
  AttentionCudnn() = default;
};

}  // namespace segue::kernels
