/* threefry.h: a counter-based random number generator: random bits as a pure function of a key and a counter.
 *
 * Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), the
 * generator of JAX. It has no state: the same key and counter give the same bits, in any order and on any thread. 64-bit keys
 * and counters have their low word first. */
#ifndef MINIDL_THREEFRY_H
#define MINIDL_THREEFRY_H
#include "minidl_c/simd/lanes.h"

typedef struct { uint32_t a, b; } word_pair;

INLINE word_pair words_of(uint64_t value) { return (word_pair){(uint32_t)value, (uint32_t)(value >> 32)}; }
INLINE uint32_t rotate(uint32_t x, int by) { return x << by | x >> (32 - by); }

INLINE word_pair four_rounds(word_pair x, int r0, int r1, int r2, int r3) {
  x.a += x.b, x.b = rotate(x.b, r0) ^ x.a;
  x.a += x.b, x.b = rotate(x.b, r1) ^ x.a;
  x.a += x.b, x.b = rotate(x.b, r2) ^ x.a;
  x.a += x.b, x.b = rotate(x.b, r3) ^ x.a;
  return x;
}
INLINE word_pair inject(word_pair x, uint32_t a, uint32_t b) { return (word_pair){x.a + a, x.b + b}; }

INLINE word_pair threefry(word_pair key, word_pair counter) {
  uint32_t third = 0x1BD11BDA ^ key.a ^ key.b;
  word_pair x = inject(counter, key.a, key.b);
  x = inject(four_rounds(x, 13, 15, 26, 6), key.b, third + 1);
  x = inject(four_rounds(x, 17, 29, 16, 24), third, key.a + 2);
  x = inject(four_rounds(x, 13, 15, 26, 6), key.a, key.b + 3);
  x = inject(four_rounds(x, 17, 29, 16, 24), key.b, third + 4);
  return inject(four_rounds(x, 13, 15, 26, 6), third, key.a + 5);
}

/* One key for each example of a tile. */
typedef struct { uint32_t a[LANES], b[LANES]; } lane_keys;

/* The keys of a tile's examples. A key depends only on the seed of the training run, the hash of the op's path in the model, the
 * step and the example's index in the data:
 *
 *     key = seed;  key = threefry(key, path);  key = threefry(key, step);  key = threefry(key, example_id)
 *
 * Lanes without an example have the key of example 0. */
INLINE lane_keys keys_of_examples(uint64_t seed, uint64_t path, uint64_t step, const int64_t *example_ids, ptrdiff_t examples) {
  word_pair key = threefry(threefry(words_of(seed), words_of(path)), words_of(step));
  lane_keys keys;
  for (int lane = 0; lane < LANES; lane++) {
    word_pair lane_key = threefry(key, words_of(lane < examples ? (uint64_t)example_ids[lane] : 0));
    keys.a[lane] = lane_key.a;
    keys.b[lane] = lane_key.b;
  }
  return keys;
}

/* OUT bits[2][16]: block `counter` of each lane. The loop is over lanes, so the compiler vectorizes it. */
INLINE void threefry_lanes(const lane_keys *keys, uint64_t counter, uint32_t *bits) {
  const word_pair block = words_of(counter);
  for (int lane = 0; lane < LANES; lane++) {
    word_pair x = threefry((word_pair){keys->a[lane], keys->b[lane]}, block);
    bits[lane] = x.a;
    bits[LANES + lane] = x.b;
  }
}
#endif
