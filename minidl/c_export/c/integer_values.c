/* integer_values.c: pools, sums, products, tables and copies of int8_t. Images are [height][width][channels]. */

typedef struct { integer first, end; } range;            /* of the cells of a window, along an axis */

/* Windows: of row_ranges[i] and column_ranges[j] for output (i, j). width: of the image. */
typedef struct { integer width, channels, rows, columns; const range *row_ranges, *column_ranges; } pool_int8;

#define EACH_CELL(p, i, j, row_step, column_step) \
  for (integer h = (p)->row_ranges[i].first; h < (p)->row_ranges[i].end; h += row_step) \
    for (integer v = (p)->column_ranges[j].first; v < (p)->column_ranges[j].end; v += column_step)

NOINLINE void max_pool_int8(const pool_int8 *p, integer row_step, integer column_step, const int8_t *x, int8_t *y) {
  EACH(i, p->rows) EACH(j, p->columns) {
    int8_t *best = y + (i * p->columns + j) * p->channels;
    memset(best, -128, (size_t)p->channels);
    EACH_CELL(p, i, j, row_step, column_step) {
      const int8_t *cell = x + (h * p->width + v) * p->channels;
      EACH(c, p->channels) if (cell[c] > best[c]) best[c] = cell[c];
    }
  }
}

typedef struct { integer cells; int32_t multiplier; int shift; } divisor;

/* Sums are divided by row_cells[i] * column_cells[j]. x_zero, zero: the zero points of x and y. */
NOINLINE void average_pool_int8(const pool_int8 *p, const integer *row_cells, const integer *column_cells, const divisor *divisors,
                                int x_zero, int zero, const int8_t *x, int8_t *y) {
  EACH(i, p->rows) EACH(j, p->columns) {
    const divisor *by = divisors;
    while (by->cells != row_cells[i] * column_cells[j]) by++;
    EACH(c, p->channels) {
      int32_t sum = 0;
      EACH_CELL(p, i, j, 1, 1) sum += x[(h * p->width + v) * p->channels + c] - x_zero;
      y[(i * p->columns + j) * p->channels + c] = clip(zero + rescale(sum, by->multiplier, by->shift), -128, 127);
    }
  }
}

typedef struct { int zero; int32_t multiplier; } term;

/* The sum of `count` values of n numbers each. */
NOINLINE void add_int8(integer n, integer count, const term *terms, int shift, int zero, int low, int high, const int8_t *const *x,
                       int8_t *y) {
  EACH(i, n) {
    int32_t sum = 0;
    EACH(k, count) sum += (x[k][i] - terms[k].zero) * terms[k].multiplier;
    y[i] = clip(zero + rescale(sum, 1, shift), low, high);
  }
}

/* y = a * b; b may have one number for all pixels of a channel. */
NOINLINE void multiply_int8(integer pixels, integer b_pixels, integer channels, int a_zero, int b_zero, int32_t multiplier, int shift,
                            int zero, const int8_t *a, const int8_t *b, int8_t *y) {
  EACH(p, pixels) EACH(c, channels) {
    const int32_t u = a[p * channels + c] - a_zero, v = b[(b_pixels == 1 ? 0 : p) * channels + c] - b_zero;
    y[p * channels + c] = clip(zero + rescale(u * v, multiplier, shift), -128, 127);
  }
}

NOINLINE void look_up(integer n, const int8_t *table, const int8_t *x, int8_t *y) { EACH(i, n) y[i] = table[x[i] + 128]; }

NOINLINE void fill_int8(integer n, int q, int8_t *y) { memset(y, q, (size_t)n); }

typedef struct { integer n, x, y; } loop;                /* times, and the steps in x and y */

/* Copies of `size` numbers each, in four nested loops; the first one is from place x to place y. */
typedef struct { integer size, x, y; loop loops[4]; } copies;

NOINLINE void copy_all(integer count, const copies *all, const int8_t *x, int8_t *y) {
  for (const copies *k = all; k < all + count; k++) {
    const loop *l = k->loops;
    EACH(a, l[0].n) EACH(b, l[1].n) EACH(c, l[2].n) EACH(d, l[3].n) {
      const int8_t *from = x + k->x + a * l[0].x + b * l[1].x + c * l[2].x + d * l[3].x;
      int8_t *to = y + k->y + a * l[0].y + b * l[1].y + c * l[2].y + d * l[3].y;
      if (k->size == 1) *to = *from;
      else memcpy(to, from, (size_t)k->size);
    }
  }
}
