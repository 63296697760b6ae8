// What tests of products on a GPU are built from.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "device/gpu_stream.h"
#include "gpu/device_rig.h"
#include "kernels/product_library.h"

namespace segue::kernels {

// For names in reports.
inline void PrintTo(const ProductForm& form, std::ostream* out) { *out << form.ToString(); }

inline uint32_t FreshSeed() { return std::random_device()(); }

// A library with its workspace. Skipping is up to the test: `reason` is not empty where there is no
// GPU or no library.
struct ProductRig {
  explicit ProductRig(std::string cache = "", int64_t workspace = int64_t{32} << 20,
                      DeviceMemory* scratch = nullptr);
  // Waits for the stream and compares with "".
  void Multiply(const ProductParams& params);

  std::string reason;
  CudaMemory memory{0};
  std::unique_ptr<DeviceBytes> workspace_memory;
  std::unique_ptr<GpuStream> stream;
  std::unique_ptr<ProductLibrary> products;
};

#define SEGUE_SKIP_WITHOUT_PRODUCTS(rig) \
  if (!(rig).reason.empty()) GTEST_SKIP() << (rig).reason

// Operands of one form for up to `rows` rows, contiguous. Even rows of x cancel against the weight,
// so that their y shows the order of summation (kernels/cuda/cublaslt/comparison.h).
struct ProductOperands {
  ProductOperands(const ProductForm& product_form, int64_t most_rows, uint32_t seed);
  // y is poisoned first.
  ProductParams Params(int64_t rows, const DeviceBytes& y) const;

  ProductForm form;
  int64_t rows;
  DeviceBytes x;
  DeviceBytes weight;
  DeviceBytes bias;
};

// Elements of y [rows, cols] that differ from the first rows of `wanted` [.., cols] in any bit.
int64_t DifferentElements(const DeviceBytes& wanted, const DeviceBytes& y, const ProductForm& form,
                          int64_t rows);

// Expects elements of y [rows, n], contiguous, of a few rows and all columns c with c % step == 0
// to be within rounding and `relative` (of the sum of the terms' sizes) of the product in float64.
void ExpectNearFloat64(const ProductOperands& operands, const DeviceBytes& y, int64_t rows,
                       int64_t step, float scale = 1.0f);

}  // namespace segue::kernels
