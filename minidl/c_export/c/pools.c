/* pools.c: the windows of pools, and upsampling. Images are [height][width][channels]. */

/* Windows along an axis: of `kernel` cells with a distance of `dilation`. Window i begins at i * stride - before; with a stride of 0, `n`
 * windows that cover the axis. counted_end: up to where an average counts cells; 0: only those inside. */
typedef struct { integer size, n, kernel, stride, before, dilation, counted_end; } windows;

typedef struct { integer start, first, end, counted; } window;       /* cells start + i * dilation, first <= i < end */

INLINE integer smaller(integer a, integer b) { return a < b ? a : b; }

INLINE window window_at(const windows *a, integer i) {
  window s = {i * a->stride - a->before, 0, 0, 0};
  if (a->stride == 0) {
    s.start = i * a->size / a->n;
    s.end = s.counted = ((i + 1) * a->size + a->n - 1) / a->n - s.start;
    return s;
  }
  if (s.start < 0) s.first = (-s.start + a->dilation - 1) / a->dilation;
  s.end = smaller(a->kernel, (a->size - 1 - s.start) / a->dilation + 1);
  s.counted = a->counted_end ? smaller(a->kernel, (a->counted_end - 1 - s.start) / a->dilation + 1) : s.end - s.first;
  return s;
}

/* The first NaN of a window, else its maximum. */
NOINLINE void max_pool(const windows *rows, const windows *columns, integer channels, const real *x, real *y) {
  EACH(oh, rows->n) EACH(ow, columns->n) {
    const window r = window_at(rows, oh), s = window_at(columns, ow);
    real *best = y + (oh * columns->n + ow) * channels;
    for (integer i = r.first; i < r.end; i++) for (integer j = s.first; j < s.end; j++) {
      const integer h = r.start + i * rows->dilation, w = s.start + j * columns->dilation;
      const real *cell = x + (h * columns->size + w) * channels;
      if (i == r.first && j == s.first) memcpy(best, cell, (size_t)channels * sizeof(real));
      else EACH(c, channels) best[c] = !(cell[c] <= best[c]) && best[c] == best[c] ? cell[c] : best[c];
    }
  }
}

/* Each row of a window has a sum of its own; the sum of these is divided by the number of cells. */
NOINLINE void average_pool(const windows *rows, const windows *columns, integer channels, const real *x, real *y) {
  EACH(oh, rows->n) EACH(ow, columns->n) {
    const window r = window_at(rows, oh), s = window_at(columns, ow);
    const vec cells = fill((real)(r.counted * s.counted));
    for (integer c = 0; c < channels; c += LANES) {
      vec sum = fill(0);
      for (integer i = r.first; i < r.end; i++) {
        const real *row = x + (r.start + i * rows->dilation) * columns->size * channels + c;
        vec part = fill(0);
        for (integer j = s.first; j < s.end; j++) part = flush(part + load(row + (s.start + j * columns->dilation) * channels));
        sum = flush(sum + part);
      }
      store(y + (oh * columns->n + ow) * channels + c, flush(sum / cells), channels - c);
    }
  }
}

/* Each pixel becomes a block of height * width equal ones. */
NOINLINE void repeat_pixels(integer height, integer width, integer down, integer right, integer channels, const real *x, real *y) {
  EACH(h, height * down) EACH(w, width * right)
    memcpy(y + (h * width * right + w) * channels, x + (h / down * width + w / right) * channels, (size_t)channels * sizeof(real));
}

/* Of an output along one axis: the two pixels around it, and their weights. */
typedef struct { integer low, high; real low_weight, high_weight; } blend;

NOINLINE void interpolate(const blend *rows, integer height, const blend *columns, integer width, integer x_width, integer channels,
                        const real *x, real *y) {
  EACH(h, height) EACH(w, width) {
    const blend r = rows[h], s = columns[w];
    const real *above = x + r.low * x_width * channels, *below = x + r.high * x_width * channels;
    EACH(c, channels) {
      const integer left = s.low * channels + c, right = s.high * channels + c;
      const real top = flush(flush(s.low_weight * above[left]) + flush(s.high_weight * above[right]));
      const real bottom = flush(flush(s.low_weight * below[left]) + flush(s.high_weight * below[right]));
      y[(h * width + w) * channels + c] = flush(flush(r.low_weight * top) + flush(r.high_weight * bottom));
    }
  }
}
