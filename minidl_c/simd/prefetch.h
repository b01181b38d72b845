/* prefetch.h: asking for memory before it is needed. A cache line comes in 100 ns and more from memory, and from a core that has
 * just written it; many come in the same time if all are asked for at once. */
#ifndef MINIDL_CACHES_H
#define MINIDL_CACHES_H
#include <stddef.h>

#define CACHE_LINE 64

/* Asks for memory that will be read soon; its last line may be missing if p lies inside a line. */
static inline void fetch(const char *p, ptrdiff_t bytes) {
  for (ptrdiff_t at = 0; at < bytes; at += CACHE_LINE) __builtin_prefetch(p + at, 0, 2);
}

/* The same for memory that will be written: other cores have to give up their copies, which a store would otherwise wait for. */
static inline void fetch_to_write(const char *p, ptrdiff_t bytes) {
  for (ptrdiff_t at = 0; at < bytes; at += CACHE_LINE) __builtin_prefetch(p + at, 1, 2);
}
#endif
