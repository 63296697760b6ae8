// What the fuzzers call, and the regression test of their corpora: pure functions of bytes. Each
// ends the process when an invariant does not hold, which is what a fuzzer looks for.
#pragma once

#include <cstdint>

#include "base/span.h"

namespace segue::fuzz {

// A whole safetensors file.
void Safetensors(Span<const uint8_t> input);
// A JSON file of a checkpoint: the first byte chooses which, the rest is its text.
void Json(Span<const uint8_t> input);
// A prompt, for a small tokenizer.
void Tokenizer(Span<const uint8_t> input);
// A tokenizer.json.
void TokenizerJson(Span<const uint8_t> input);

}  // namespace segue::fuzz
