// Sizes of the text encoder, free of any file format.
#pragma once

#include <cstdint>

#include "segue/status.h"

namespace segue::model {

// The language part of Qwen2_5_VLForConditionalGeneration (text_encoder/config.json, flat as
// transformers 4 writes it or nested under text_config as transformers 5 does). The
// defaults are transformers' own, which leaves values equal to them out of the file.
struct TextEncoderConfig {
  int64_t hidden_size = 8192;
  int64_t intermediate_size = 29568;
  int64_t num_hidden_layers = 80;
  int64_t num_attention_heads = 64;
  int64_t num_key_value_heads = 8;
  int64_t vocab_size = 152064;
  int64_t max_position_embeddings = 32768;
  double rms_norm_eps = 1e-5;
  // Base of the rotary embedding. The three mrope sections carry equal positions for text, so
  // they reduce to one plain rotation over head_dim() and are only checked, not kept.
  double rope_theta = 1000000.0;
  bool tie_word_embeddings = false;

  int64_t head_dim() const { return hidden_size / num_attention_heads; }

  // Error unless every size is positive and bounded, heads divide hidden_size, key/value heads
  // divide heads and head_dim() is even.
  Status Validate() const;
};

}  // namespace segue::model
