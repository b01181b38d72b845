/* asan.h: the arrays of an arena as AddressSanitizer sees them; without the sanitizer, no byte and no instruction.
 *
 * To the sanitizer an arena is one block, of which every byte may be used. In its builds each array is therefore followed by a
 * red zone that is poisoned, no two arrays share memory, and every call finds them filled with MINIDL_GARBAGE, a byte from 0 to
 * 255: a value that is read before it is written shows in the result. */
#ifndef MINIDL_ASAN_H
#define MINIDL_ASAN_H
#include <stddef.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

#define RED_ZONE 128                   /* bytes */

static void poison(char *start, ptrdiff_t bytes) { ASAN_POISON_MEMORY_REGION(start, bytes); }
static void unpoison(char *start, ptrdiff_t bytes) { ASAN_UNPOISON_MEMORY_REGION(start, bytes); }

/* Allows access to an array in `copies` copies, `stride` bytes from one to the next, and fills them. */
static void unpoison_copies(char *start, ptrdiff_t bytes, ptrdiff_t stride, ptrdiff_t copies) {
  const char *garbage = getenv("MINIDL_GARBAGE");
  for (ptrdiff_t i = 0; i < copies; i++) {
    ASAN_UNPOISON_MEMORY_REGION(start + i * stride, bytes);
    memset(start + i * stride, garbage ? atoi(garbage) : 0xFF, bytes);         /* 0xFF...: NaN in both dtypes */
  }
}
#else
#define RED_ZONE 0
static void poison(char *start, ptrdiff_t bytes) { (void)start, (void)bytes; }
static void unpoison(char *start, ptrdiff_t bytes) { (void)start, (void)bytes; }
static void unpoison_copies(char *start, ptrdiff_t bytes, ptrdiff_t stride, ptrdiff_t copies) {
  (void)start, (void)bytes, (void)stride, (void)copies;
}
#endif
#endif
