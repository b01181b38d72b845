/* threefry.h: random bits as a pure function of a key and a counter.
 *
 * Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), the
 * generator of JAX. There is no state: whoever asks for the same key and counter, in any order and on any thread, gets the
 * same bits. 64-bit keys and counters have their low word first. */
#ifndef MINIDL_THREEFRY_H
#define MINIDL_THREEFRY_H
#include "minidl_c/simd/lanes.h"

typedef struct { uint32_t a, b; } words;

INLINE words words_of(uint64_t number) { return (words){(uint32_t)number, (uint32_t)(number >> 32)}; }
INLINE uint32_t rotate(uint32_t x, int by) { return x << by | x >> (32 - by); }

INLINE words four_rounds(words x, int r0, int r1, int r2, int r3) {
  x.a += x.b, x.b = rotate(x.b, r0) ^ x.a;
  x.a += x.b, x.b = rotate(x.b, r1) ^ x.a;
  x.a += x.b, x.b = rotate(x.b, r2) ^ x.a;
  x.a += x.b, x.b = rotate(x.b, r3) ^ x.a;
  return x;
}
INLINE words inject(words x, uint32_t a, uint32_t b) { return (words){x.a + a, x.b + b}; }

INLINE words threefry(words key, words counter) {
  uint32_t third = 0x1BD11BDA ^ key.a ^ key.b;
  words x = inject(counter, key.a, key.b);
  x = inject(four_rounds(x, 13, 15, 26, 6), key.b, third + 1);
  x = inject(four_rounds(x, 17, 29, 16, 24), third, key.a + 2);
  x = inject(four_rounds(x, 13, 15, 26, 6), key.a, key.b + 3);
  x = inject(four_rounds(x, 17, 29, 16, 24), key.b, third + 4);
  return inject(four_rounds(x, 13, 15, 26, 6), third, key.a + 5);
}

/* One key for each example of a tile. */
typedef struct { uint32_t a[LANES], b[LANES]; } lane_keys;

/* Keys that are functions of a training run's seed, an op's place in the model, the step and the example's row in the data,
 * and of nothing else. Each of these in turn is the counter of a block, and that block the next key:
 *
 *     key = seed;  key = threefry(key, path);  key = threefry(key, step);  key = threefry(key, row)
 *
 * Lanes without an example have the key of row 0. */
INLINE lane_keys keys_of_rows(uint64_t seed, uint64_t path, uint64_t step, const int64_t *rows, ptrdiff_t examples) {
  words key = threefry(threefry(words_of(seed), words_of(path)), words_of(step));
  lane_keys keys;
  for (int lane = 0; lane < LANES; lane++) {
    words row = threefry(key, words_of(lane < examples ? (uint64_t)rows[lane] : 0));
    keys.a[lane] = row.a;
    keys.b[lane] = row.b;
  }
  return keys;
}

/* OUT bits[2][16]: block `counter` of each lane. The loop is over lanes, so the compiler makes vectors of every word. */
INLINE void threefry_lanes(const lane_keys *keys, uint64_t counter, uint32_t *bits) {
  const words block = words_of(counter);
  for (int lane = 0; lane < LANES; lane++) {
    words x = threefry((words){keys->a[lane], keys->b[lane]}, block);
    bits[lane] = x.a;
    bits[LANES + lane] = x.b;
  }
}
#endif
