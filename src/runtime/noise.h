// The initial noise of a request, from its seed.
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is counter
// based: element i depends on the seed and i alone, so the same seed gives the same noise on every
// machine, with any number of threads, and for every rank of a group. The step from bits to a
// normal variate uses only IEEE additions, products, quotients and square roots, because the
// logarithms and sines of C libraries differ in their last bits.
#pragma once

#include <array>
#include <cstdint>

#include "base/span.h"

namespace segue::runtime {

// One block of the generator: ten rounds over a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// values[i] ~ N(0, 1). Block b = i / 4 has counter {b low, b high, 0, 0} and the seed as key; its
// words (x0, x1) and (x2, x3) each give two variates by Box-Muller, the cosine one first:
// sqrt(-2 ln((x0 + 1/2) / 2^32)) * {cos, sin}(2 pi x1 / 2^32).
void FillGaussian(uint64_t seed, Span<float> values);

}  // namespace segue::runtime
