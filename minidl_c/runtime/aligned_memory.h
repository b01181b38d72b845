/* aligned_memory.h: blocks of memory at multiples of a power of two. */
#ifndef MINIDL_ALIGNED_MEMORY_H
#define MINIDL_ALIGNED_MEMORY_H
#include <stddef.h>
#include <stdlib.h>
#define HUGE_PAGE ((ptrdiff_t)2 << 20)           /* bytes */

#ifdef _WIN32
#include <malloc.h>

static void *aligned_new(ptrdiff_t alignment, ptrdiff_t bytes) { return _aligned_malloc(bytes, alignment); }
static void aligned_delete(void *block) { _aligned_free(block); }
#else
#include <sys/mman.h>

/* Returns NULL if there is no memory. A block at a huge page asks for huge pages. */
static void *aligned_new(ptrdiff_t alignment, ptrdiff_t bytes) {
  void *block;
  if (posix_memalign(&block, alignment, bytes)) return NULL;
#ifdef MADV_HUGEPAGE
  if (alignment == HUGE_PAGE) madvise(block, bytes, MADV_HUGEPAGE);
#endif
  return block;
}

static void aligned_delete(void *block) { free(block); }
#endif
#endif
