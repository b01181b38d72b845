/* softmax_tiles.h: exp and log of every lane, and softmax cross-entropy of 16 examples.
 *
 * libm picks its own variant for every processor; these polynomials give the same bits everywhere. exp: x = n ln 2 + r,
 * a polynomial in r, times 2^n in two factors so that subnormal results are right. log: x = 2^e m with m near 1, and the
 * series of 2 artanh((m - 1) / (m + 1)). (Cephes and fdlibm use the same reductions.) */
#ifndef REAL
#ifndef MINIDL_SOFTMAX_TILES_H
#define MINIDL_SOFTMAX_TILES_H
#include "lanes.h"

INLINE vector_f32 exp_f32(vector_f32 x) {
#define C(c) broadcast_f32(c)
  const vector_f32 magic = C(12582912.f);                     /* 1.5 * 2^23: adding it rounds to an integer */
  x = select_f32(x > 89.f, C(89.f), x);
  x = select_f32(x < -104.f, C(-104.f), x);
  vector_f32 n = fma_f32(x, C(1.44269504f), magic) - magic;
  vector_f32 r = fma_f32(n, C(-0.693145752f), x);
  r = fma_f32(n, C(-1.42860677e-6f), r);
  vector_f32 p = C(1.98412698e-4f);
  p = fma_f32(p, r, C(1.38888889e-3f));
  p = fma_f32(p, r, C(8.33333333e-3f));
  p = fma_f32(p, r, C(4.16666667e-2f));
  p = fma_f32(p, r, C(0.166666667f));
  p = fma_f32(p, r, C(0.5f));
  p = fma_f32(p, r * r, r) + 1.f;
  vector_f32 half = fma_f32(n, C(0.5f), magic), rest = (n - (half - magic)) + magic;
  return p * (vector_f32)(((mask_f32)half << 23) + 0x3f800000) * (vector_f32)(((mask_f32)rest << 23) + 0x3f800000);
#undef C
}

INLINE vector_f64 exp_f64(vector_f64 x) {
#define C(c) broadcast_f64(c)
  static const double taylor[] = {1 / 6227020800., 1 / 479001600., 1 / 39916800., 1 / 3628800., 1 / 362880., 1 / 40320.,
                                  1 / 5040., 1 / 720., 1 / 120., 1 / 24., 1 / 6., 0.5};
  const vector_f64 magic = C(6755399441055744.0);             /* 1.5 * 2^52 */
  x = select_f64(x > 710.0, C(710.0), x);
  x = select_f64(x < -746.0, C(-746.0), x);
  vector_f64 n = fma_f64(x, C(1.4426950408889634), magic) - magic;
  vector_f64 r = fma_f64(n, C(-0.693147180369123816490), x);
  r = fma_f64(n, C(-1.90821492927058770002e-10), r);
  vector_f64 p = C(taylor[0]);
  UNROLL for (int i = 1; i < 12; i++) p = fma_f64(p, r, C(taylor[i]));
  p = fma_f64(p, r * r, r) + 1.0;
  vector_f64 half = fma_f64(n, C(0.5), magic), rest = (n - (half - magic)) + magic;
  return p * (vector_f64)(((mask_f64)half << 52) + 0x3ff0000000000000) * (vector_f64)(((mask_f64)rest << 52) + 0x3ff0000000000000);
#undef C
}

/* log of a normal number >= 1 (a sum of exponentials whose largest is 1); infinity and NaN come back as they are */
INLINE vector_f32 log_f32(vector_f32 x) {
#define C(c) broadcast_f32(c)
  mask_f32 e = ((mask_f32)x - 0x3f3504f3) >> 23;              /* m in [sqrt(1/2), sqrt(2)) */
  vector_f32 m = (vector_f32)((mask_f32)x - (e << 23)), n = __builtin_convertvector(e, vector_f32);
  vector_f32 s = (m - 1.f) / (m + 1.f), z = s * s, p = C(2.f / 11);
  p = fma_f32(p, z, C(2.f / 9));
  p = fma_f32(p, z, C(2.f / 7));
  p = fma_f32(p, z, C(2.f / 5));
  p = fma_f32(p, z, C(2.f / 3));
  p = fma_f32(p * z, s, 2.f * s);
  vector_f32 y = fma_f32(n, C(0.693145752f), fma_f32(n, C(1.42860677e-6f), p));
  return select_f32(x - x == 0.f, y, x);
#undef C
}

INLINE vector_f64 log_f64(vector_f64 x) {
#define C(c) broadcast_f64(c)
  mask_f64 e = ((mask_f64)x - 0x3fe6a09e667f3bcd) >> 52;
  vector_f64 m = (vector_f64)((mask_f64)x - (e << 52)), n = __builtin_convertvector(e, vector_f64);
  vector_f64 s = (m - 1.0) / (m + 1.0), z = s * s, p = C(2. / 23);
  UNROLL for (int k = 21; k >= 3; k -= 2) p = fma_f64(p, z, C(2. / k));
  p = fma_f64(p * z, s, 2. * s);
  vector_f64 y = fma_f64(n, C(0.693147180369123816490), fma_f64(n, C(1.90821492927058770002e-10), p));
  return select_f64(x - x == 0., y, x);
#undef C
}

#define TEMPLATE "softmax_tiles.h"
#include "for_each_dtype.h"
#endif
#else

/* p = softmax(x) over `classes`, in each lane; loss = log(sum exp(x - max)) - (x[label] - max), if labels are given.
 * x, p [classes][16]; labels and loss [16]. x and p may be the same. */
INLINE void FN(softmax_rows)(const REAL *x, ptrdiff_t classes, const int64_t *labels, REAL *p, REAL *loss) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V top = *(const V *)(x + lane), total = {0}, own = {0};
    M label = {0};
    if (labels) for (int i = 0; i < VL; i++) label[i] = labels[lane + i];
    for (ptrdiff_t k = 1; k < classes; k++) {
      V s = *(const V *)(x + k * LANES + lane);
      top = FN(select)((s > top) | (s != s), s, top);         /* a NaN score makes the row NaN */
    }
    for (ptrdiff_t k = 0; k < classes; k++) {
      V s = *(const V *)(x + k * LANES + lane) - top, e = FN(exp)(s);
      own = FN(select)(label == FN(integer)((int32_t)k), s, own);
      total += e;
      *(V *)(p + k * LANES + lane) = e;
    }
    if (loss) *(V *)(loss + lane) = FN(log)(total) - own;
    for (ptrdiff_t k = 0; k < classes; k++) *(V *)(p + k * LANES + lane) /= total;
  }
}
#endif
