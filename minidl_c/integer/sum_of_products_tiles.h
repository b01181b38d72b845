/* sum_of_products_tiles.h: the register tiles of a convolution of int8 words.
 *
 * A register tile is the sums of one or two blocks of 4 outputs at some pixels, in 32 bits, for the examples of a vector. A step adds
 * the products of a word of each pixel with a word of weights of each output, which all lanes share. Sums wrap around: the last one fits
 * 32 bits, as the op has checked. */
#ifndef DOT
#ifndef MINIDL_SUM_OF_PRODUCTS_TILES_H
#define MINIDL_SUM_OF_PRODUCTS_TILES_H
#include "minidl_c/integer/words.h"

/* Outputs along one axis that have the same cells of the kernel inside the image: `count` of them from `first` on, cells from `cell` on.
 * start: where in the input the first output has its first cell. */
typedef struct { ptrdiff_t first, count, cell, cells, start; } tap_span;

typedef struct {
  ptrdiff_t H, W, OH, OW, KH, KW, stride_h, stride_w, dilation_h, dilation_w;
  ptrdiff_t n_rows, n_columns, blocks;
  tap_span *rows, *columns;              /* [n_rows], [n_columns] */
  ptrdiff_t *first_word, *n_words;       /* [blocks] the words of x that a block of outputs reads */
  ptrdiff_t *first_weight;               /* [blocks], in weights: [word][KH][KW][4 outputs], of 1 or 2 numbers each */
  const uint32_t *weights;
  const uint32_t *biases;                /* [n_rows][n_columns][blocks][4], with what the zero point of x adds */
  rescaling *factors;                    /* [blocks] */
  byte_range range;
  int vnni;
} sum_of_products_dims;

/* The pixels of a register tile: cells of the kernel, and the strides between pixels, rows, columns and words. */
typedef struct {
  ptrdiff_t rows, columns, words;
  ptrdiff_t x_pixel, x_row, x_column, x_word, y_pixel, y_block;
  ptrdiff_t w_row, w_word, w_block;
} tap_run;

/* Sets the cells of the kernel, as one row where those of all words follow each other with one stride: of a 1 x 1 kernel, or one as large
 * as the image. */
static inline void choose_cells(tap_run *t, const sum_of_products_dims *d, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t words) {
  int is_pixel = d->KH * d->KW == 1, is_image = rows == d->H && columns == d->W && rows == d->KH && columns == d->KW;
  t->rows = rows, t->columns = columns, t->words = words, t->x_column = d->dilation_w * LANES;
  if ((is_pixel && rows && columns) || (is_image && d->dilation_h * d->dilation_w == 1)) {
    t->x_column = is_pixel ? t->x_word : LANES;
    t->rows = t->words = 1, t->columns = rows * columns * words;
  }
}

/* Weights for processors without a product of bytes: two numbers for each word, of the even and of the odd channels, as pairs of 16
 * bits. The bytes of x are widened alike. */
typedef struct { words even, odd; } split_words;
INLINE split_words split_plain(words x) { return (split_words){x & 0x00ff00ff, x >> 8 & 0x00ff00ff}; }

#if VECTOR_BYTES == 64
#define MADD(a, b) (words)_mm512_madd_epi16((__m512i)(a), (__m512i)(b))
#elif VECTOR_BYTES == 32
#define MADD(a, b) (words)_mm256_madd_epi16((__m256i)(a), (__m256i)(b))
#elif defined(__x86_64__)
#define MADD(a, b) (words)_mm_madd_epi16((__m128i)(a), (__m128i)(b))
#else
#define MADD(a, b) ((a & 0xffff) * (words)((mask_f32)((b) << 16) >> 16) + (a >> 16) * (words)((mask_f32)(b) >> 16))
#endif
INLINE words dot_plain(words sum, split_words x, const uint32_t *w) {
  return sum + MADD(x.even, broadcast_word(w[0])) + MADD(x.odd, broadcast_word(w[1]));
}

#define DOT(name) name##_plain
#define DOT_TARGET
#define DOT_X split_words
#define DOT_NUMBERS 2
#if VECTOR_REGISTERS == 32
#define DOT_PIXELS 2
#else
#define DOT_PIXELS 1
#endif
#include "minidl_c/integer/sum_of_products_tiles.h"

#if VECTOR_BYTES == 64
#define VNNI __attribute__((target("avx512vnni")))
INLINE VNNI words split_vnni(words x) {
  KEEP(x);
  return x;
}
INLINE VNNI words dot_vnni(words sum, words x, const uint32_t *w) {
  return (words)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)broadcast_word(*w));
}
#define DOT(name) name##_vnni
#define DOT_TARGET VNNI
#define DOT_X words
#define DOT_NUMBERS 1
#define DOT_PIXELS 3
#include "minidl_c/integer/sum_of_products_tiles.h"
#else
#define sum_of_products_vnni sum_of_products_plain
#endif

static inline void sum_of_products(const sum_of_products_dims *d, const void *x, void *y, ptrdiff_t b0, ptrdiff_t b1) {
  (d->vnni ? sum_of_products_vnni : sum_of_products_plain)(d, x, y, b0, b1);
}
#endif
#else

/* OUT a word of `pixels` pixels of n blocks. x, w: at the first cell of the first pixel */
INLINE DOT_TARGET void DOT(register_tile)(int n, int pixels, const tap_run *t, const uint32_t *x, const uint32_t *w, const uint32_t *biases,
                                          const rescaling *r, const byte_range *b, uint32_t *y) {
  for (int v = 0; v < LANES; v += WORDS) {
    words sums[DOT_PIXELS][2 * WORD_CHANNELS];
    UNROLL for (int p = 0; p < pixels; p++)
      UNROLL for (int o = 0; o < n * WORD_CHANNELS; o++) sums[p][o] = broadcast_word(biases[o]);
    for (ptrdiff_t c = 0; c < t->words; c++)
      for (ptrdiff_t i = 0; i < t->rows; i++) {
        const uint32_t *xs = x + v + c * t->x_word + i * t->x_row;
        const uint32_t *block[2];
        UNROLL for (int k = 0; k < n; k++) block[k] = w + c * t->w_word + i * t->w_row + k * t->w_block;
        ROLL for (ptrdiff_t j = 0; j < t->columns; j++, xs += t->x_column) {
          DOT_X cells[DOT_PIXELS];
          UNROLL for (int p = 0; p < pixels; p++) cells[p] = DOT(split)(load_words(xs + p * t->x_pixel));
          UNROLL for (int o = 0; o < n * WORD_CHANNELS; o++) {
            const uint32_t *weight = block[o / WORD_CHANNELS] + o % WORD_CHANNELS * DOT_NUMBERS;
            UNROLL for (int p = 0; p < pixels; p++) sums[p][o] = DOT(dot)(sums[p][o], cells[p], weight);
          }
          UNROLL for (int k = 0; k < n; k++) block[k] += WORD_CHANNELS * DOT_NUMBERS;
        }
      }
    UNROLL for (int p = 0; p < pixels; p++)
      UNROLL for (int k = 0; k < n; k++)
        store_words(y + v + p * t->y_pixel + k * t->y_block, rescaled_word(sums[p] + k * WORD_CHANNELS, r + k, b));
  }
}

NOINLINE DOT_TARGET void DOT(sum_of_products)(const sum_of_products_dims *d, const uint32_t *x, uint32_t *y, ptrdiff_t b0, ptrdiff_t b1) {
  const ptrdiff_t cell = WORD_CHANNELS * DOT_NUMBERS;
  tap_run t = {.x_row = d->dilation_h * d->W * LANES, .x_word = d->H * d->W * LANES, .y_block = d->OH * d->OW * LANES,
               .w_row = d->KW * cell, .w_word = d->KH * d->KW * cell};
  for (ptrdiff_t b = b0, n; b < b1; b += n) {
    n = b + 1 < b1 && d->first_word[b] == d->first_word[b + 1] && d->n_words[b] == d->n_words[b + 1] ? 2 : 1;
    t.w_block = d->n_words[b] * t.w_word;
    for (ptrdiff_t i = 0; i < d->n_rows; i++)
      for (ptrdiff_t j = 0; j < d->n_columns; j++) {
        const tap_span *row = &d->rows[i], *column = &d->columns[j];
        /* Pixels of a register tile lie along the longer side of this rectangle. */
        int down = column->count < DOT_PIXELS && column->count < row->count;
        ptrdiff_t lines = down ? column->count : row->count, pixels = down ? row->count : column->count;
        ptrdiff_t below = d->stride_h * d->W * LANES, beside = d->stride_w * LANES;
        const uint32_t *biases = d->biases + ((i * d->n_columns + j) * d->blocks + b) * WORD_CHANNELS;
        const uint32_t *x0 = x + d->first_word[b] * t.x_word + (row->start * d->W + column->start) * LANES;
        const uint32_t *w = d->weights + d->first_weight[b] + row->cell * t.w_row + column->cell * cell;
        uint32_t *y0 = y + b * t.y_block + (row->first * d->OW + column->first) * LANES;
        choose_cells(&t, d, row->cells, column->cells, d->n_words[b]);
        t.x_pixel = down ? below : beside, t.y_pixel = (down ? d->OW : 1) * LANES;
        for (ptrdiff_t line = 0; line < lines; line++) {
          const uint32_t *xs = x0 + line * (down ? beside : below);
          uint32_t *ys = y0 + line * (down ? 1 : d->OW) * LANES;
          ptrdiff_t p = 0;
#define TILES(blocks, size) \
  for (; p + size <= pixels; p += size) \
    DOT(register_tile)(blocks, size, &t, xs + p * t.x_pixel, w, biases, d->factors + b, &d->range, ys + p * t.y_pixel)
          if (n == 2) {
#if DOT_PIXELS > 2
            TILES(2, 3);
#endif
#if DOT_PIXELS > 1
            TILES(2, 2);
#endif
            TILES(2, 1);
          } else {
#if DOT_PIXELS > 2
            TILES(1, 3);
#endif
#if DOT_PIXELS > 1
            TILES(1, 2);
#endif
            TILES(1, 1);
          }
#undef TILES
        }
      }
  }
}

#undef DOT
#undef DOT_TARGET
#undef DOT_X
#undef DOT_NUMBERS
#undef DOT_PIXELS
#endif
