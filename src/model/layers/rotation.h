// Angles of rotary position embeddings, in the precision PyTorch computes them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/span.h"

namespace segue::model {

// 1 / theta^(2j / dim) for j = 0 .. dim/2 - 1, each operation rounded to float32.
std::vector<float> InverseFrequencies(double theta, int64_t dim);

// cos[j] and sin[j] of position * inverse_frequencies[j], the product rounded to float32.
void WriteRotation(int64_t position, Span<const float> inverse_frequencies, float* cos, float* sin);

}  // namespace segue::model
