// Qwen2's byte-level BPE tokenizer and the prompt template of the Qwen-Image pipeline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "segue/status.h"

namespace segue::model {

struct TokenizerFiles;  // model/tokenizer/tokenizer_files.h

// Rows of hidden states that the pipeline drops from the front, and the ids it keeps behind the
// prompt: diffusers' QwenImagePipeline hard-codes the former (prompt_template_encode_start_idx).
inline constexpr int kTemplatePrefixIds = 34;
inline constexpr int kTemplateSuffixIds = 5;
// The pipeline truncates prompts at this many ids, not counting the prefix, ...
inline constexpr int kTokenizerMaxLength = 1024;
// ... and a call of the pipeline then keeps at most this many rows of text unless told otherwise.
inline constexpr int kDefaultMaxSequenceLength = 512;

// A prompt inside the template, as ids.
struct PromptIds {
  // Template prefix, prompt, suffix; cut behind the last row that is kept. (The encoder is causal,
  // so ids behind it could not change a kept row.)
  std::vector<int32_t> ids;
  int dropped = kTemplatePrefixIds;  // rows of the encoder's output to drop from the front
  int rows = 0;                      // rows kept: ids.size() - dropped
  bool truncated = false;            // ids of the prompt or of the suffix were lost
  int untruncated_rows = 0;          // rows there would have been
};

// Const after loading; any number of threads may encode.
class Tokenizer {
 public:
  // Reads tokenizer.json, or vocab.json with merges.txt and the added tokens of
  // tokenizer_config.json or added_tokens.json. Errors name file and field, among them a
  // tokenizer.json whose normalizer, splitting pattern or model is not Qwen2's (kUnsupported).
  static Result<Tokenizer> Load(const std::string& directory);
  // The same from files read already.
  static Result<Tokenizer> FromFiles(const TokenizerFiles& files);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Ids of a text, nothing added. Added tokens ("<|im_end|>") are recognised wherever they occur.
  // Error (kInvalidArgument) with the offset of the first byte that is not UTF-8.
  Result<std::vector<int32_t>> Encode(std::string_view text) const;

  // The prompt within the pipeline's template, tokenised as one string and truncated as the
  // pipeline does: at 1024 + 34 ids, then at `max_sequence_length` kept rows. Errors: not UTF-8,
  // max_sequence_length outside 1..1024.
  Result<PromptIds> EncodePrompt(std::string_view prompt,
                                 int max_sequence_length = kDefaultMaxSequenceLength) const;

  // Error (kUnsupported) unless the template is 34 ids before an ordinary prompt and 5 after it.
  Status CheckTemplate() const;

  // One more than the largest id.
  int32_t id_bound() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace segue::model
