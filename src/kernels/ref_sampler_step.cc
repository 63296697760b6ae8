#include "kernels/reference.h"

namespace segue::kernels {
namespace {

int32_t BitUnlessFinite(const MatrixView& x, int32_t bit, const Context& context) {
  bool all_finite = true;
  (void)RefFinite({.x = x, .all_finite = &all_finite}, context);  // which cannot fail
  return all_finite ? 0 : bit;
}

}  // namespace

Status RefSamplerStep(const SamplerStepParams& params, const Context& context) {
  for (int32_t i = 0; i < params.count; ++i) {
    const SamplerRecord& record = params.records[i];
    const MatrixView prompt = params.velocity.Rows(record.prompt_row, record.rows);
    const MatrixView latents = params.latents.Rows(record.prompt_row, record.rows);
    int32_t bits = BitUnlessFinite(prompt, kPromptVelocityNotFinite, context);
    if (record.negative_row >= 0) {
      const MatrixView negative = params.velocity.Rows(record.negative_row, record.rows);
      bits |= BitUnlessFinite(negative, kNegativeVelocityNotFinite, context);
      SEGUE_RETURN_IF_ERROR(RefGuidance({.cond = prompt,
                                         .negative = negative,
                                         .y = prompt,
                                         .scale = record.guidance,
                                         .rounding = params.rounding},
                                        context));
    }
    SEGUE_RETURN_IF_ERROR(RefEulerStep(
        {.x = latents, .v = prompt, .dt = record.dt, .rounding = params.rounding}, context));
    bits |= BitUnlessFinite(latents, kLatentsNotFinite, context);
    params.not_finite[i] = bits;
    if (record.negative_row < 0) continue;
    SEGUE_RETURN_IF_ERROR(RefActivate({.x = latents,
                                       .y = params.latents.Rows(record.negative_row, record.rows),
                                       .activation = Activation::kNone},
                                      context));
  }
  return {};
}

}  // namespace segue::kernels
