// The plain references: one scalar loop an operation, written to be read. They define the results
// that the fast implementations must reproduce bit for bit.
#pragma once

#include "kernels/activation.h"
#include "kernels/add.h"
#include "kernels/channel_norm.h"
#include "kernels/conv2d.h"
#include "kernels/copy.h"
#include "kernels/embedding.h"
#include "kernels/euler_step.h"
#include "kernels/finite.h"
#include "kernels/gate_residual.h"
#include "kernels/guidance.h"
#include "kernels/latents.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/pack.h"
#include "kernels/pack_index.h"
#include "kernels/pixels.h"
#include "kernels/random_weights.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/row_index.h"
#include "kernels/sampler_step.h"
#include "kernels/timestep_embedding.h"

namespace segue::kernels {

Status RefActivate(const ActivationParams& params, const Context& context);
Status RefAdd(const AddParams& params, const Context& context);
Status RefChannelNorm(const ChannelNormParams& params, const Context& context);
Status RefConv2d(const Conv2dParams& params, const Context& context);
Status RefCopyBytes(const CopyParams& params, const Context& context);
Status RefEmbedding(const EmbeddingParams& params, const Context& context);
Status RefEulerStep(const EulerStepParams& params, const Context& context);
Status RefFinite(const FiniteParams& params, const Context& context);
Status RefGateResidual(const GateResidualParams& params, const Context& context);
Status RefGuidance(const GuidanceParams& params, const Context& context);
Status RefLayerNorm(const LayerNormParams& params, const Context& context);
Status RefLinear(const LinearParams& params, const Context& context);
Status RefPackIndex(const PackIndexParams& params, const Context& context);
Status RefPackLatents(const PackLatentsParams& params, const Context& context);
Status RefPackRows(const PackParams& params, const Context& context);
Status RefPixels(const PixelsParams& params, const Context& context);
Status RefQkNormRope(const QkNormRopeParams& params, const Context& context);
Status RefRandomWeights(const RandomWeightsParams& params, const Context& context);
Status RefRmsNorm(const RmsNormParams& params, const Context& context);
Status RefRopeHalf(const RopeHalfParams& params, const Context& context);
Status RefRowIndex(const RowIndexParams& params, const Context& context);
Status RefSamplerStep(const SamplerStepParams& params, const Context& context);
Status RefScatterRows(const PackParams& params, const Context& context);
Status RefSiluMul(const SiluMulParams& params, const Context& context);
Status RefTimestepEmbedding(const TimestepEmbeddingParams& params, const Context& context);
Status RefUnpackLatents(const UnpackLatentsParams& params, const Context& context);

}  // namespace segue::kernels
