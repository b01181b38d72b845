/* gather_tiles.h: prefetches the rows of a tile, and transposes blocks of 16 bytes of 16 rows. */
#ifndef MINIDL_GATHER_TILES_H
#define MINIDL_GATHER_TILES_H
#include <string.h>
#include "minidl_c/simd/prefetch.h"
#include "minidl_c/simd/lanes.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define FETCH_BYTES 4096               /* of a row; the hardware prefetcher follows after these */

/* Prefetches all rows of a tile at once: they lie anywhere in memory, and each would miss the cache in turn. */
static inline void fetch_rows(const char *x, ptrdiff_t item_bytes, const int64_t *rows, ptrdiff_t examples) {
  ptrdiff_t bytes = item_bytes < FETCH_BYTES ? item_bytes : FETCH_BYTES;
  for (ptrdiff_t lane = 0; lane < examples; lane++) fetch(x + rows[lane] * item_bytes, bytes);
}

/* OUT transposed [16][16]: [i][lane] = byte i of rows[lane] */
static inline void transpose_16x16(const uint8_t *const rows[LANES], uint8_t *transposed) {
#if defined(__SSE2__)
  __m128i a[16], b[16];
  UNROLL for (int i = 0; i < 16; i++) a[i] = _mm_loadu_si128((const __m128i *)rows[i]);
  UNROLL for (int bit = 0; bit < 4; bit++) {        /* each moves one bit of the row index into the byte index */
    UNROLL for (int i = 0; i < 8; i++) {
      b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
      b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
    }
    UNROLL for (int i = 0; i < 16; i++) a[i] = b[i];
  }
  memcpy(transposed, a, sizeof a);
#else
  for (int i = 0; i < 16; i++)
    for (int lane = 0; lane < LANES; lane++) transposed[i * LANES + lane] = rows[lane][i];
#endif
}

/* OUT tile [16][16] = 16 bytes of 16 rows, converted. */
static inline void transpose_bytes_f32(const uint8_t *const rows[LANES], float *tile) {
  uint8_t transposed[16 * LANES];
  transpose_16x16(rows, transposed);
  for (int i = 0; i < 16 * LANES; i++) tile[i] = transposed[i];
}
static inline void transpose_bytes_f64(const uint8_t *const rows[LANES], double *tile) {
  uint8_t transposed[16 * LANES];
  transpose_16x16(rows, transposed);
  for (int i = 0; i < 16 * LANES; i++) tile[i] = transposed[i];
}
#endif
