// The CUDA implementations of row and elementwise operations, without CUDA headers.
//
// Ref...: one plain kernel an operation, the definition of its bytes on a GPU. The others are
// vectors of 16 bytes and whole rows in one pass, and give the same bytes: sums and formulas are
// device functions that both use (cuda/device/row_sum.h, row_math.h).
//
// All enqueue on the context's stream, allocate nothing and wait for nothing. Rows without elements
// are nothing to do. An index out of range is taken for the nearest row. A build without CUDA links
// no_rows.cc.
#pragma once

#include "kernels/activation.h"
#include "kernels/add.h"
#include "kernels/check.h"
#include "kernels/cuda/device_check.h"
#include "kernels/embedding.h"
#include "kernels/euler_step.h"
#include "kernels/finite.h"
#include "kernels/gate_residual.h"
#include "kernels/guidance.h"
#include "kernels/heads.h"
#include "kernels/latents.h"
#include "kernels/layer_norm.h"
#include "kernels/modulated_norm.h"
#include "kernels/pixels.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/row_index.h"
#include "kernels/sampler_step.h"
#include "kernels/timestep_embedding.h"

namespace segue::kernels::cuda {

// Preconditions of all: what the operation of the same name checks, and null from its Rejects.
Status RefActivate(const ActivationParams& params, const Context& context);
Status RefAdd(const AddParams& params, const Context& context);
Status RefEmbedding(const EmbeddingParams& params, const Context& context);
Status RefEulerStep(const EulerStepParams& params, const Context& context);
Status RefFinite(const FiniteParams& params, const Context& context);
Status RefGateResidual(const GateResidualParams& params, const Context& context);
Status RefGuidance(const GuidanceParams& params, const Context& context);
Status RefLayerNorm(const LayerNormParams& params, const Context& context);
Status RefPackLatents(const PackLatentsParams& params, const Context& context);
Status RefPixels(const PixelsParams& params, const Context& context);
Status RefQkNormRope(const QkNormRopeParams& params, const Context& context);
Status RefRmsNorm(const RmsNormParams& params, const Context& context);
Status RefRopeHalf(const RopeHalfParams& params, const Context& context);
Status RefRowIndex(const RowIndexParams& params, const Context& context);
Status RefSamplerStep(const SamplerStepParams& params, const Context& context);
Status RefSiluMul(const SiluMulParams& params, const Context& context);
Status RefTimestepEmbedding(const TimestepEmbeddingParams& params, const Context& context);
Status RefUnpackLatents(const UnpackLatentsParams& params, const Context& context);

// Null, or why the plain kernel cannot serve; NeedsCuda says it for the others.
const char* RejectsEmbedding(const EmbeddingParams& params, const Context& context);
const char* RejectsQkNormRope(const QkNormRopeParams& params, const Context& context);
const char* RejectsRopeHalf(const RopeHalfParams& params, const Context& context);
const char* RejectsRowIndex(const RowIndexParams& params, const Context& context);
const char* RejectsUnpackLatents(const UnpackLatentsParams& params, const Context& context);

Status Activate(const ActivationParams& params, const Context& context);
Status ActivateStreams(const ActivationStreams& params, const Context& context);
Status LayerNorm(const LayerNormParams& params, const Context& context);
Status ModulatedNorm(const ModulatedNormParams& params, const Context& context);
Status PrepareHeads(const HeadsParams& params, const Context& context);
Status RmsNorm(const RmsNormParams& params, const Context& context);
Status RopeHalf(const RopeHalfParams& params, const Context& context);
Status SamplerStep(const SamplerStepParams& params, const Context& context);
Status SiluMul(const SiluMulParams& params, const Context& context);

// Null, or why the fast kernel leaves these parameters to the plain one (rows/rejects.cc).
const char* RejectsActivate(const ActivationParams& params, const Context& context);
const char* RejectsActivateStreams(const ActivationStreams& params, const Context& context);
const char* RejectsFastLayerNorm(const LayerNormParams& params, const Context& context);
const char* RejectsModulatedNorm(const ModulatedNormParams& params, const Context& context);
const char* RejectsPrepareHeads(const HeadsParams& params, const Context& context);
const char* RejectsFastRmsNorm(const RmsNormParams& params, const Context& context);
const char* RejectsFastRopeHalf(const RopeHalfParams& params, const Context& context);
const char* RejectsFastSamplerStep(const SamplerStepParams& params, const Context& context);
const char* RejectsSiluMul(const SiluMulParams& params, const Context& context);

}  // namespace segue::kernels::cuda
