/* asan.h: what AddressSanitizer has to know of an arena; in builds without it no byte and no instruction.
 *
 * To the sanitizer an arena is one block, in which every number belongs to the program. So here each array is followed by a
 * gap that nobody may touch, no two arrays share memory, and every call finds them full of MINIDL_GARBAGE, a byte from 0
 * to 255: what is read before it is written shows in the result. */
#ifndef MINIDL_GAPS_H
#define MINIDL_GAPS_H
#include <stddef.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

#define GAP 128

static void close_memory(char *at, ptrdiff_t bytes) { ASAN_POISON_MEMORY_REGION(at, bytes); }

/* Opens `copies` arrays, `stride` bytes from one to the next. */
static void open_arrays(char *at, ptrdiff_t bytes, ptrdiff_t apart, ptrdiff_t copies) {
  const char *garbage = getenv("MINIDL_GARBAGE");
  for (ptrdiff_t i = 0; i < copies; i++) {
    ASAN_UNPOISON_MEMORY_REGION(at + i * apart, bytes);
    memset(at + i * apart, garbage ? atoi(garbage) : 0xFF, bytes);             /* 0xFF...: NaN in both dtypes */
  }
}
#else
#define GAP 0
static void close_memory(char *at, ptrdiff_t bytes) { (void)at, (void)bytes; }
static void open_arrays(char *at, ptrdiff_t bytes, ptrdiff_t apart, ptrdiff_t copies) {
  (void)at, (void)bytes, (void)apart, (void)copies;
}
#endif
#endif
