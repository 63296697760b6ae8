// Causal attention of the text encoder's prompts, each of which sees itself only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention/attention.h"
#include "base/span.h"
#include "model/layers/forward_context.h"
#include "model/layers/placement.h"
#include "model/layers/planned_attention.h"
#include "model/text_encoder/config.h"

namespace segue::model {

// Of one forward: the same rows in every layer.
class TextAttention {
 public:
  // Bytes of workspace for prompts of so many rows.
  static int64_t WorkspaceBytes(const TextEncoderConfig& config, const Placement& placement,
                                Span<const int64_t> lengths);

  // qkv [rows, q | k | v] and output [rows, q] hold the prompts one after another.
  // Errors: no back end for the device.
  static Result<TextAttention> Create(const TextEncoderConfig& config, int ranks,
                                      Span<const int64_t> lengths, const MatrixView& qkv,
                                      const MatrixView& output, const Stream& stream);

  // To be called once before Run. `workspace` holds WorkspaceBytes; on the CPU there are none.
  Status Prepare(void* workspace, Span<const int64_t> lengths, const Stream& stream);
  Status Run(const ForwardContext& context) const;

 private:
  attention::Options options_;
  std::vector<attention::Sequence> sequences_;  // on the CPU
  std::optional<PlannedAttention> planned_;     // on a GPU
  attention::TensorSet tensors_;
};

}  // namespace segue::model
