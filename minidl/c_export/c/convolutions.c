/* convolutions.c: convolutions, transposed and depthwise ones. */

/* Outputs along one axis that have the same taps: `out` is the first of n outputs, its first tap is `tap` of `taps`, which reads
 * input `source`. Taps outside the image are left out. */
typedef struct { integer n, out, tap, taps, source; } run;

/* The steps along the axis: from one output of a run to the next, in y and in x; from one tap to the next, in w and in x. */
typedef struct {
  const run *runs;
  integer n_runs, out_step, pixel_step, tap_step, source_step;
} axis;

typedef struct {
  integer groups, channels, filters;                     /* of a group */
  integer kernel_height, kernel_width, width, out_width;
  axis rows, columns;
} convolution;

/* x [height][width][groups * channels], w [group][channels][kernel_height][kernel_width][filters] or, for a convolution whose
 * weights have all filters side by side, [channels][kernel_height][kernel_width][groups * filters]: w_group and w_tap say which;
 * y [out_height][out_width][groups * filters] */
NOINLINE void convolve(const convolution *k, integer w_group, integer w_tap, const real *x, const real *w, const real *b, real *y) {
  const integer in = k->groups * k->channels, out = k->groups * k->filters, w_row = k->kernel_width * w_tap;
  const integer x_row = k->width * in, y_row = k->out_width * out;
  sum_steps t = {k->channels, 0, 0, 1, k->rows.source_step * x_row, k->columns.source_step * in, k->columns.pixel_step * in,
                 k->kernel_height * w_row, k->rows.tap_step * w_row, k->columns.tap_step * w_tap, k->columns.out_step * out, 0};
  EACH(g, k->groups) EACH(i, k->rows.n_runs) EACH(j, k->columns.n_runs) {
    const run row = k->rows.runs[i], column = k->columns.runs[j];
    const real *wg = w + g * w_group + row.tap * w_row + column.tap * w_tap;
    t.rows = row.taps;
    t.columns = column.taps;
    EACH(line, row.n) {
      const integer h = row.source + line * k->rows.pixel_step, oh = row.out + line * k->rows.out_step;
      sum_pixels(&t, k->filters, column.n, x + h * x_row + column.source * in + g * k->channels, wg, b ? b + g * k->filters : 0,
                 y + oh * y_row + column.out * out + g * k->filters);
    }
  }
}

/* Taps of `multiplier` filters of each channel: w [kernel_height][kernel_width][channels * multiplier]; k->groups are the channels. */
NOINLINE void convolve_channels(const convolution *k, integer multiplier, const real *x, const real *w, const real *b, real *y) {
  const integer in = k->groups, out = k->groups * multiplier, w_row = k->kernel_width * out, x_row = k->width * in;
  EACH(i, k->rows.n_runs) EACH(j, k->columns.n_runs) {
    const run row = k->rows.runs[i], column = k->columns.runs[j];
    EACH(line, row.n) EACH(p, column.n) {
      const integer h = row.source + line * k->rows.pixel_step, v = column.source + p * k->columns.pixel_step;
      const real *xp = x + h * x_row + v * in, *wp = w + row.tap * w_row + column.tap * out;
      real *yp = y + ((row.out + line) * k->out_width + column.out + p) * out;
      for (integer c = 0; c < out; c += multiplier == 1 ? LANES : 1) {
        if (multiplier == 1) {
          vec sum = b ? load(b + c) : fill(0);
          EACH(r, row.taps) EACH(s, column.taps)
            sum = vec_fma(load(wp + r * w_row + s * out + c),
                          load(xp + r * k->rows.source_step * x_row + s * k->columns.source_step * in + c), sum);
          store(yp + c, sum, out - c);
        } else {
          real sum = b ? b[c] : 0;
          EACH(r, row.taps) EACH(s, column.taps)
            sum = real_fma(wp[r * w_row + s * out + c],
                           xp[r * k->rows.source_step * x_row + s * k->columns.source_step * in + c / multiplier], sum);
          yp[c] = sum;
        }
      }
    }
  }
}
