// Argument checks shared by the operations. They cost a few comparisons; text is built on failure.
#pragma once

#include <cstdint>
#include <string>

#include "device/tensor_view.h"
#include "kernels/registry.h"
#include "segue/status.h"

namespace segue::kernels {

Error ArgumentError(const char* op, const char* argument, std::string got, std::string wanted);

// `view` is [rows, cols] of the context's activation type with rows at least `cols` apart. No data
// is needed for no rows.
Status CheckMatrix(const char* op, const char* argument, const MatrixView& view, int64_t rows,
                   int64_t cols, const Context& context);

// `view` has `count` elements in all and a floating-point dtype.
Status CheckWeight(const char* op, const char* argument, const WeightView& view, int64_t count);

// `pointer` is there, or nothing will be read through it.
Status CheckPresent(const char* op, const char* argument, const void* pointer, int64_t count);

// Every index[i], i < count, lies in [0, limit). On a GPU only that they are there: the host does
// not read them, and kernels clamp what they find.
Status CheckIndices(const char* op, const char* argument, const int32_t* index, int64_t count,
                    int64_t limit, const Context& context);

// Element i of a checkpoint's tensor, widened. Precondition: a floating-point dtype.
float WeightAt(const WeightView& weight, int64_t i);

// What every CPU implementation needs.
template <typename Params>
const char* NeedsCpu(const Params&, const Context& context) {
  return context.stream.device() == DeviceKind::kCpu ? nullptr : "works on host memory only";
}

}  // namespace segue::kernels
