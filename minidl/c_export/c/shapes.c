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

NOINLINE void add(integer n, const real *a, const real *b, real *y) { EACH(i, n) y[i] = flush(a[i] + b[i]); }

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
