// AVX2 registers for kernels/math.h and the CPU operations. Include only from files compiled for
// AVX2, FMA and F16C: every function here is forced inline.
#pragma once

#include <immintrin.h>

#include "kernels/math.h"

namespace segue::kernels::cpu {

struct Avx2 {
  using V = __m256;
  static constexpr int kLanes = 8;
  // A product's tile keeps 6 x 2 accumulators; with 2 columns of weights and 1 broadcast it fills
  // 15 of 16 registers.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 2;
  // 252 KiB: a level-2 cache of 512 KiB (Zen) keeps them beside a panel of weights.
  static constexpr int64_t kPackedFloats = 252 * 256;
  static constexpr int64_t kMostCols = 512;

  // Attention's tile keeps 4 x 3 accumulators: 4 divides every head size in use.
  static constexpr int kAttentionRows = 4;

  static SEGUE_INLINE V Set(float value) { return _mm256_set1_ps(value); }
  static SEGUE_INLINE V Zero() { return _mm256_setzero_ps(); }
  static SEGUE_INLINE V Load(const float* p) { return _mm256_loadu_ps(p); }
  static SEGUE_INLINE void Store(float* p, V v) { _mm256_storeu_ps(p, v); }
  // The first `count` < kLanes elements; the others read as zeros and are not written.
  static SEGUE_INLINE V LoadPartial(const float* p, int64_t count) {
    return _mm256_maskload_ps(p, MaskOf(count));
  }
  static SEGUE_INLINE void StorePartial(float* p, int64_t count, V v) {
    _mm256_maskstore_ps(p, MaskOf(count), v);
  }
  static SEGUE_INLINE V Fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static SEGUE_INLINE V Max(V a, V b) { return _mm256_max_ps(a, b); }
  static SEGUE_INLINE V Min(V a, V b) { return _mm256_min_ps(a, b); }
  static SEGUE_INLINE V Pow2(V t) {
    const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(shifted, _mm256_set1_epi32(0x3f800000)));
  }
  static SEGUE_INLINE V WhereLess(V a, V b, V less, V other) {
    return _mm256_blendv_ps(other, less, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  // base/dtype.h's RoundToBF16.
  static SEGUE_INLINE V RoundBF16(V value) {
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const V nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    const V chosen =
        _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
    return _mm256_and_ps(chosen, _mm256_castsi256_ps(_mm256_set1_epi32(-65536)));
  }

  // 32-bit words of any type, as they are.
  static SEGUE_INLINE V LoadBits(const void* p) {
    return _mm256_castsi256_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  // The lower and the upper bfloat16 of each word, widened.
  static SEGUE_INLINE V WidenLow(V words) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(words), 16));
  }
  static SEGUE_INLINE V WidenHigh(V words) {
    return _mm256_and_ps(words, _mm256_castsi256_ps(_mm256_set1_epi32(-65536)));
  }
  static SEGUE_INLINE V LoadF16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static SEGUE_INLINE V LoadBF16(const void* p) {
    const __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }

  // math.h's order: lane j takes lane j + 8, then j + 4, j + 2 and j + 1.
  static SEGUE_INLINE float SumLanes(const V (&lanes)[2]) {
    const V eight = lanes[0] + lanes[1];
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }

  // Of neighbouring lanes (a, b): (b, a); (-a, b); and each of kLanes / 2 floats twice.
  static SEGUE_INLINE V SwapPairs(V v) { return _mm256_permute_ps(v, 0xb1); }
  static SEGUE_INLINE V NegateFirsts(V v) {
    return _mm256_xor_ps(v, _mm256_castsi256_ps(_mm256_set1_epi64x(int64_t{0x80000000})));
  }
  static SEGUE_INLINE V LoadTwice(const float* p) { return Twice(_mm_loadu_ps(p)); }
  static SEGUE_INLINE V LoadTwicePartial(const float* p, int64_t count) {
    return Twice(_mm_maskload_ps(p, _mm256_castsi256_si128(MaskOf(count))));
  }

  // Rows become columns.
  static SEGUE_INLINE void Transpose(V (&r)[8]) {
    V t[8];
    V u[8];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    // u[4 i + c]: column 4 L + c of the rows 4 i .. 4 i + 3 in its 128-bit lane L.
    for (int i = 0; i < 8; i += 4) {
      u[i] = UnpackLow64(t[i], t[i + 2]);
      u[i + 1] = UnpackHigh64(t[i], t[i + 2]);
      u[i + 2] = UnpackLow64(t[i + 1], t[i + 3]);
      u[i + 3] = UnpackHigh64(t[i + 1], t[i + 3]);
    }
    for (int c = 0; c < 4; ++c) {
      r[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
      r[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
    }
  }

 private:
  static SEGUE_INLINE V Twice(__m128 v) {
    const __m256i index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(v), index);
  }
  static SEGUE_INLINE __m256i MaskOf(int64_t count) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
  }
  static SEGUE_INLINE V UnpackLow64(V a, V b) {
    return _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
  }
  static SEGUE_INLINE V UnpackHigh64(V a, V b) {
    return _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
  }
};

}  // namespace segue::kernels::cpu
