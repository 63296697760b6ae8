// Weights out of a seed: what a model of any size is made of when only its speed and its memory
// matter. An element follows from the tensor's key and its own index alone, so a slice holds the
// whole tensor's values, and host and device make the same bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/registry.h"
#include "segue/status.h"

#if defined(__CUDACC__)
#define SEGUE_RANDOM_FUNCTION __host__ __device__
#else
#define SEGUE_RANDOM_FUNCTION
#endif

namespace segue::kernels {

// The sum of four 16-bit numbers of a hash, centred: an integer in [-131070, 131070], so exact in
// float32, whose distribution is close to normal (that of four equal ones; 3.46 deviations at most)
// with a deviation of 65536 / sqrt(3). The hash is SplitMix64 (Steele, Lea, Flood 2014) of a
// counter.
SEGUE_RANDOM_FUNCTION constexpr int32_t RandomWeightSum(uint64_t key, uint64_t index) {
  uint64_t hash = key + (index + 1) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  hash ^= hash >> 31;
  const uint32_t low = static_cast<uint32_t>(hash);
  const uint32_t high = static_cast<uint32_t>(hash >> 32);
  const uint32_t sum = (low & 0xffffu) + (low >> 16) + (high & 0xffffu) + (high >> 16);
  return static_cast<int32_t>(sum) - 131070;
}
inline constexpr float kRandomWeightDeviation = 37837.2275f;  // 65536 / sqrt(3)

// A tensor's key: FNV-1a of its name, begun from a basis that the seed changes.
constexpr uint64_t RandomWeightKey(uint64_t seed, std::string_view name) {
  uint64_t key = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u);
  for (const char c : name) key = (key ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return key;
}

struct RandomWeightsParams {
  uint64_t key = 0;
  float mean = 0;
  float deviation = 1;
  // y[i, j] is element first + i * stride + j of the tensor.
  int64_t first = 0;
  int64_t stride = 0;  // at least cols where there are several rows
  int64_t rows = 0;
  int64_t cols = 0;
  uint16_t* y = nullptr;  // [rows, cols] bfloat16, contiguous; fastest where it is aligned to 16
};

// y = bf16(fl(fl(sum * fl(deviation / kRandomWeightDeviation)) + mean)). On a GPU it is enqueued.
// Errors: sizes that are negative, rows that overlap, a null y; no implementation for
// the device.
Status RandomWeights(const RandomWeightsParams& params, const Context& context);

}  // namespace segue::kernels
