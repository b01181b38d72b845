/* elements_tiles.h: sums, products, tables and copies of int8 words. */
#ifndef MINIDL_ELEMENTS_TILES_H
#define MINIDL_ELEMENTS_TILES_H
#include <string.h>
#include "minidl_c/integer/words.h"

typedef struct {
  ptrdiff_t words, terms;                /* of y, and of the sum */
  int32_t *multipliers;                  /* [terms] */
  uint32_t constant;                     /* what zero points add, and half a unit */
  int shift;
  byte_range range;
} add_dims;

typedef struct {
  ptrdiff_t pixels, b_pixels;            /* of b: as many, or 1 */
  int a_zero, b_zero;
  rescaling factors;
  byte_range range;
} multiply_dims;

typedef struct { uint8_t table[256]; } lookup_dims;

typedef struct { ptrdiff_t from[WORD_CHANNELS]; int whole; } word_source;    /* byte k is byte from % 4 of word from / 4; -1: the fill */
typedef struct { uint32_t fill; word_source *sources; } rearrange_dims;

/* OUT words i0..i1, each of 16 lanes, of all pixels. Term k is x_k; without `others`, the terms are one value. */
static void add_terms(const add_dims *d, const uint32_t *x, const uint32_t *others, uint32_t *y, ptrdiff_t i0, ptrdiff_t i1) {
  for (ptrdiff_t i = i0 * LANES; i < i1 * LANES; i += WORDS) {
    words sums[WORD_CHANNELS];
    UNROLL for (int k = 0; k < WORD_CHANNELS; k++) sums[k] = broadcast_word(d->constant);
    for (ptrdiff_t term = 0; term < d->terms; term++) {
      words v = load_words(term && others ? others + i : x + term * d->words * LANES + i), m = (words)integer_f32(d->multipliers[term]);
      UNROLL for (int k = 0; k < WORD_CHANNELS; k++) sums[k] += byte_of(v, k) * m;
    }
    UNROLL for (int k = 0; k < WORD_CHANNELS; k++) sums[k] = (words)((mask_f32)sums[k] >> d->shift);
    store_words(y + i, packed_word(sums, &d->range));
  }
}

/* OUT words b0..b1 of y */
static void multiply_factors(const multiply_dims *d, const uint32_t *a, const uint32_t *b, uint32_t *y, ptrdiff_t b0, ptrdiff_t b1) {
  for (ptrdiff_t i = b0 * d->pixels; i < b1 * d->pixels; i++)
    for (int v = 0; v < LANES; v += WORDS) {
      words p = load_words(a + i * LANES + v), q = load_words(b + (d->b_pixels == 1 ? i / d->pixels : i) * LANES + v), products[WORD_CHANNELS];
      UNROLL for (int k = 0; k < WORD_CHANNELS; k++) products[k] = (byte_of(p, k) - d->a_zero) * (byte_of(q, k) - d->b_zero);
      store_words(y + i * LANES + v, rescaled_word(products, &d->factors, &d->range));
    }
}

/* y[i] = table[x[i]], of `rows` rows of 16 words. Without gathers: 16 shuffles, each of the bytes that begin with the same four bits. */
static void look_up(const lookup_dims *d, const uint32_t *x, uint32_t *y, ptrdiff_t rows) {
#if defined(__x86_64__)
#define LOOK_UP(bits, suffix, load) \
  __m##bits##i parts[16]; \
  for (int k = 0; k < 16; k++) parts[k] = load(_mm_loadu_si128((const __m128i *)(d->table + 16 * k))); \
  for (ptrdiff_t i = 0; i < rows * LANES; i += WORDS) { \
    words found = {0}; \
    UNROLL for (int k = 0; k < 16; k++) { \
      words index = load_words(x + i) ^ broadcast_word(k * 0x10101010u);       /* below 16 in the bytes of this part, */ \
      index = (words)_mm##suffix##_adds_epu8((__m##bits##i)index, _mm##suffix##_set1_epi8(112));     /* then below 128 */ \
      found |= (words)_mm##suffix##_shuffle_epi8(parts[k], (__m##bits##i)index); \
    } \
    store_words(y + i, found); \
  }
#if VECTOR_BYTES == 64
  LOOK_UP(512, 512, _mm512_broadcast_i32x4)
#elif VECTOR_BYTES == 32
  LOOK_UP(256, 256, _mm256_broadcastsi128_si256)
#else
  LOOK_UP(128, , )
#endif
#undef LOOK_UP
#else
  const uint8_t *from = (const uint8_t *)x;
  uint8_t *to = (uint8_t *)y;
  for (ptrdiff_t i = 0; i < rows * LANES * WORD_CHANNELS; i++) to[i] = d->table[from[i]];
#endif
}

/* OUT words i0..i1 of y, each of 16 lanes */
static void rearrange(const rearrange_dims *d, const uint32_t *x, uint32_t *y, ptrdiff_t i0, ptrdiff_t i1) {
  for (ptrdiff_t i = i0; i < i1; i++) {
    const word_source *s = &d->sources[i];
    if (s->whole) {
      memcpy(y + i * LANES, x + s->from[0] / WORD_CHANNELS * LANES, LANES * sizeof *y);
      continue;
    }
    for (int v = 0; v < LANES; v += WORDS) {
      words word = {0};
      UNROLL for (int k = 0; k < WORD_CHANNELS; k++) {
        ptrdiff_t from = s->from[k];
        word |= (from < 0 ? broadcast_word(d->fill) : byte_of(load_words(x + from / WORD_CHANNELS * LANES + v), from % WORD_CHANNELS)) << 8 * k;
      }
      store_words(y + i * LANES + v, word);
    }
  }
}
#endif
