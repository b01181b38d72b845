/* dice_tiles.h: the Dice loss of scores and a target, over the positions of 16 examples. */
#ifndef REAL
#ifndef MINIDL_DICE_TILES_H
#define MINIDL_DICE_TILES_H
#include "minidl_c/kernels/softmax_tiles.h"
#include "minidl_c/losses/labels_tiles.h"

#define DICE_SUMS 4                    /* parallel sums, in turn: they hide the latency of an addition, and round less */

#define dice_rows(x, labels, t, channels, positions, smooth, ignored, sums, slope, loss) \
  BY_DTYPE(dice_rows, loss)(x, labels, t, channels, positions, smooth, ignored, sums, slope, loss)

#define TEMPLATE "minidl_c/losses/dice_tiles.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else
#define C(c) FN(broadcast)((REAL)(c))

/* t[k] at a position: that of a label, or a number; 0 where the position is ignored. A single channel is that of label 1. */
INLINE V FN(dice_target)(M label, const REAL *t, ptrdiff_t k, ptrdiff_t channels) {
  V target = t ? *(const V *)t : FN(select)(label == FN(integer)((int32_t)(channels == 1 ? 1 : k)), C(1), C(0));
  return FN(select)(label < 0, C(0), target);
}

/* p = softmax(x) over the channels of a position, or sigmoid(x) of a single one; 0 where the position is ignored. p may be x. */
INLINE void FN(dice_probabilities)(const REAL *x, M label, ptrdiff_t channels, ptrdiff_t stride, REAL *p) {
  V score = *(const V *)x, total = {0};
  if (channels == 1) {                                        /* sigmoid(x) = 1 / (1 + e), or e / (1 + e) for x < 0 */
    V e = FN(exp)(-FN(magnitude)(score));
    *(V *)p = FN(select)(label < 0, C(0), FN(select)(score < 0, e, C(1)) / (1 + e));
    return;
  }
  V top = FN(largest_score)(x, channels, stride);
  for (ptrdiff_t k = 0; k < channels; k++) total += *(V *)(p + k * stride) = FN(exp)(*(const V *)(x + k * stride) - top);
  for (ptrdiff_t k = 0; k < channels; k++) {
    V own = *(const V *)(p + k * stride) / total;
    *(V *)(p + k * stride) = FN(select)(label < 0, C(0), own);
  }
}

/* coefficient = (2 sum p t + smooth) / (sum p + sum t + smooth) of a channel, over its positions; 1 if both are 0. share = 1 / (sum p +
 * sum t + smooth), or 0. */
INLINE void FN(dice_coefficient)(const REAL *p, const int64_t *labels, const REAL *t, ptrdiff_t k, ptrdiff_t channels,
                                 ptrdiff_t positions, REAL smooth, int64_t ignored, REAL *coefficient, REAL *share) {
  V common = {0}, every = {0};
  for (ptrdiff_t first = 0; first < positions; first += BLOCK) {
    V both[DICE_SUMS] = {{0}}, all[DICE_SUMS] = {{0}};
    for (ptrdiff_t i = first * LANES; i < least(first + BLOCK, positions) * LANES; i += LANES) {
      V own = *(const V *)(p + i);
      V target = FN(dice_target)(FN(labels_at)(labels ? labels + i : NULL, ignored), t ? t + i : NULL, k, channels);
      V next_both = FN(fma)(own, target, both[0]), next_all = all[0] + (own + target);
      UNROLL for (int j = 1; j < DICE_SUMS; j++) both[j - 1] = both[j], all[j - 1] = all[j];
      both[DICE_SUMS - 1] = next_both, all[DICE_SUMS - 1] = next_all;
    }
    common += (both[0] + both[1]) + (both[2] + both[3]);
    every += (all[0] + all[1]) + (all[2] + all[3]);
  }
  V above = FN(fma)(C(2), common, C(smooth)), below = every + C(smooth);
  *(V *)coefficient = FN(select)(below == 0, C(1), above / below);
  *(V *)share = FN(select)(below == 0, C(0), 1 / below);
}

/* slope = the derivatives of the loss by the scores of a position, from its probabilities p, which may be slope. For a channel, that by
 * p is g = (D - 2 t) share / channels. */
INLINE void FN(dice_slopes)(const REAL *p, M label, const REAL *t, const REAL *coefficients, const REAL *shares,
                            ptrdiff_t channels, ptrdiff_t stride, REAL *slope) {
  const V even = C(1 / (REAL)channels);
  V mean = {0};
#define G(k) (even * *(const V *)(shares + (k) * LANES) * \
    (*(const V *)(coefficients + (k) * LANES) - 2 * FN(dice_target)(label, t ? t + (k) * stride : NULL, k, channels)))
  if (channels == 1) mean = G(0) * *(const V *)p;             /* p g - p (p g) = g p (1 - p), the slope of a sigmoid */
  else for (ptrdiff_t k = 0; k < channels; k++) mean = FN(fma)(G(k), *(const V *)(p + k * stride), mean);
  for (ptrdiff_t k = 0; k < channels; k++) *(V *)(slope + k * stride) = *(const V *)(p + k * stride) * (G(k) - mean);
#undef G
}

/* loss[16] = the mean over channels of 1 - the Dice coefficient, slope: its derivatives. x, slope [channels][positions][16]; labels
 * [positions][16], or NULL, then t as x. sums: space for [2][channels][16]. slope may be x. */
INLINE void FN(dice_loss)(const REAL *x, const int64_t *labels, const REAL *t, ptrdiff_t channels, ptrdiff_t positions, REAL smooth,
                          int64_t ignored, REAL *sums, REAL *slope, REAL *loss) {
  const ptrdiff_t stride = positions * LANES;
  for (int lane = 0; lane < LANES; lane += VL) {
    const int64_t *own = labels ? labels + lane : NULL;
    REAL *coefficients = sums + lane, *shares = coefficients + channels * LANES;
    V total = {0};
    for (ptrdiff_t i = lane; i < stride; i += LANES)
      FN(dice_probabilities)(x + i, FN(labels_at)(labels ? labels + i : NULL, ignored), channels, stride, slope + i);
    for (ptrdiff_t k = 0; k < channels; k++) {
      FN(dice_coefficient)(slope + k * stride + lane, own, t ? t + k * stride + lane : NULL, k, channels, positions, smooth, ignored,
                           coefficients + k * LANES, shares + k * LANES);
      total += 1 - *(const V *)(coefficients + k * LANES);
    }
    for (ptrdiff_t i = lane; i < stride; i += LANES)
      FN(dice_slopes)(slope + i, FN(labels_at)(labels ? labels + i : NULL, ignored), t ? t + i : NULL, coefficients, shares, channels,
                      stride, slope + i);
    *(V *)(loss + lane) = total / C(channels);
  }
}

static void FN(dice_rows)(const REAL *x, const int64_t *labels, const REAL *t, ptrdiff_t channels, ptrdiff_t positions, REAL smooth,
                          int64_t ignored, REAL *sums, REAL *slope, REAL *loss) {
  if (labels) FN(dice_loss)(x, labels, NULL, channels, positions, smooth, ignored, sums, slope, loss);
  else FN(dice_loss)(x, NULL, t, channels, positions, smooth, ignored, sums, slope, loss);
}
#undef C
#endif
