/* gather.h: vectors of elements from anywhere in an array. */
#ifndef MINIDL_GATHER_H
#define MINIDL_GATHER_H
#include "minidl_c/simd/lanes.h"

/* x[index] in the lanes of the mask, 0 in the others */
#if VECTOR_BYTES == 64
INLINE vector_f32 gather_f32(mask_f32 inside, mask_f32 index, const float *x) {
  __mmask16 lanes = _mm512_test_epi32_mask((__m512i)inside, (__m512i)inside);
  return (vector_f32)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), lanes, (__m512i)index, x, 4);
}
INLINE vector_f64 gather_f64(mask_f64 inside, mask_f64 index, const double *x) {
  __mmask8 lanes = _mm512_test_epi64_mask((__m512i)inside, (__m512i)inside);
  return (vector_f64)_mm512_mask_i64gather_pd(_mm512_setzero_pd(), lanes, (__m512i)index, x, 8);
}
#elif VECTOR_BYTES == 32
INLINE vector_f32 gather_f32(mask_f32 inside, mask_f32 index, const float *x) {
  return (vector_f32)_mm256_mask_i32gather_ps(_mm256_setzero_ps(), x, (__m256i)index, (__m256)inside, 4);
}
INLINE vector_f64 gather_f64(mask_f64 inside, mask_f64 index, const double *x) {
  return (vector_f64)_mm256_mask_i64gather_pd(_mm256_setzero_pd(), x, (__m256i)index, (__m256d)inside, 8);
}
#else
INLINE vector_f32 gather_f32(mask_f32 inside, mask_f32 index, const float *x) {
  vector_f32 y = {0};
  for (int i = 0; i < VECTOR_BYTES / 4; i++) if (inside[i]) y[i] = x[index[i]];
  return y;
}
INLINE vector_f64 gather_f64(mask_f64 inside, mask_f64 index, const double *x) {
  vector_f64 y = {0};
  for (int i = 0; i < VECTOR_BYTES / 8; i++) if (inside[i]) y[i] = x[index[i]];
  return y;
}
#endif
#endif
