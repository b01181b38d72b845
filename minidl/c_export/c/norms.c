/* norms.c: normalizations, scales and softmax. Images are [pixels][channels]. */

/* y = (x - mean) * slope + shift of each channel: batch norm in inference */
NOINLINE void batch_norm(integer pixels, integer channels, const real *x, const real *mean, const real *slope, const real *shift,
                       real *y) {
  EACH(p, pixels) for (integer c = 0; c < channels; c += LANES) {
    const real *xc = x + p * channels + c;
    store(y + p * channels + c, vec_fma(flush(load(xc) - load(mean + c)), load(slope + c), load(shift + c)), channels - c);
  }
}

/* y = (x - mean) / std of each channel */
NOINLINE void normalize(integer pixels, integer channels, const real *x, const real *mean, const real *std, real *y) {
  EACH(p, pixels) EACH(c, channels) y[p * channels + c] = flush(flush(x[p * channels + c] - mean[c]) / std[c]);
}

/* y = weight * x + bias of each channel */
NOINLINE void scale_channels(integer pixels, integer channels, const real *x, const real *weight, const real *bias, real *y) {
  EACH(p, pixels) EACH(c, channels) y[p * channels + c] = real_fma(x[p * channels + c], weight[c], bias ? bias[c] : 0);
}

/* y = weight * x + bias. Number i of x has the weight at the sum over axes of index * stride; the last axis is the fastest. */
NOINLINE void scale_places(int axes, const integer *sizes, const integer *strides, const real *x, const real *weight, const real *bias,
                         real *y) {
  integer index[8] = {0}, at = 0, n = 1;
  for (int k = 0; k < axes; k++) n *= sizes[k];
  EACH(i, n) {
    y[i] = real_fma(x[i], weight[at], bias ? bias[at] : 0);
    next_place(axes, sizes, strides, index, &at);
  }
}

/* y = x if x > 0, else weight * x; `weights` of them: one for each channel, or one */
NOINLINE void prelu(integer pixels, integer channels, integer weights, const real *x, const real *weight, real *y) {
  EACH(p, pixels) EACH(c, channels) y[p * channels + c] = leaky_relu(x[p * channels + c], weight[c % weights]);
}

/* x * scale - center. The scale of a norm is 1, or SHRINK where the sum of the squares is above MOST, and may overflow. */
INLINE real deviation(real x, real scale, real center) { return scale == 1 ? flush(x - center) : real_fma(x, scale, -center); }

/* Whether a sum of squares has to be computed again, from scaled numbers. */
INLINE int overflows(real squares, real scale) { return scale == 1 && !(squares <= MOST); }

/* The sums of d and of d * d over some of the numbers of a group, where d = x * scale - center: number i of the group's `channels`, from
 * x on, is pixel i % pixels of channel i / pixels. Four chains, of every fourth number, in blocks of 256. */
INLINE void sum_deviations(integer pixels, integer channels, integer row, const real *x, real scale, real center, real *sum,
                           real *squares) {
  const integer all = channels * pixels;
  *sum = *squares = 0;
  for (integer start = 0; start < all; start += 256) {
    const integer n = all - start < 256 ? all - start : 256;
    real s[4] = {0, 0, 0, 0}, q[4] = {0, 0, 0, 0};
    EACH(i, n) {
      const integer at = start + i, chain = i < n / 4 * 4 ? i % 4 : 0;
      const real d = deviation(x[at % pixels * row + at / pixels], scale, center);
      s[chain] = flush(s[chain] + d);
      q[chain] = real_fma(d, d, q[chain]);
    }
    *sum = flush(*sum + flush(flush(s[0] + s[1]) + flush(s[2] + s[3])));
    *squares = flush(*squares + flush(flush(q[0] + q[1]) + flush(q[2] + q[3])));
  }
}

/* y = weight * (x - mean) / sqrt(variance + eps) + bias; mean and variance are those of each group of `channels`. */
NOINLINE void group_norm(integer pixels, integer groups, integer channels, real eps, const real *x, const real *weight, const real *bias,
                       real *y) {
  const integer row = groups * channels;
  const real count = (real)(channels * pixels);
  EACH(g, groups) {
    const real *xg = x + g * channels;
    real mean, sum, squares, scale = 1;
    for (int again = 1; again; ) {
      mean = deviation(*xg, scale, 0);
      sum_deviations(pixels, channels, row, xg, scale, mean, &sum, &squares);
      mean = flush(mean + flush(sum / count));
      sum_deviations(pixels, channels, row, xg, scale, mean, &sum, &squares);
      again = overflows(squares, scale);
      if (again) scale = SHRINK;
    }
    const real correction = flush(sum / count);
    real variance = flush(flush(squares / count) - flush(correction * correction));
    if (variance < 0) variance = 0;
    const real inverse = flush(1 / real_sqrt(flush(variance + flush(flush(eps * scale) * scale))));
    const real shift = flush(-correction * inverse);
    for (integer c = g * channels; c < (g + 1) * channels; c++) {
      const real w = weight ? weight[c] : 1, factor = flush(inverse * w), offset = real_fma(shift, w, bias ? bias[c] : 0);
      EACH(p, pixels) y[p * row + c] = real_fma(deviation(x[p * row + c], scale, mean), factor, offset);
    }
  }
}

/* The same sums over the n channels of a pixel: 16 chains, of every 16th channel, which are combined by halving; blocks of 1024. */
INLINE void sum_channels(integer n, const real *x, real scale, real center, real *sum, real *squares) {
  *sum = *squares = 0;
  for (integer start = 0; start < n; start += 1024) {
    real s[16] = {0}, q[16] = {0};
    for (integer c = start; c < n && c < start + 1024; c++) {
      const real d = deviation(x[c], scale, center);
      s[c % 16] = flush(s[c % 16] + d);
      q[c % 16] = real_fma(d, d, q[c % 16]);
    }
    for (integer half = 8; half; half /= 2)
      EACH(i, half) {
        s[i] = flush(s[i] + s[i + half]);
        q[i] = flush(q[i] + q[i + half]);
      }
    *sum = flush(*sum + s[0]);
    *squares = flush(*squares + q[0]);
  }
}

/* y = weight * (x - mean) / sqrt(variance + eps) + bias over the channels of each pixel; without `centered`, mean and bias are 0. */
NOINLINE void layer_norm(integer pixels, integer channels, int centered, real eps, const real *x, const real *weight, const real *bias,
                       real *y) {
  const real count = (real)channels;
  EACH(p, pixels) {
    const real *xp = x + p * channels;
    real mean = 0, sum, squares, correction = 0, scale = 1;
    for (int again = 1; again; ) {
      if (centered) {
        mean = deviation(*xp, scale, 0);
        sum_channels(channels, xp, scale, mean, &sum, &squares);
        mean = flush(mean + flush(sum / count));
      }
      sum_channels(channels, xp, scale, mean, &sum, &squares);
      again = overflows(squares, scale);
      if (again) scale = SHRINK;
    }
    if (centered) correction = flush(sum / count);
    real variance = flush(flush(squares / count) - flush(correction * correction));
    if (variance < 0) variance = 0;
    const real inverse = flush(1 / real_sqrt(flush(variance + flush(flush(eps * scale) * scale))));
    const real shift = flush(-correction * inverse);
    EACH(c, channels) {
      const real n = real_fma(deviation(xp[c], scale, mean), inverse, shift);
      y[p * channels + c] = real_fma(n, weight ? weight[c] : 1, bias ? bias[c] : 0);
    }
  }
}

/* The largest of n numbers, each `step` after the one before, or NaN if one is. */
INLINE real largest(integer n, integer step, const real *x) {
  real top = *x;
  for (integer i = 1; i < n; i++) top = x[i * step] > top || x[i * step] != x[i * step] ? x[i * step] : top;
  return top;
}

/* y[k] = exp(x[k]) / the sum of exp(x[j]) over the n numbers of an axis; x [outer][n][inner], y may be x. sign: -1 for softmin. */
NOINLINE void softmax(integer outer, integer n, integer inner, real sign, const real *x, real *y) {
  EACH(i, outer) EACH(j, inner) {
    const real *xi = x + i * n * inner + j;
    real *yi = y + i * n * inner + j, total = 0;
    EACH(k, n) yi[k * inner] = sign < 0 ? -xi[k * inner] : xi[k * inner];
    const real top = largest(n, inner, yi);
    EACH(k, n) {
      yi[k * inner] = real_exp(flush(yi[k * inner] - top));
      total = flush(total + yi[k * inner]);
    }
    EACH(k, n) yi[k * inner] = flush(yi[k * inner] / total);
  }
}

NOINLINE void log_softmax(integer outer, integer n, integer inner, const real *x, real *y) {
  EACH(i, outer) EACH(j, inner) {
    const real *xi = x + i * n * inner + j, top = largest(n, inner, xi);
    real total = 0;
    EACH(k, n) total = flush(total + real_exp(flush(xi[k * inner] - top)));
    const real log_total = real_log(total);
    EACH(k, n) y[i * n * inner + j + k * inner] = flush(flush(xi[k * inner] - top) - log_total);
  }
}

/* y = x / (k + scale * the sum of x^2 over the channels at most `reach` away)^beta, as exp(-beta log) */
NOINLINE void local_response_norm(integer pixels, integer channels, integer reach, real scale, real beta, real k, const real *x, real *y) {
  EACH(p, pixels) EACH(c, channels) {
    const real *xp = x + p * channels;
    const integer end = channels - c <= reach ? channels : c + reach + 1;
    real sum = 0;
    for (integer j = c < reach ? 0 : c - reach; j < end; j++) sum = real_fma(xp[j], xp[j], sum);
    y[p * channels + c] = flush(xp[c] * real_exp(flush(-beta * real_log(real_fma(scale, sum, k)))));
  }
}
