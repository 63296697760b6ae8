// One convolution of a fixed shape, as cuDNN runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/cuda/cudnn/descriptor.h"
#include "segue/status.h"

namespace segue::kernels::cudnn {

// y = round(round(conv(x) + bias) + residual), bfloat16 maps in NHWC, weights [out, k, k, in].
struct ConvolutionShape {
  int64_t height = 0;  // of x and of y
  int64_t width = 0;
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t kernel = 3;    // 1 or 3, padded by kernel / 2
  int64_t x_stride = 0;  // elements between pixels
  int64_t y_stride = 0;
  int64_t residual_stride = 0;  // 0: no residual
  bool has_bias = false;
  DType bias_type = DType::kBF16;

  bool operator==(const ConvolutionShape&) const = default;
};

struct ConvolutionTensors {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
};

class ConvolutionPlan {
 public:
  // The operations of a shape; engines are found for them.
  class Graph;

  // The plan of the library's first suggestion that is deterministic, computes every product and
  // no transform of them, and needs at most `workspace_limit` bytes. That follows from the library
  // and the device alone: nothing is timed. Errors (kUnsupported): none is.
  static Result<std::unique_ptr<ConvolutionPlan>> Create(const Handle& handle,
                                                         const ConvolutionShape& shape,
                                                         int64_t workspace_limit);
  // Every suggestion that qualifies, in the library's order; at most `limit`.
  static Result<std::vector<std::unique_ptr<ConvolutionPlan>>> CreateAll(
      const Handle& handle, const ConvolutionShape& shape, int64_t workspace_limit, size_t limit);

  ~ConvolutionPlan();
  ConvolutionPlan(const ConvolutionPlan&) = delete;
  ConvolutionPlan& operator=(const ConvolutionPlan&) = delete;

  int64_t workspace_bytes() const { return workspace_bytes_; }
  // The engine and its settings, in the library's words.
  const std::string& description() const { return description_; }

  // Enqueues it on the handle's stream.
  Status Run(const Handle& handle, const ConvolutionTensors& tensors, void* workspace) const;

 private:
  ConvolutionPlan(std::shared_ptr<const Graph> graph, Descriptor plan);

  std::shared_ptr<const Graph> graph_;
  Descriptor plan_;
  int64_t workspace_bytes_ = 0;
  std::string description_;
};

}  // namespace segue::kernels::cudnn
