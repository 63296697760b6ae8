// Linked instead of the CUDA row and elementwise kernels where the build has no CUDA.
#include "kernels/cuda/rows/rows.h"

#include "kernels/cuda/no_cuda.h"

namespace segue::kernels::cuda {

Status RefActivate(const ActivationParams&, const Context&) { return NoCuda("activate"); }
Status RefAdd(const AddParams&, const Context&) { return NoCuda("add"); }
Status RefEmbedding(const EmbeddingParams&, const Context&) { return NoCuda("embedding"); }
Status RefEulerStep(const EulerStepParams&, const Context&) { return NoCuda("euler_step"); }
Status RefFinite(const FiniteParams&, const Context&) { return NoCuda("finite"); }
Status RefGateResidual(const GateResidualParams&, const Context&) {
  return NoCuda("gate_residual");
}
Status RefGuidance(const GuidanceParams&, const Context&) { return NoCuda("guidance"); }
Status RefLayerNorm(const LayerNormParams&, const Context&) { return NoCuda("layer_norm"); }
Status RefPackLatents(const PackLatentsParams&, const Context&) { return NoCuda("pack_latents"); }
Status RefPixels(const PixelsParams&, const Context&) { return NoCuda("pixels"); }
Status RefQkNormRope(const QkNormRopeParams&, const Context&) { return NoCuda("qk_norm_rope"); }
Status RefRmsNorm(const RmsNormParams&, const Context&) { return NoCuda("rms_norm"); }
Status RefRopeHalf(const RopeHalfParams&, const Context&) { return NoCuda("rope_half"); }
Status RefRowIndex(const RowIndexParams&, const Context&) { return NoCuda("row_index"); }
Status RefSamplerStep(const SamplerStepParams&, const Context&) { return NoCuda("sampler_step"); }
Status RefSiluMul(const SiluMulParams&, const Context&) { return NoCuda("silu_mul"); }
Status RefTimestepEmbedding(const TimestepEmbeddingParams&, const Context&) {
  return NoCuda("timestep_embedding");
}
Status RefUnpackLatents(const UnpackLatentsParams&, const Context&) {
  return NoCuda("unpack_latents");
}

Status Activate(const ActivationParams&, const Context&) { return NoCuda("activate"); }
Status ActivateStreams(const ActivationStreams&, const Context&) { return NoCuda("activate"); }
Status LayerNorm(const LayerNormParams&, const Context&) { return NoCuda("layer_norm"); }
Status ModulatedNorm(const ModulatedNormParams&, const Context&) {
  return NoCuda("modulated_norm");
}
Status PrepareHeads(const HeadsParams&, const Context&) { return NoCuda("prepare_heads"); }
Status RmsNorm(const RmsNormParams&, const Context&) { return NoCuda("rms_norm"); }
Status RopeHalf(const RopeHalfParams&, const Context&) { return NoCuda("rope_half"); }
Status SamplerStep(const SamplerStepParams&, const Context&) { return NoCuda("sampler_step"); }
Status SiluMul(const SiluMulParams&, const Context&) { return NoCuda("silu_mul"); }

}  // namespace segue::kernels::cuda
