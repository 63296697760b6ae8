// Convolutions on a GPU, by cuDNN.
//
// A shape has one plan: the library's first suggestion that is deterministic and sums products
// directly (no Winograd or Fourier transform, no conversion, no reduced sums). Nothing is timed, so
// the choice, and with it the bytes, follow from the shape, the library's version and the kind of
// GPU alone.
//
// The library is loaded when first asked for (SEGUE_CUDNN names it, else libcudnn.so.9 of the
// system), so that a program starts without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/stream.h"
#include "kernels/conv2d.h"
#include "segue/status.h"

namespace segue::kernels {

// Calls from several threads run one after another. They share the workspace, so all streams they
// enqueue on must be ordered one after another too.
class ConvolutionLibrary {
 public:
  struct Settings {
    // Device memory that outlives the library, 256-byte aligned. Plans that want more are not
    // chosen, so that bytes follow from it too: give every engine the same.
    void* workspace = nullptr;
    int64_t workspace_bytes = 0;
  };
  // For pictures up to 1664 x 1664: the last convolution, to three channels, pads its output to
  // eight inside the workspace. Others want a few megabytes at most.
  static constexpr int64_t kWorkspaceBytes = int64_t{48} << 20;

  // For the device that is current. Errors (kUnsupported): a build without cuDNN's headers, no
  // library and where it was looked for, a device that it does not take.
  static Result<std::unique_ptr<ConvolutionLibrary>> Create(const Settings& settings);
  ~ConvolutionLibrary();
  ConvolutionLibrary(const ConvolutionLibrary&) = delete;
  ConvolutionLibrary& operator=(const ConvolutionLibrary&) = delete;

  // Null, or why it does not serve these parameters, a text that lives as long as the library.
  // Makes the shape's plan the first time it is seen, which may compile a kernel (some 0.1 s) and
  // allocates outside the workspace; later calls, and Convolve, do neither. So a shape runs once
  // before it is captured.
  const char* Rejects(const Conv2dParams& params);

  // Enqueues a convolution; may be captured. Precondition: Rejects gives null.
  Status Convolve(const Conv2dParams& params, const Stream& stream);

  // The plans made so far, for reports.
  struct Choice {
    std::string shape;  // "1024 x 1024, 96 to 96 channels, 3 x 3, residual"
    std::string plan;   // in the library's words, or why there is none
    int64_t workspace_bytes = 0;
  };
  std::vector<Choice> Choices() const;

 private:
  class Impl;
  explicit ConvolutionLibrary(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace segue::kernels
