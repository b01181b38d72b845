/* spinlock.h: a lock of some fields that threads share in a free-threaded Python.
 *
 * Nothing under it calls Python, allocates or raises: so no thread loses the GIL there, where there is one, and a fork, for which
 * CPython (3.14) stops all threads in Python code, finds it released. A critical section of CPython does not offer that: under
 * contention its lock is handed over to a sleeping thread, and a child that is forked then waits for ever. */
#ifndef MINIDL_SPINLOCK_H
#define MINIDL_SPINLOCK_H
#include "minidl_c/runtime/waiting.h"

typedef struct { _Atomic int taken; } spinlock;            /* zero: released */

static inline void spinlock_acquire(spinlock *lock) {
  while (atomic_exchange_explicit(&lock->taken, 1, memory_order_acquire)) PAUSE();
}

static inline void spinlock_release(spinlock *lock) { atomic_store_explicit(&lock->taken, 0, memory_order_release); }
#endif
