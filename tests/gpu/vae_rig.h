// What tests of the picture decoder on a GPU are built from.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "device/gpu_stream.h"
#include "gpu/device_matrix.h"
#include "gpu/device_rig.h"
#include "kernels/convolution_library.h"
#include "kernels/product_library.h"

namespace segue::kernels {

// A stream and the libraries with their workspaces. `reason` is not empty where there is no GPU or
// no library.
struct VaeRig {
  VaeRig() {
    const auto traits = CurrentGpuTraits();
    if (!traits) {
      reason = traits.error().Message();
      return;
    }
    auto made = GpuStream::Create();
    auto product_library = ProductLibrary::Create({.workspace = product_memory.data(),
                                                   .workspace_bytes = product_memory.bytes(),
                                                   .memory = &memory});
    auto convolution_library = ConvolutionLibrary::Create(
        {.workspace = convolution_memory.data(), .workspace_bytes = convolution_memory.bytes()});
    if (!made || !product_library || !convolution_library) {
      reason = !made              ? made.error().Message()
               : !product_library ? product_library.error().Message()
                                  : convolution_library.error().Message();
      return;
    }
    stream = std::make_unique<GpuStream>(std::move(*made));
    products = std::move(*product_library);
    convolutions = std::move(*convolution_library);
  }

  Context On(bool reference_only = false) const {
    return {.stream = stream->stream(),
            .reference_only = reference_only,
            .products = products.get(),
            .convolutions = convolutions.get()};
  }
  // Waits, and returns what the device complains about.
  std::string Finish() const { return Text(stream->Synchronize()); }

  std::string reason;
  CudaMemory memory{0};
  DeviceBytes product_memory{int64_t{32} << 20};
  DeviceBytes convolution_memory{ConvolutionLibrary::kWorkspaceBytes};
  std::unique_ptr<GpuStream> stream;
  std::unique_ptr<ProductLibrary> products;
  std::unique_ptr<ConvolutionLibrary> convolutions;
};

#define SEGUE_SKIP_WITHOUT_VAE(rig) \
  if (!(rig).reason.empty()) GTEST_SKIP() << (rig).reason

}  // namespace segue::kernels
