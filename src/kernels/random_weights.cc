#include "kernels/random_weights.h"

#include <string>

#include "kernels/check.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/random/random_weights.h"
#include "kernels/reference.h"

namespace segue::kernels {
namespace {

constexpr char kOp[] = "random weights";

constexpr Kernel<RandomWeightsParams> kRandomWeightsKernels[] = {
    {"cuda", cuda::NeedsCuda<RandomWeightsParams>, cuda::RandomWeights},
    {"ref", NeedsCpu<RandomWeightsParams>, RefRandomWeights},
};

}  // namespace

Status RandomWeights(const RandomWeightsParams& params, const Context& context) {
  if (params.rows < 0 || params.cols < 0 || params.first < 0 ||
      (params.rows > 1 && params.stride < params.cols)) {
    return ArgumentError(kOp, "rows, cols, first or stride",
                         std::to_string(params.rows) + ", " + std::to_string(params.cols) + ", " +
                             std::to_string(params.first) + ", " + std::to_string(params.stride),
                         "0 or more, and a stride of at least cols");
  }
  const int64_t count = params.rows * params.cols;
  SEGUE_RETURN_IF_ERROR(CheckPresent(kOp, "y", params.y, count));
  if (count == 0) return {};
  return Dispatch<RandomWeightsParams>(kOp, kRandomWeightsKernels, params, context);
}

}  // namespace segue::kernels
