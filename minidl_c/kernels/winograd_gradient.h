/* winograd_gradient.h: the transforms and products of Winograd's weight gradient.
 *
 * A patch is 4 x 4 gradients dy of outputs and the 6 x 6 inputs d that these outputs read. It adds to the 3 x 3 gradients
 * dw += G^T [(A dy A^T) * (B^T d B)] G, with the matrices of winograd_tiles.h: 36 products instead of 144. G^T s G is linear, so it is
 * computed once for a tile of 16 examples, of the sum over patches.
 *
 * The sum has three levels. A chain of multiply-adds starts from 0 and takes CHAIN_PATCHES patches of each of CHAIN_EXAMPLES examples. The
 * chains of a tile are added up in order; and their sum is added to that of the patches before.
 * That is so in both layouts, so the bits are the same. (Short chains have smaller errors.) Outputs are in the lanes, so that no lanes
 * have to be added up: the dy of a tile is transposed. */
#ifndef REAL
#ifndef MINIDL_WINOGRAD_GRADIENT_H
#define MINIDL_WINOGRAD_GRADIENT_H
#include "minidl_c/kernels/winograd_tiles.h"
#include "minidl_c/simd/transpose.h"

#define CHAIN_PATCHES 4
#define CHAIN_EXAMPLES 2
#define VECTOR_PATCHES (CHAIN_PATCHES * LANES)          /* numbers of the patches of a vector, at one point */

/* One point of some patches: v of 8 or 16 channels, dm [outputs / 16][16 examples][patches][16]. Strides in elements. */
typedef struct {
  ptrdiff_t channels, outputs, examples, patches;
  ptrdiff_t v_channel, v_example;      /* from patch to patch they are 16 */
  ptrdiff_t s_channel;
} gradient_sizes;

/* The register tile: channels x vectors of outputs. */
#define SUM_CHANNELS (VECTOR_REGISTERS == 32 ? 8 : 4)
#define SUM_VECTORS 2

#define transform_dy(p, dy, dm, dm_point) BY_DTYPE(transform_dy, dm)(p, dy, dm, dm_point)
#define transform_dy_of_tile(p, examples, dy, dm, dm_point) BY_DTYPE(transform_dy_of_tile, dm)(p, examples, dy, dm, dm_point)
#define gradient_product(z, v, dm, s) BY_DTYPE(gradient_product, s)(z, v, dm, s)
#define transform_back(channels, outputs, s, s_point, dw, dw_tap) \
  BY_DTYPE(transform_back, dw)(channels, outputs, s, s_point, dw, dw_tap)

#define TEMPLATE "minidl_c/kernels/winograd_gradient.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* dm = A dy: the gradient of m in y = A^T m */
INLINE void FN(dy_line)(const V *dy, V *dm) {
  V even_p = FN(fma)(CONSTANT(P2), dy[2], dy[0]), odd_p = FN(fma)(CONSTANT(P3), dy[3], CONSTANT(P1) * dy[1]);
  V even_q = FN(fma)(CONSTANT(Q2), dy[2], dy[0]), odd_q = FN(fma)(CONSTANT(Q3), dy[3], CONSTANT(Q1) * dy[1]);
  dm[0] = dy[0];
  dm[1] = even_p + odd_p;
  dm[2] = even_p - odd_p;
  dm[3] = even_q + odd_q;
  dm[4] = even_q - odd_q;
  dm[5] = dy[3];
}

/* OUT dm [points] = A dy A^T for one patch of 16 outputs; after the first rows and columns, dy is 0. */
INLINE void FN(transform_dy_patch)(ptrdiff_t rows, ptrdiff_t columns, const REAL *dy, ptrdiff_t dy_row, ptrdiff_t dy_column, REAL *dm,
                                   ptrdiff_t dm_point) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V t[OUT][SIDE];
    ROLL for (int j = 0; j < OUT; j++) {
      V d[OUT], o[SIDE];
      UNROLL for (int i = 0; i < OUT; i++) {
        d[i] = (V){0};
        if (i < rows && j < columns) d[i] = *(const V *)(dy + i * dy_row + j * dy_column + lane);
      }
      FN(dy_line)(d, o);
      UNROLL for (int i = 0; i < SIDE; i++) t[j][i] = o[i];
    }
    ROLL for (int i = 0; i < SIDE; i++) {
      V d[OUT], o[SIDE];
      UNROLL for (int j = 0; j < OUT; j++) d[j] = t[j][i];
      FN(dy_line)(d, o);
      UNROLL for (int j = 0; j < SIDE; j++) *(V *)(dm + (i * SIDE + j) * dm_point + lane) = o[j];
    }
  }
}

/* OUT dm [points][patches][16] from the dy of one example, [out_height][out_width][16]. */
NOINLINE void FN(transform_dy)(const winograd_patches *p, const REAL *dy, REAL *dm, ptrdiff_t dm_point) {
  for (ptrdiff_t patch = p->first; patch < p->first + p->n; patch++, dm += LANES) {
    const ptrdiff_t row0 = patch / p->across * OUT, column0 = patch % p->across * OUT;
    FN(transform_dy_patch)(p->out_height - row0, p->out_width - column0, dy + (row0 * p->out_width + column0) * LANES,
                           p->out_width * LANES, LANES, dm, dm_point);
  }
}

/* OUT dm [points][examples][patches][16] from the dy of 16 outputs of a tile, [16][out_height][out_width][16 examples]. */
NOINLINE void FN(transform_dy_of_tile)(const winograd_patches *p, ptrdiff_t examples, const REAL *dy, REAL *dm, ptrdiff_t dm_point) {
  const ptrdiff_t output = p->out_height * p->out_width * LANES, pixel = LANES * LANES;
  REAL pixels[OUT * OUT * LANES * LANES] __attribute__((aligned(64)));          /* [pixels][examples][outputs] */
  for (ptrdiff_t patch = p->first; patch < p->first + p->n; patch++, dm += LANES) {
    const ptrdiff_t row0 = patch / p->across * OUT, column0 = patch % p->across * OUT;
    for (int i = 0; i < OUT && row0 + i < p->out_height; i++)
      for (int j = 0; j < OUT && column0 + j < p->out_width; j++)
        for (int k = 0; k < LANES; k += 4)
          for (int e = 0; e < LANES; e += 4)
            FN(transpose_4x4)(dy + k * output + ((row0 + i) * p->out_width + column0 + j) * LANES + e, output,
                              pixels + (i * OUT + j) * pixel + e * LANES + k, LANES);
    for (ptrdiff_t e = 0; e < examples; e++)
      FN(transform_dy_patch)(p->out_height - row0, p->out_width - column0, pixels + e * LANES, OUT * pixel, pixel,
                             dm + e * VECTOR_PATCHES, dm_point);
  }
}

/* ADD s [channels][outputs] += the sum over examples and patches of v[c] * dm[k], for SUM_CHANNELS channels and NV vectors of outputs. */
INLINE void FN(gradient_product_body)(const int NV, const gradient_sizes *z, const REAL *v, const REAL *dm, REAL *s) {
  V total[SUM_CHANNELS][SUM_VECTORS];
  UNROLL for (int i = 0; i < SUM_CHANNELS; i++) UNROLL for (int j = 0; j < NV; j++) total[i][j] = (V){0};
  ROLL for (ptrdiff_t e = 0; e < z->examples; e += CHAIN_EXAMPLES) {
    const ptrdiff_t end = e + CHAIN_EXAMPLES < z->examples ? e + CHAIN_EXAMPLES : z->examples;
    V sum[SUM_CHANNELS][SUM_VECTORS];
    UNROLL for (int i = 0; i < SUM_CHANNELS; i++) UNROLL for (int j = 0; j < NV; j++) sum[i][j] = (V){0};
    ROLL for (ptrdiff_t example = e; example < end; example++) {
      const REAL *vt = v + example * z->v_example, *dmt = dm + example * VECTOR_PATCHES;
      ROLL for (ptrdiff_t patch = 0; patch < z->patches; patch++, vt += LANES, dmt += LANES) {
        V gradient[SUM_VECTORS];
        UNROLL for (int j = 0; j < NV; j++) {
          V t = *(const V *)(dmt + j * VL / LANES * LANES * VECTOR_PATCHES + j * VL % LANES); KEEP(t); gradient[j] = t;
        }
        UNROLL for (int i = 0; i < SUM_CHANNELS; i++) {
          V x = FN(broadcast)(vt[i * z->v_channel]);
          UNROLL for (int j = 0; j < NV; j++) sum[i][j] = FN(fma)(x, gradient[j], sum[i][j]);
        }
        STEP(vt); STEP(dmt);
      }
    }
    UNROLL for (int i = 0; i < SUM_CHANNELS; i++) UNROLL for (int j = 0; j < NV; j++) total[i][j] += sum[i][j];
  }
  UNROLL for (int i = 0; i < SUM_CHANNELS; i++) UNROLL for (int j = 0; j < NV; j++) *(V *)(s + i * z->s_channel + j * VL) += total[i][j];
}

/* One point: all channels and outputs. */
NOINLINE void FN(gradient_product)(const gradient_sizes *z, const REAL *v, const REAL *dm, REAL *s) {
  for (ptrdiff_t k = 0; k < z->outputs; k += SUM_VECTORS * VL) {
    const REAL *dmk = dm + k / LANES * LANES * VECTOR_PATCHES + k % LANES;
    for (ptrdiff_t c = 0; c < z->channels; c += SUM_CHANNELS)
      if (z->outputs - k > VL) FN(gradient_product_body)(2, z, v + c * z->v_channel, dmk, s + c * z->s_channel + k);
      else FN(gradient_product_body)(1, z, v + c * z->v_channel, dmk, s + c * z->s_channel + k);
  }
}

/* dw = G^T s, for 16 weights each */
INLINE void FN(gradient_taps)(double (*s)[LANES], double (*dw)[LANES]) {
  for (int l = 0; l < LANES; l++) {
    double even_p = SCALE_P * (s[1][l] + s[2][l]), odd_p = SCALE_P * (s[1][l] - s[2][l]);
    double even_q = SCALE_Q * (s[3][l] + s[4][l]), odd_q = SCALE_Q * (s[3][l] - s[4][l]);
    dw[0][l] = SCALE_0 * s[0][l] + even_p + even_q;
    dw[1][l] = P1 * odd_p + Q1 * odd_q;
    dw[2][l] = P2 * even_p + Q2 * even_q + s[5][l];
  }
}

/* ADD dw [channels][9 taps][outputs], with dw_tap numbers from a tap to the next, += G^T s G for s [points][channels][outputs]. In
 * double: rounded once before it is added. */
NOINLINE void FN(transform_back)(ptrdiff_t channels, ptrdiff_t outputs, const REAL *s, ptrdiff_t s_point, REAL *dw, ptrdiff_t dw_tap) {
  double column[SIDE][LANES], taps[3][LANES], half[3][SIDE][LANES];
  for (ptrdiff_t c = 0; c < channels; c++, s += outputs, dw += TAPS * dw_tap) {
    for (ptrdiff_t k = 0; k < outputs; k += LANES) {
      for (int j = 0; j < SIDE; j++) {
        for (int i = 0; i < SIDE; i++) for (int l = 0; l < LANES; l++) column[i][l] = s[(i * SIDE + j) * s_point + k + l];
        FN(gradient_taps)(column, taps);
        for (int r = 0; r < 3; r++) memcpy(half[r][j], taps[r], sizeof taps[r]);
      }
      for (int r = 0; r < 3; r++) {
        FN(gradient_taps)(half[r], taps);
        for (int j = 0; j < 3; j++) for (int l = 0; l < LANES; l++) dw[(3 * r + j) * dw_tap + k + l] += (REAL)taps[j][l];
      }
    }
  }
}
#endif
