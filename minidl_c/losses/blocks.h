/* blocks.h: sums over the positions of an example, in blocks: one running sum over millions of them would lose digits. */
#ifndef MINIDL_LOSS_BLOCKS_H
#define MINIDL_LOSS_BLOCKS_H
#include <stddef.h>

#define BLOCK 4096                     /* positions whose terms are added up before they join the others */

static inline ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
#endif
