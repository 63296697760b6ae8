#include "model/layers/summed_norm.h"

#include <array>

#include "kernels/activation.h"

namespace segue::model {

Status SumAndNormalise(const kernels::ModulatedNormParams& params, const ForwardContext& context) {
  const comm::Communicator& ranks = *context.communicator;
  const bool apart = context.rounding != kernels::Rounding::kNone &&
                     context.kernels.activation_type() != DType::kBF16;
  if (!apart) return ranks.SumAndModulatedNorm(params, context.kernels);
  std::array<comm::SumPart, comm::kMaxSumParts> sums;
  std::array<kernels::ModulatedNormStream, kernels::kMaxNormStreams> streams;
  const size_t count = params.streams.size();
  for (size_t i = 0; i < count; ++i) {
    streams[i] = params.streams[i];
    sums[i] = {.partial = streams[i].branch, .sum = streams[i].y};
    streams[i].branch = streams[i].y;
  }
  SEGUE_RETURN_IF_ERROR(
      ranks.AllReduceSum(Span<const comm::SumPart>(sums.data(), count), context.kernels));
  for (size_t i = 0; i < count; ++i) {
    SEGUE_RETURN_IF_ERROR(kernels::Activate({.x = streams[i].y,
                                             .y = streams[i].y,
                                             .activation = kernels::Activation::kNone,
                                             .rounding = context.rounding},
                                            context.kernels));
  }
  kernels::ModulatedNormParams rest = params;
  rest.streams = {streams.data(), count};
  return kernels::ModulatedNorm(rest, context.kernels);
}

}  // namespace segue::model
