/* winograd_product.h: the products of Winograd's points: for each point a matrix product of transformed weights u and inputs v.
 *
 * Every sum over channels is cut into chains of CHAIN channels, which start from 0 and are added up in order.
 * That is so in both layouts, so the bits are the same. (Short chains have smaller errors.) */
#ifndef REAL
#ifndef MINIDL_WINOGRAD_PRODUCT_H
#define MINIDL_WINOGRAD_PRODUCT_H
#include "minidl_c/simd/lanes.h"

#define CHAIN 32                       /* channels: whole blocks */
#define AHEAD 64                       /* rows of u that are prefetched */
#define MAX_ROWS 16                    /* of the register tiles below */
#define MAX_COLUMNS 2
#define MAX_PATCHES 12
#define MAX_PANELS 4

/* One point. u [outputs / 16][channels][16], a panel for each 16 outputs; v [channels][patches][16], m [outputs][patches][16]. In the
 * blocked layout, blocks of 16 channels take the place of channels: v [channels / 16][patches][16], m [outputs / 16][patches][16].
 * Channels and outputs are multiples of 16. */
typedef struct { ptrdiff_t channels, outputs, patches; } winograd_sizes;

#if VECTOR_REGISTERS == 32
/* The register tiles (outputs, patches) of a tile; (panels, patches) of the blocked layout. */
#define EACH_PRODUCT(T) T(16,1) T(8,2)
#define EACH_BLOCKED_PRODUCT(T) T(4,1) T(4,2) T(4,4) T(2,1) T(2,2) T(2,4) T(2,8) T(2,12) T(1,1) T(1,2) T(1,4) T(1,8) T(1,12)
#define WIDE_PANELS 4
#else
#define EACH_PRODUCT(T) T(8,1) T(4,2)
#define EACH_BLOCKED_PRODUCT(T) T(2,1) T(2,2) T(2,4) T(1,1) T(1,2) T(1,4) T(1,8)
#define WIDE_PANELS 2
#endif
#define FEW_PATCHES 4                  /* up to this number, more panels are taken at once */

#define winograd_product(s, u, v, m) BY_DTYPE(winograd_product, m)(s, u, v, m)
#define winograd_product_blocked(s, u, v, m) BY_DTYPE(winograd_product_blocked, m)(s, u, v, m)

#define TEMPLATE "minidl_c/kernels/winograd_product.h"
#include "minidl_c/simd/for_each_dtype.h"
#endif
#else

/* m [MR][NR] = or with `add` += the sum over channels c < n of u[c][i] * v[c][j]: a row of 16 lanes each. Strides in elements. */
INLINE void FN(product_body)(const int MR, const int NR, ptrdiff_t n, const REAL *u, const REAL *v, ptrdiff_t v_channel, int add, REAL *m,
                             ptrdiff_t m_output) {
  for (int lane = 0; lane < LANES; lane += VL) {
    V sum[MAX_ROWS][MAX_COLUMNS];
    const REAL *ut = u, *vt = v + lane;
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NR; j++) sum[i][j] = (V){0};
    ROLL for (ptrdiff_t c = 0; c < n; c++) {
      V x[MAX_COLUMNS];
      UNROLL for (int j = 0; j < NR; j++) { V t = *(const V *)(vt + j * LANES); KEEP(t); x[j] = t; }
      UNROLL for (int i = 0; i < MR; i++) {
        V weight = FN(broadcast)(ut[i]);
        UNROLL for (int j = 0; j < NR; j++) sum[i][j] = FN(fma)(weight, x[j], sum[i][j]);
      }
      __builtin_prefetch(ut + AHEAD * LANES);
      ut += LANES, vt += v_channel;
      STEP(ut); STEP(vt);
    }
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NR; j++) {
      V *to = (V *)(m + i * m_output + j * LANES + lane);
      if (add) *to += sum[i][j]; else *to = sum[i][j];
    }
  }
}

#define PRODUCT(MR, NR) \
  NOINLINE void FN(product_##MR##x##NR)(ptrdiff_t n, const REAL *u, const REAL *v, ptrdiff_t v_channel, int add, REAL *m, \
                                        ptrdiff_t m_output) { \
    FN(product_body)(MR, NR, n, u, v, v_channel, add, m, m_output); \
  }
EACH_PRODUCT(PRODUCT)
#undef PRODUCT

/* m = u v for all outputs and patches of a tile: panel by panel, so that u is read once and in order. */
NOINLINE void FN(winograd_product)(const winograd_sizes *s, const REAL *u, const REAL *v, REAL *m) {
  const ptrdiff_t row = s->patches * LANES;
  for (ptrdiff_t k = 0; k < s->outputs; k += LANES, u += s->channels * LANES)
    for (ptrdiff_t c = 0; c < s->channels; c += CHAIN) {
      const ptrdiff_t n = s->channels - c < CHAIN ? s->channels - c : CHAIN;
      for (ptrdiff_t t = 0, left = s->patches, some; left; t += some, left -= some) {
        some = left < MAX_COLUMNS ? left : MAX_COLUMNS;
        const REAL *uc = u + c * LANES, *vc = v + c * row + t * LANES;
        REAL *mk = m + k * row + t * LANES;
#define TRY(MR, NR) \
        if (some == NR) for (int i = 0; i < LANES; i += MR) FN(product_##MR##x##NR)(n, uc + i, vc, row, c > 0, mk + i * row, row);
        EACH_PRODUCT(TRY)
#undef TRY
      }
    }
}

/* The same for KV vectors of outputs, of as many panels, and NR patches of one example, with channels in the lanes. n: CHAIN channels or
 * less. */
INLINE void FN(blocked_product_body)(const int KV, const int NR, ptrdiff_t n, const REAL *u, ptrdiff_t u_panel, const REAL *v,
                                     ptrdiff_t v_block, int add, REAL *m, ptrdiff_t m_block) {
  for (int part = 0; part < LANES; part += VL) {
    V sum[MAX_PATCHES][MAX_PANELS];
    const REAL *ut = u + part, *vt = v;
    UNROLL for (int j = 0; j < NR; j++) UNROLL for (int i = 0; i < KV; i++) sum[j][i] = (V){0};
    ROLL for (ptrdiff_t c = 0; c < n; c++) {
      V weight[MAX_PANELS];
      UNROLL for (int i = 0; i < KV; i++) { V t = *(const V *)(ut + i * u_panel); KEEP(t); weight[i] = t; }
      UNROLL for (int i = 0; i < KV && i < 2; i++) __builtin_prefetch(ut + i * u_panel + AHEAD * LANES);
      UNROLL for (int j = 0; j < NR; j++) {
        V x = FN(broadcast)(vt[j * LANES]);
        UNROLL for (int i = 0; i < KV; i++) sum[j][i] = FN(fma)(weight[i], x, sum[j][i]);
      }
      ut += LANES, vt += c % LANES == LANES - 1 ? v_block - LANES + 1 : 1;
      STEP(ut); STEP(vt);
    }
    UNROLL for (int j = 0; j < NR; j++) UNROLL for (int i = 0; i < KV; i++) {
      V *to = (V *)(m + i * m_block + j * LANES + part);
      if (add) *to += sum[j][i]; else *to = sum[j][i];
    }
  }
}

#define BLOCKED_PRODUCT(KV, NR) \
  NOINLINE void FN(blocked_product_##KV##x##NR)(ptrdiff_t n, const REAL *u, ptrdiff_t u_panel, const REAL *v, ptrdiff_t v_block, int add, \
                                                REAL *m, ptrdiff_t m_block) { \
    FN(blocked_product_body)(KV, NR, n, u, u_panel, v, v_block, add, m, m_block); \
  }
EACH_BLOCKED_PRODUCT(BLOCKED_PRODUCT)
#undef BLOCKED_PRODUCT

/* m = u v for all outputs and patches of one example. */
NOINLINE void FN(winograd_product_blocked)(const winograd_sizes *s, const REAL *u, const REAL *v, REAL *m) {
  const ptrdiff_t row = s->patches * LANES, panel = s->channels * LANES;
  for (ptrdiff_t k = 0, panels; k < s->outputs; k += panels * LANES) {
    const ptrdiff_t left = (s->outputs - k) / LANES;
    panels = s->patches <= FEW_PATCHES && left >= WIDE_PANELS ? WIDE_PANELS : left >= 2 ? 2 : 1;
    for (ptrdiff_t c = 0; c < s->channels; c += CHAIN) {
      const ptrdiff_t n = s->channels - c < CHAIN ? s->channels - c : CHAIN;
      for (ptrdiff_t t = 0, some; t < s->patches; t += some) {
        const REAL *uc = u + k / LANES * panel + c * LANES, *vc = v + c / LANES * row + t * LANES;
        REAL *mk = m + k / LANES * row + t * LANES;
        some = 0;
#define WIDER(KV, NR) if (panels == KV && NR <= s->patches - t && NR > some) some = NR;
        EACH_BLOCKED_PRODUCT(WIDER)
#undef WIDER
#define TRY(KV, NR) if (panels == KV && some == NR) FN(blocked_product_##KV##x##NR)(n, uc, panel, vc, row, c > 0, mk, row);
        EACH_BLOCKED_PRODUCT(TRY)
#undef TRY
      }
    }
  }
}
#endif
