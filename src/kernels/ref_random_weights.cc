#include <algorithm>

#include "base/dtype.h"
#include "kernels/reference.h"

namespace segue::kernels {

// Elements are independent, so threads take blocks of them.
Status RefRandomWeights(const RandomWeightsParams& params, const Context& context) {
  constexpr int64_t kBlock = 1 << 16;
  const float scale = params.deviation / kRandomWeightDeviation;
  const int64_t count = params.rows * params.cols;
  context.stream.pool().ForEach((count + kBlock - 1) / kBlock, [&](int64_t block, int) {
    for (int64_t i = block * kBlock; i < std::min(count, (block + 1) * kBlock); ++i) {
      const int64_t element = params.first + i / params.cols * params.stride + i % params.cols;
      const int32_t sum = RandomWeightSum(params.key, static_cast<uint64_t>(element));
      params.y[i] = FloatToBF16(static_cast<float>(sum) * scale + params.mean);
    }
  });
  return {};
}

}  // namespace segue::kernels
