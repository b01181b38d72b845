/* integer_sums.c: dense layers and convolutions of int8_t. Images are [height][width][channels].
 *
 *     y[o] = clip(zero + rescale(b[o] + the sum of x[k] * w[o][k], multipliers[o], shifts[o]), low, high)
 *
 * b[o] also holds - (the zero point of x) * (the sum of w[o][k]), so that the sum needs no zero point. */

typedef struct { const int32_t *b, *multipliers; const uint8_t *shifts; int zero, low, high; } output_scale;

INLINE int8_t scaled(const output_scale *s, integer o, int32_t sum) {
  return clip(s->zero + rescale(sum, s->multipliers[o], s->shifts[o]), s->low, s->high);
}

/* Adds the n products of x with two rows of weights. */
INLINE void add_products(integer n, const int8_t *x, const int8_t *v, const int8_t *w, int32_t *sum_v, int32_t *sum_w) {
  int32_t a = *sum_v, b = *sum_w;
  integer k = 0;
#if defined ARM_VECTORS
  for (; k < n; k += 16) {
    const mve_pred16_t inside = vctp8q((uint32_t)(n - k));
    const int8x16_t values = vldrbq_z_s8(x + k, inside);
    a = vmladavaq_s8(a, values, vldrbq_z_s8(v + k, inside));
    b = vmladavaq_s8(b, values, vldrbq_z_s8(w + k, inside));
  }
#elif defined ARM_PAIRS
  for (; k + 4 <= n; k += 4) {
    const halves values = load_four(x + k), first = load_four(v + k), second = load_four(w + k);
    a = __smlad(values.odd, first.odd, __smlad(values.even, first.even, a));
    b = __smlad(values.odd, second.odd, __smlad(values.even, second.even, b));
  }
#endif
  for (; k < n; k++) {
    a += x[k] * v[k];
    b += x[k] * w[k];
  }
  *sum_v = a;
  *sum_w = b;
}

/* Outputs o to end of a pixel, two at a time; the last one is computed twice if it is alone. w [outputs][n] */
INLINE void sum_outputs(const output_scale *s, integer n, integer o, integer end, const int8_t *x, const int8_t *w, int8_t *y) {
  for (; o < end; o += 2) {
    const integer next = o + 1 < end ? o + 1 : o;
    int32_t a = s->b[o], b = s->b[next];
    add_products(n, x, w + o * n, w + next * n, &a, &b);
    y[o] = scaled(s, o, a);
    y[next] = scaled(s, next, b);
  }
}

/* Each pixel alone: y [pixels][outputs], x [pixels][inputs], w [outputs][inputs] */
NOINLINE void dense_int8(integer pixels, integer inputs, integer outputs, const output_scale *s, const int8_t *w, const int8_t *x,
                         int8_t *y) {
  EACH(p, pixels) sum_outputs(s, inputs, 0, outputs, x + p * inputs, w, y + p * outputs);
}

typedef struct {
  integer height, width, out_height, out_width;
  integer groups, channels, filters;                     /* of a group */
  integer kernel_height, kernel_width, row_stride, column_stride, top, left;
  integer row_step, column_step;                         /* between the pixels of a window: the dilation */
  int zero;                                              /* of x, and what it is beyond the image */
} convolution_int8;

/* `channels` numbers of each pixel of the window of output (i, j), from x on, whose pixels have all groups: those of a row in one copy
 * if they are neighbours. */
INLINE void take_window(const convolution_int8 *k, integer i, integer j, integer channels, const int8_t *x, int8_t *window) {
  const integer all = k->groups * k->channels, left = j * k->column_stride - k->left;
  const int neighbours = channels == all && k->column_step == 1 && left >= 0 && left + k->kernel_width <= k->width;
  const integer pixels = neighbours ? k->kernel_width : 1;
  EACH(r, k->kernel_height) for (integer s = 0; s < k->kernel_width; s += pixels) {
    const integer h = i * k->row_stride - k->top + r * k->row_step, v = left + s * k->column_step;
    const int inside = h >= 0 && h < k->height && v >= 0 && v < k->width;
    if (inside) memcpy(window, x + (h * k->width + v) * all, (size_t)(pixels * channels));
    else memset(window, k->zero, (size_t)(pixels * channels));
    window += pixels * channels;
  }
}

/* w [groups * filters][kernel_height][kernel_width][channels] */
NOINLINE void convolve_int8(const convolution_int8 *k, const output_scale *s, const int8_t *w, const int8_t *x, int8_t *window,
                            int8_t *y) {
  const integer n = k->kernel_height * k->kernel_width * k->channels, out = k->groups * k->filters;
  EACH(i, k->out_height) EACH(j, k->out_width) EACH(g, k->groups) {
    take_window(k, i, j, k->channels, x + g * k->channels, window);
    sum_outputs(s, n, g * k->filters, (g + 1) * k->filters, window, w, y + (i * k->out_width + j) * out);
  }
}

/* Groups of one channel: w [kernel_height][kernel_width][groups * filters] */
NOINLINE void convolve_channels_int8(const convolution_int8 *k, const output_scale *s, const int8_t *w, const int8_t *x, int8_t *window,
                                     int8_t *y) {
  const integer taps = k->kernel_height * k->kernel_width, in = k->groups, out = in * k->filters;
  EACH(i, k->out_height) EACH(j, k->out_width) {
    int8_t *pixel = y + (i * k->out_width + j) * out;
    integer c = 0;
    take_window(k, i, j, in, x, window);
#ifdef ARM_PAIRS
    for (; k->filters == 1 && c + 4 <= in; c += 4) {
      int32_t sum[4];
      memcpy(sum, s->b + c, sizeof sum);
      EACH(t, taps) {
        const halves values = load_four(window + t * in + c), weights = load_four(w + t * in + c);
        sum[0] = __smlabb(values.even, weights.even, sum[0]);
        sum[1] = __smlabb(values.odd, weights.odd, sum[1]);
        sum[2] = __smlatt(values.even, weights.even, sum[2]);
        sum[3] = __smlatt(values.odd, weights.odd, sum[3]);
      }
      UNROLL EACH(l, 4) pixel[c + l] = scaled(s, c + l, sum[l]);
    }
#endif
    for (; c < in; c++) EACH(f, k->filters) {
      const integer o = c * k->filters + f;
      int32_t sum = s->b[o];
      EACH(t, taps) sum += window[t * in + c] * w[t * out + o];
      pixel[o] = scaled(s, o, sum);
    }
  }
}
