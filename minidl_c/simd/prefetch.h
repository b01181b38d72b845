/* prefetch.h: requests memory before it is needed. A cache line takes 100 ns or more from memory, or from a core that has just
 * written it; many lines that are requested together take no longer. */
#ifndef MINIDL_PREFETCH_H
#define MINIDL_PREFETCH_H
#include <stddef.h>

#define CACHE_LINE 64

/* Requests memory that will be read soon. If p is not at the start of a line, the last line may be missing. */
static inline void fetch(const char *p, ptrdiff_t bytes) {
  for (ptrdiff_t at = 0; at < bytes; at += CACHE_LINE) __builtin_prefetch(p + at, 0, 2);
}

/* The same for memory that will be written: invalidates the copies of other cores, which a store would otherwise wait for. */
static inline void fetch_to_write(const char *p, ptrdiff_t bytes) {
  for (ptrdiff_t at = 0; at < bytes; at += CACHE_LINE) __builtin_prefetch(p + at, 1, 2);
}
#endif
