// AVX-512 registers for kernels/math.h and the CPU operations. Include only from files compiled for
// AVX-512: every function here is forced inline.
#pragma once

#include <immintrin.h>

#include "kernels/math.h"

namespace segue::kernels::cpu {

struct Avx512 {
  using V = __m512;
  static constexpr int kLanes = 16;
  // A product's tile keeps 14 x 2 accumulators; with 2 columns of weights and 1 broadcast it fills
  // 31 of 32 registers, and loads 16 words for 28 multiply-adds.
  static constexpr int kTileRows = 14;
  static constexpr int kTileVectors = 2;
  // 518 rows of 256 floats and their sums for 512 columns are 1.6 MB; the processors that are fast
  // at AVX-512 have 2 MB of level-2 cache.
  static constexpr int64_t kPackedFloats = 518 * 256;
  static constexpr int64_t kMostCols = 512;

  // Attention's tile keeps 8 x 3 accumulators: 8 divides the usual head sizes.
  static constexpr int kAttentionRows = 8;

  static SEGUE_INLINE V Set(float value) { return _mm512_set1_ps(value); }
  static SEGUE_INLINE V Zero() { return _mm512_setzero_ps(); }
  static SEGUE_INLINE V Load(const float* p) { return _mm512_loadu_ps(p); }
  static SEGUE_INLINE void Store(float* p, V v) { _mm512_storeu_ps(p, v); }
  // The first `count` < kLanes elements; the others read as zeros and are not written.
  static SEGUE_INLINE V LoadPartial(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(MaskOf(count), p);
  }
  static SEGUE_INLINE void StorePartial(float* p, int64_t count, V v) {
    _mm512_mask_storeu_ps(p, MaskOf(count), v);
  }
  static SEGUE_INLINE V Fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static SEGUE_INLINE V Max(V a, V b) { return _mm512_max_ps(a, b); }
  static SEGUE_INLINE V Min(V a, V b) { return _mm512_min_ps(a, b); }
  static SEGUE_INLINE V Pow2(V t) {
    const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(0x3f800000)));
  }
  static SEGUE_INLINE V WhereLess(V a, V b, V less, V other) {
    return _mm512_mask_mov_ps(other, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), less);
  }
  // base/dtype.h's RoundToBF16.
  static SEGUE_INLINE V RoundBF16(V value) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(-65536)));
  }

  // 32-bit words of any type, as they are.
  static SEGUE_INLINE V LoadBits(const void* p) {
    return _mm512_castsi512_ps(_mm512_loadu_si512(p));
  }
  // The lower and the upper bfloat16 of each word, widened.
  static SEGUE_INLINE V WidenLow(V words) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words), 16));
  }
  static SEGUE_INLINE V WidenHigh(V words) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32(-65536)));
  }
  static SEGUE_INLINE V LoadF16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static SEGUE_INLINE V LoadBF16(const void* p) {
    const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }

  // math.h's order: lane j takes lane j + 8, then j + 4, j + 2 and j + 1.
  static SEGUE_INLINE float SumLanes(const V (&lanes)[1]) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(lanes[0]), _mm512_extractf32x8_ps(lanes[0], 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }

  // Of neighbouring lanes (a, b): (b, a); (-a, b); and each of kLanes / 2 floats twice.
  static SEGUE_INLINE V SwapPairs(V v) { return _mm512_permute_ps(v, 0xb1); }
  static SEGUE_INLINE V NegateFirsts(V v) {
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(v), _mm512_set1_epi64(int64_t{0x80000000})));
  }
  static SEGUE_INLINE V LoadTwice(const float* p) { return Twice(_mm256_loadu_ps(p)); }
  static SEGUE_INLINE V LoadTwicePartial(const float* p, int64_t count) {
    return Twice(_mm256_maskz_loadu_ps(static_cast<__mmask8>(MaskOf(count)), p));
  }

  // Rows become columns.
  static SEGUE_INLINE void Transpose(V (&r)[16]) {
    V t[16];
    V u[16];
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    // u[4 i + c]: column 4 L + c of the rows 4 i .. 4 i + 3 in its 128-bit lane L.
    for (int i = 0; i < 16; i += 4) {
      u[i] = UnpackLow64(t[i], t[i + 2]);
      u[i + 1] = UnpackHigh64(t[i], t[i + 2]);
      u[i + 2] = UnpackLow64(t[i + 1], t[i + 3]);
      u[i + 3] = UnpackHigh64(t[i + 1], t[i + 3]);
    }
    for (int c = 0; c < 4; ++c) {
      const V a = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88);
      const V b = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd);
      const V d = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
      const V e = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);
      r[c] = _mm512_shuffle_f32x4(a, d, 0x88);
      r[4 + c] = _mm512_shuffle_f32x4(b, e, 0x88);
      r[8 + c] = _mm512_shuffle_f32x4(a, d, 0xdd);
      r[12 + c] = _mm512_shuffle_f32x4(b, e, 0xdd);
    }
  }

 private:
  static SEGUE_INLINE V Twice(__m256 v) {
    const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(v));
  }
  static SEGUE_INLINE __mmask16 MaskOf(int64_t count) {
    return static_cast<__mmask16>((1u << count) - 1u);
  }
  static SEGUE_INLINE V UnpackLow64(V a, V b) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
  static SEGUE_INLINE V UnpackHigh64(V a, V b) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  }
};

}  // namespace segue::kernels::cpu
