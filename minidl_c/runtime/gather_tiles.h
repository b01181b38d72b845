/* gather_tiles.h: rows of the data that arrive in time, and 16 bytes of 16 rows, transposed at once. */
#ifndef MINIDL_GATHER_TILES_H
#define MINIDL_GATHER_TILES_H
#include <string.h>
#include "minidl_c/simd/prefetch.h"
#include "minidl_c/simd/lanes.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define FETCH_BYTES 4096               /* of a row; after so many the hardware prefetcher follows */

/* Asks for the rows of a tile, all at once: they lie anywhere in memory, and one after the other each would be waited for. */
static inline void fetch_rows(const char *x, ptrdiff_t item_bytes, const int64_t *rows, ptrdiff_t examples) {
  ptrdiff_t bytes = item_bytes < FETCH_BYTES ? item_bytes : FETCH_BYTES;
  for (ptrdiff_t lane = 0; lane < examples; lane++) fetch(x + rows[lane] * item_bytes, bytes);
}

/* turned [16][16]: [i][lane] = byte i of rows[lane] */
static inline void turn_bytes(const uint8_t *const rows[LANES], uint8_t *turned) {
#if defined(__SSE2__)
  __m128i a[16], b[16];
  UNROLL for (int i = 0; i < 16; i++) a[i] = _mm_loadu_si128((const __m128i *)rows[i]);
  UNROLL for (int round = 0; round < 4; round++) {        /* each moves a bit of the row's number into that of the byte */
    UNROLL for (int i = 0; i < 8; i++) {
      b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
      b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
    }
    UNROLL for (int i = 0; i < 16; i++) a[i] = b[i];
  }
  memcpy(turned, a, sizeof a);
#else
  for (int i = 0; i < 16; i++)
    for (int lane = 0; lane < LANES; lane++) turned[i * LANES + lane] = rows[lane][i];
#endif
}

/* OUT tile [16][16] = 16 bytes of 16 rows. */
static inline void gather_bytes_f32(const uint8_t *const rows[LANES], float *tile) {
  uint8_t turned[16 * LANES];
  turn_bytes(rows, turned);
  for (int i = 0; i < 16 * LANES; i++) tile[i] = turned[i];
}
static inline void gather_bytes_f64(const uint8_t *const rows[LANES], double *tile) {
  uint8_t turned[16 * LANES];
  turn_bytes(rows, turned);
  for (int i = 0; i < 16 * LANES; i++) tile[i] = turned[i];
}
#endif
