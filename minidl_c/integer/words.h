/* words.h: int8 values in the lanes of a tile.
 *
 * A value of (c, h, w) is [words][h][w][16], with words of 32 bits: word b of a pixel holds channels 4b to 4b + 3 of one example, the
 * first one in its lowest byte. A byte is q + 128, unsigned: the processor's products of bytes take an unsigned one with a signed one.
 * The bytes after the last channel hold anything: no result depends on them. To a plan, words are float32 numbers that it copies. */
#ifndef MINIDL_WORDS_H
#define MINIDL_WORDS_H
#include "minidl_c/simd/lanes.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define WORD_CHANNELS 4
#define OFFSET 128                     /* of a byte */
#define WORDS (VECTOR_BYTES / 4)       /* in a vector */

typedef bits_f32 words;

/* What turns the sums of the four channels of a word into bytes: floor((sum * multiplier + 2^(shift - 1)) / 2^shift) + zero, clipped.
 *
 * Without AVX-512, 64-bit numbers are shifted as unsigned ones: `add` contains SHIFT_OFFSET beside the rounding, and `excess` is what is
 * left of it. A sum is first clipped to +-limit where its result would exceed 32 bits. */
#if VECTOR_BYTES == 64
#define SHIFT_OFFSET 0
#else
#define SHIFT_OFFSET ((int64_t)1 << 62)
#endif
typedef struct {
  int64_t multiplier[WORD_CHANNELS], add[WORD_CHANNELS];
  int64_t shift[WORD_CHANNELS];
  int32_t limit[WORD_CHANNELS];
  uint32_t excess[WORD_CHANNELS];
} rescaling;

typedef struct { int zero, low, high, has_limits; } byte_range;      /* as bytes: with the offset */

INLINE words broadcast_word(uint32_t s) { return s - (words){0}; }
INLINE words load_words(const uint32_t *p) { return *(const words *)p; }
INLINE void store_words(uint32_t *p, words v) { *(words *)p = v; }
INLINE mask_f32 choose_word(mask_f32 m, mask_f32 a, mask_f32 b) { return (m & a) | (~m & b); }
INLINE words byte_of(words v, int channel) { return v >> 8 * channel & 255; }

/* The larger and the smaller of each byte. */
#if VECTOR_BYTES == 64
INLINE words max_bytes(words a, words b) { return (words)_mm512_max_epu8((__m512i)a, (__m512i)b); }
INLINE words min_bytes(words a, words b) { return (words)_mm512_min_epu8((__m512i)a, (__m512i)b); }
#elif VECTOR_BYTES == 32
INLINE words max_bytes(words a, words b) { return (words)_mm256_max_epu8((__m256i)a, (__m256i)b); }
INLINE words min_bytes(words a, words b) { return (words)_mm256_min_epu8((__m256i)a, (__m256i)b); }
#elif defined(__x86_64__)
INLINE words max_bytes(words a, words b) { return (words)_mm_max_epu8((__m128i)a, (__m128i)b); }
INLINE words min_bytes(words a, words b) { return (words)_mm_min_epu8((__m128i)a, (__m128i)b); }
#elif defined(__aarch64__)
INLINE words max_bytes(words a, words b) { return (words)vmaxq_u8((uint8x16_t)a, (uint8x16_t)b); }
INLINE words min_bytes(words a, words b) { return (words)vminq_u8((uint8x16_t)a, (uint8x16_t)b); }
#else
typedef uint8_t bytes_vector __attribute__((vector_size(VECTOR_BYTES), may_alias));
INLINE words max_bytes(words a, words b) {
  words m = (words)((bytes_vector)a > (bytes_vector)b);
  return (m & a) | (~m & b);
}
INLINE words min_bytes(words a, words b) { return ~max_bytes(~a, ~b); }
#endif

/* The 64-bit products of a number with the numbers in the even lanes, which are signed. */
#if VECTOR_BYTES == 64
INLINE bits_f64 product(words s, int64_t m) { return (bits_f64)_mm512_mul_epi32((__m512i)s, _mm512_set1_epi64(m)); }
#elif VECTOR_BYTES == 32
INLINE bits_f64 product(words s, int64_t m) { return (bits_f64)_mm256_mul_epi32((__m256i)s, _mm256_set1_epi64x(m)); }
#elif defined(__x86_64__)
INLINE bits_f64 product(words s, int64_t m) { return (bits_f64)_mm_mul_epi32((__m128i)s, _mm_set1_epi64x(m)); }
#else
INLINE bits_f64 product(words s, int64_t m) { return (bits_f64)((mask_f64)((bits_f64)s << 32) >> 32) * (uint64_t)m; }
#endif

INLINE words rescaled(words s, const rescaling *r, int i, int has_limits) {
  if (has_limits) {
    mask_f32 limit = integer_f32(r->limit[i]), v = (mask_f32)s;
    v = choose_word(v > limit, limit, v);
    s = (words)choose_word(v < -limit, -limit, v);
  }
  bits_f64 even = product(s, r->multiplier[i]) + (uint64_t)r->add[i];
  bits_f64 odd = product((words)((bits_f64)s >> 32), r->multiplier[i]) + (uint64_t)r->add[i];
#if VECTOR_BYTES == 64
  __m512i shift = _mm512_set1_epi64(r->shift[i]), high = _mm512_srav_epi64((__m512i)odd, shift);
  return (words)_mm512_mask_shuffle_epi32(_mm512_srav_epi64((__m512i)even, shift), 0xaaaa, high, _MM_PERM_CCAA);
#else
  return (words)((even >> r->shift[i] & 0xffffffff) | odd >> r->shift[i] << 32) - r->excess[i];
#endif
}

/* The word of four numbers in the lanes of v, of 32 bits: plus zero, clipped. */
INLINE words packed_word(const words v[WORD_CHANNELS], const byte_range *b) {
#if defined(__x86_64__)
#define PACKED_WORD(bits, suffix, pattern) \
  __m##bits##i zero = _mm##suffix##_set1_epi16((short)b->zero); \
  __m##bits##i ab = _mm##suffix##_adds_epi16(_mm##suffix##_packs_epi32((__m##bits##i)v[0], (__m##bits##i)v[1]), zero); \
  __m##bits##i cd = _mm##suffix##_adds_epi16(_mm##suffix##_packs_epi32((__m##bits##i)v[2], (__m##bits##i)v[3]), zero); \
  words y = (words)_mm##suffix##_packus_epi16(ab, cd);         /* a0-a3 b0-b3 c0-c3 d0-d3 in each 16 bytes */ \
  y = max_bytes(y, broadcast_word(b->low * 0x01010101u)); \
  y = min_bytes(y, broadcast_word(b->high * 0x01010101u)); \
  return (words)_mm##suffix##_shuffle_epi8((__m##bits##i)y, pattern)
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
#if VECTOR_BYTES == 64
  PACKED_WORD(512, 512, _mm512_broadcast_i32x4(order));
#elif VECTOR_BYTES == 32
  PACKED_WORD(256, 256, _mm256_broadcastsi128_si256(order));
#else
  PACKED_WORD(128, , order);
#endif
#undef PACKED_WORD
#else
  words y = {0};
  for (int i = 0; i < WORD_CHANNELS; i++) {
    mask_f32 low = integer_f32(b->low - b->zero), high = integer_f32(b->high - b->zero), q = (mask_f32)v[i];
    q = choose_word(q < low, low, choose_word(q > high, high, q));
    y |= (words)(q + b->zero) << 8 * i;
  }
  return y;
#endif
}

/* The word of four sums. */
INLINE words rescaled_word(const words s[WORD_CHANNELS], const rescaling *r, const byte_range *b) {
  words v[WORD_CHANNELS];
  if (b->has_limits) UNROLL for (int i = 0; i < WORD_CHANNELS; i++) v[i] = rescaled(s[i], r, i, 1);
  else UNROLL for (int i = 0; i < WORD_CHANNELS; i++) v[i] = rescaled(s[i], r, i, 0);
  return packed_word(v, b);
}
#endif
