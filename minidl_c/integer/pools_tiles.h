/* pools_tiles.h: the maximum and the mean of windows of int8 words. */
#ifndef MINIDL_POOLS_TILES_H
#define MINIDL_POOLS_TILES_H
#include "minidl_c/integer/words.h"

typedef struct { ptrdiff_t start, end; } cells;

typedef struct {
  ptrdiff_t H, W, OH, OW, row_step, column_step;
  cells *rows, *columns;                 /* [OH], [OW] */
  int x_zero;                            /* of an average, */
  byte_range range;
  rescaling *factors;                    /* and of each divisor; */
  int *divisor;                          /* [OH][OW] which one */
} pool_dims;

/* OUT words b0..b1 */
static void max_pool(const pool_dims *d, const uint32_t *x, uint32_t *y, ptrdiff_t b0, ptrdiff_t b1) {
  for (ptrdiff_t b = b0; b < b1; b++)
    for (ptrdiff_t i = 0; i < d->OH; i++)
      for (ptrdiff_t j = 0; j < d->OW; j++) {
        const cells row = d->rows[i], column = d->columns[j];
        const uint32_t *image = x + b * d->H * d->W * LANES;
        uint32_t *to = y + ((b * d->OH + i) * d->OW + j) * LANES;
        for (int v = 0; v < LANES; v += WORDS) {
          words most = {0};
          for (ptrdiff_t h = row.start; h < row.end; h += d->row_step)
            for (ptrdiff_t w = column.start; w < column.end; w += d->column_step)
              most = max_bytes(most, load_words(image + (h * d->W + w) * LANES + v));
          store_words(to + v, most);
        }
      }
}

static void average_pool(const pool_dims *d, const uint32_t *x, uint32_t *y, ptrdiff_t b0, ptrdiff_t b1) {
  for (ptrdiff_t b = b0; b < b1; b++)
    for (ptrdiff_t i = 0; i < d->OH; i++)
      for (ptrdiff_t j = 0; j < d->OW; j++) {
        const cells row = d->rows[i], column = d->columns[j];
        const uint32_t *image = x + b * d->H * d->W * LANES;
        const uint32_t zeros = (uint32_t)((row.end - row.start) * (column.end - column.start) * d->x_zero);
        uint32_t *to = y + ((b * d->OH + i) * d->OW + j) * LANES;
        for (int v = 0; v < LANES; v += WORDS) {
          words sums[WORD_CHANNELS];
          UNROLL for (int k = 0; k < WORD_CHANNELS; k++) sums[k] = -broadcast_word(zeros);
          for (ptrdiff_t h = row.start; h < row.end; h++)
            for (ptrdiff_t w = column.start; w < column.end; w++) {
              words cell = load_words(image + (h * d->W + w) * LANES + v);
              UNROLL for (int k = 0; k < WORD_CHANNELS; k++) sums[k] += byte_of(cell, k);
            }
          store_words(to + v, rescaled_word(sums, d->factors + d->divisor[i * d->OW + j], &d->range));
        }
      }
}
#endif
