/* shapes.c: copies, and values of several branches. */

NOINLINE void copy(integer n, const real *x, real *y) { memcpy(y, x, (size_t)n * sizeof(real)); }

/* y [columns][rows], x [rows][columns]: from channels first to channels last, or back. */
NOINLINE void transpose(integer rows, integer columns, const real *x, real *y) {
  EACH(i, rows) EACH(j, columns) y[j * rows + i] = x[i * columns + j];
}

/* Columns `from` to from + n of x [rows][x_columns] become columns `to` to to + n of y [rows][y_columns]. */
NOINLINE void copy_columns(integer rows, integer n, integer x_columns, integer from, const real *x, integer y_columns, integer to, real *y) {
  EACH(i, rows) memcpy(y + i * y_columns + to, x + i * x_columns + from, (size_t)n * sizeof(real));
}

/* Column j of y [rows][n] is column start + j * step of x [rows][x_n]; a column has `inner` numbers in a row. */
NOINLINE void take_columns(integer rows, integer n, integer x_n, integer inner, integer start, integer step, const real *x, real *y) {
  EACH(i, rows) EACH(j, n) memcpy(y + (i * n + j) * inner, x + (i * x_n + start + j * step) * inner, (size_t)inner * sizeof(real));
}

/* Row or column i of an image of `size` that is continued beyond its ends: mirrored, by its ends, by its other end. */
INLINE integer reflect(integer i, integer size) { return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i; }

INLINE integer replicate(integer i, integer size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

INLINE integer circular(integer i, integer size) { return i < 0 ? i + size : i >= size ? i - size : i; }

/* y [height][width] is x [x_height][x_width] at (top, left), and continued around it; pixels of `channels` numbers. */
#define PAD_ARGUMENTS \
  integer x_height, integer x_width, integer top, integer left, integer height, integer width, integer channels, const real *x, real *y
#define PAD(source) \
  EACH(i, height) EACH(j, width) \
    memcpy(y + (i * width + j) * channels, x + (source(i - top, x_height) * x_width + source(j - left, x_width)) * channels, \
           (size_t)channels * sizeof(real));

NOINLINE void pad_reflect(PAD_ARGUMENTS) { PAD(reflect) }

NOINLINE void pad_replicate(PAD_ARGUMENTS) { PAD(replicate) }

NOINLINE void pad_circular(PAD_ARGUMENTS) { PAD(circular) }

/* y [height][width], a part of x [x_height][x_width], at (top, left), of pixels of `channels` numbers; `value` outside x. */
NOINLINE void crop(integer x_height, integer x_width, integer top, integer left, integer height, integer width, integer channels,
                 real value, const real *x, real *y) {
  EACH(i, height) EACH(j, width) {
    const integer h = i + top, w = j + left;
    const int inside = h >= 0 && h < x_height && w >= 0 && w < x_width;
    EACH(c, channels) y[(i * width + j) * channels + c] = inside ? x[(h * x_width + w) * channels + c] : value;
  }
}

/* The next index in an array of these sizes, the last axis first; at: the sum over axes of index * stride. */
INLINE void next_place(int axes, const integer *sizes, const integer *strides, integer *index, integer *at) {
  for (int k = axes - 1; k >= 0; k--) {
    *at += strides[k];
    if (++index[k] < sizes[k]) break;
    *at -= sizes[k] * strides[k];
    index[k] = 0;
  }
}

/* Number i of y is the one of x at the sum over axes of index * stride; the last axis is the fastest. */
NOINLINE void permute(int axes, const integer *sizes, const integer *strides, const real *x, real *y) {
  integer index[8] = {0}, at = 0, n = 1;
  for (int k = 0; k < axes; k++) n *= sizes[k];
  EACH(i, n) {
    y[i] = x[at];
    next_place(axes, sizes, strides, index, &at);
  }
}

INLINE real larger_of(real a, real b) { return a > b ? a : a == a ? b : a; }

INLINE real smaller_of(real a, real b) { return a < b ? a : a == a ? b : a; }

NOINLINE void add_all(integer n, const real *a, const real *b, real *y) { EACH(i, n) y[i] = flush(a[i] + b[i]); }

NOINLINE void multiply_all(integer n, const real *a, const real *b, real *y) { EACH(i, n) y[i] = flush(a[i] * b[i]); }

NOINLINE void divide_all(integer n, const real *a, const real *b, real *y) { EACH(i, n) y[i] = flush(a[i] / b[i]); }

NOINLINE void maximum_all(integer n, const real *a, const real *b, real *y) { EACH(i, n) y[i] = larger_of(a[i], b[i]); }

NOINLINE void minimum_all(integer n, const real *a, const real *b, real *y) { EACH(i, n) y[i] = smaller_of(a[i], b[i]); }

NOINLINE void power_all(integer n, const real *a, const real *b, real *y) { EACH(i, n) y[i] = power(a[i], b[i]); }

/* Number i of a loop through these sizes, the last one fastest, is at the sum over axes of index * step. */
INLINE integer place(int axes, const integer *sizes, const integer *steps, integer i) {
  integer at = 0;
  for (int k = axes - 1; k >= 0; k--) {
    at += i % sizes[k] * steps[k];
    i /= sizes[k];
  }
  return at;
}

/* A step is 0 along the axes along which a or b is broadcast. */
#define BROADCAST(value) \
  integer n = 1; \
  for (int k = 0; k < axes; k++) n *= sizes[k]; \
  EACH(i, n) { \
    const real u = a[place(axes, sizes, a_steps, i)], v = b[place(axes, sizes, b_steps, i)]; \
    y[i] = value; \
  }
#define BROADCAST_ARGUMENTS \
  int axes, const integer *sizes, const integer *a_steps, const integer *b_steps, const real *a, const real *b, real *y

NOINLINE void add_broadcast(BROADCAST_ARGUMENTS) { BROADCAST(flush(u + v)) }

NOINLINE void multiply_broadcast(BROADCAST_ARGUMENTS) { BROADCAST(flush(u * v)) }

NOINLINE void divide_broadcast(BROADCAST_ARGUMENTS) { BROADCAST(flush(u / v)) }

NOINLINE void maximum_broadcast(BROADCAST_ARGUMENTS) { BROADCAST(larger_of(u, v)) }

NOINLINE void minimum_broadcast(BROADCAST_ARGUMENTS) { BROADCAST(smaller_of(u, v)) }

NOINLINE void power_broadcast(BROADCAST_ARGUMENTS) { BROADCAST(power(u, v)) }

/* y = a * b; a or b may have one number for all pixels of a channel. */
NOINLINE void multiply(integer a_pixels, integer b_pixels, integer channels, const real *a, const real *b, real *y) {
  EACH(p, a_pixels > b_pixels ? a_pixels : b_pixels) EACH(c, channels)
    y[p * channels + c] = flush(a[(a_pixels == 1 ? 0 : p) * channels + c] * b[(b_pixels == 1 ? 0 : p) * channels + c]);
}

/* y [length][dim] = rows x[i] of w [categories][dim]; NaN for numbers that are no category */
NOINLINE void embed(integer length, integer categories, integer dim, const real *x, const real *w, real *y) {
  EACH(i, length) {
    const int known = x[i] >= 0 && x[i] < (real)categories;
    const integer category = known ? (integer)x[i] : 0;
    const int whole = known && (real)category == x[i];
    EACH(k, dim) y[i * dim + k] = whole ? w[category * dim + k] : real_from_bits(QUIET_NAN);
  }
}

/* 1 at the one of categories[c] outputs that x[c] is the index of, and 0 at the others, for each column c. */
NOINLINE void encode_one_hot(integer columns, const integer *categories, const real *x, real *y) {
  EACH(c, columns) EACH(k, categories[c]) *y++ = flush(x[c]) == (real)k;
}

/* The places of x[c] in outputs[c] bins, from 0 to 1, for each column c; 0 for NaN. With a width of 0: 1 for NaN, else 0. */
NOINLINE void encode_bins(integer columns, const integer *outputs, const real *x, const real *low, const real *width, real *y) {
  EACH(c, columns) EACH(j, outputs[c]) {
    const real place = *width == 0 ? (real)(x[c] != x[c]) : flush(flush(x[c] - *low) / *width);
    *y++ = place > 0 ? place < 1 ? place : 1 : 0;
    low++, width++;
  }
}
