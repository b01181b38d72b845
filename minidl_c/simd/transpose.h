/* transpose.h: the transpose of a matrix, 4 x 4 numbers in registers at a time. */
#ifndef REAL
#ifndef MINIDL_TRANSPOSE_H
#define MINIDL_TRANSPOSE_H
#include <string.h>
#include "minidl_c/simd/lanes.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define transpose(rows, columns, in, in_row, out, out_row) BY_DTYPE(transpose, out)(rows, columns, in, in_row, out, out_row)
#define LINE 16                        /* of a block: a line of the cache */

INLINE void transpose_4x4_f32(const float *in, ptrdiff_t in_row, float *out, ptrdiff_t out_row) {
#if defined(__SSE2__)
  __m128 a = _mm_loadu_ps(in), b = _mm_loadu_ps(in + in_row);
  __m128 c = _mm_loadu_ps(in + 2 * in_row), d = _mm_loadu_ps(in + 3 * in_row);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(out, a);
  _mm_storeu_ps(out + out_row, b);
  _mm_storeu_ps(out + 2 * out_row, c);
  _mm_storeu_ps(out + 3 * out_row, d);
#else
  for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) out[j * out_row + i] = in[i * in_row + j];
#endif
}
INLINE void transpose_4x4_f64(const double *in, ptrdiff_t in_row, double *out, ptrdiff_t out_row) {
  for (int j = 0; j < 4; j++) for (int i = 0; i < 4; i++) out[j * out_row + i] = in[i * in_row + j];
}

#define TEMPLATE "minidl_c/simd/transpose.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* The same for at most 16 rows and columns, along the array with the larger stride: its lines may have one place in the cache, and
 * are complete after a few steps. */
INLINE void FN(transpose_block)(ptrdiff_t rows, ptrdiff_t columns, const REAL *in, ptrdiff_t in_row, REAL *out, ptrdiff_t out_row) {
  ptrdiff_t even_rows = rows & ~3, even_columns = columns & ~3;
  if (in_row >= out_row) {
    for (ptrdiff_t i = 0; i < even_rows; i += 4)
      for (ptrdiff_t j = 0; j < even_columns; j += 4) FN(transpose_4x4)(in + i * in_row + j, in_row, out + j * out_row + i, out_row);
  } else {
    for (ptrdiff_t j = 0; j < even_columns; j += 4)
      for (ptrdiff_t i = 0; i < even_rows; i += 4) FN(transpose_4x4)(in + i * in_row + j, in_row, out + j * out_row + i, out_row);
  }
  for (ptrdiff_t j = even_columns; j < columns; j++) for (ptrdiff_t i = 0; i < even_rows; i++) out[j * out_row + i] = in[i * in_row + j];
  for (ptrdiff_t i = even_rows; i < rows; i++) for (ptrdiff_t j = 0; j < columns; j++) out[j * out_row + i] = in[i * in_row + j];
}

/* OUT out [columns][rows] = the transpose of in [rows][columns]; strides of their rows: in_row, out_row. */
NOINLINE void FN(transpose)(ptrdiff_t rows, ptrdiff_t columns, const REAL *in, ptrdiff_t in_row, REAL *out, ptrdiff_t out_row) {
  if (columns == 1 && in_row == 1) {
    memcpy(out, in, rows * sizeof(REAL));
    return;
  }
  for (ptrdiff_t j = 0; j < columns; j += LINE)
    for (ptrdiff_t i = 0; i < rows; i += LINE)
      FN(transpose_block)(rows - i < LINE ? rows - i : LINE, columns - j < LINE ? columns - j : LINE, in + i * in_row + j, in_row,
                          out + j * out_row + i, out_row);
}
#endif
