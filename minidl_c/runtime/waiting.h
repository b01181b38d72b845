/* waiting.h: how a thread waits for another one: it spins for a while, and then sleeps, so that a working thread gets the core.
 *
 * The locks are CPython's, which are the same on Linux, macOS and Windows, need no GIL, and can be released by any thread. */
#ifndef MINIDL_WAITING_H
#define MINIDL_WAITING_H
#include <Python.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN                      /* without names such as `small` and `hyper` */
#include <windows.h>
#else
#include <time.h>
#endif

/* ThreadSanitizer reports two accesses that nothing orders. MINIDL_EXACT leaves only the orders that are meant: no thread waits
 * with a lock, which would order more than that; in team.h, each thread executes its share and no more. Slow, and exact. */
#ifdef MINIDL_EXACT
#include <sched.h>
#define EXACT 1
#define PAUSE() sched_yield()
#else
#define EXACT 0
#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("isb")
#else
#define PAUSE() ((void)0)
#endif
#endif

/* A thread that sleeps. Made at need and kept, since the thread that wakes it may still be in its lock when it runs again. */
typedef struct sleeper {
  struct sleeper *next;
  PyThread_type_lock wake;                       /* held, except to wake the thread */
} sleeper;

typedef struct {                                 /* the threads that wait for one number; all zeros at first */
  sleeper *first;
  _Atomic int count;
} wait_queue;

static struct {
  PyThread_type_lock lock;                       /* of all queues and lists; nothing is done under it that takes long */
  sleeper *spare;
  int64_t spin_nanoseconds;
} waiting;

/* Forgets all threads. Returns 0 if there is no memory. */
static int waiting_init(int spin) {
  waiting.lock = PyThread_allocate_lock();
  waiting.spare = NULL;
  /* Longer than a thread takes to wake up, or sleep would follow sleep: LeNet-5's steps then took 1.5 times as long. */
  waiting.spin_nanoseconds = spin ? 400000 : 0;
  return waiting.lock != NULL;
}

static void waiting_lock(void) { PyThread_acquire_lock(waiting.lock, WAIT_LOCK); }
static void waiting_unlock(void) { PyThread_release_lock(waiting.lock); }

static int64_t nanoseconds(void) {
#ifdef _WIN32
  LARGE_INTEGER ticks, per_second;
  QueryPerformanceCounter(&ticks);
  QueryPerformanceFrequency(&per_second);
  return (int64_t)((double)ticks.QuadPart / (double)per_second.QuadPart * 1e9);
#else
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
#endif
}

/* Takes a spare sleeper, or makes one, under the lock; returns NULL if there is no memory. */
static sleeper *sleeper_take(void) {
  sleeper *s = waiting.spare;
  if (s) {
    waiting.spare = s->next;
    return s;
  }
  s = malloc(sizeof *s);
  if (s && !(s->wake = PyThread_allocate_lock())) {
    free(s);
    return NULL;
  }
  if (s) PyThread_acquire_lock(s->wake, NOWAIT_LOCK);
  return s;
}

/* Sleeps until `wake_up`, unless *value >= goal already. */
static void sleep_until(wait_queue *queue, _Atomic ptrdiff_t *value, ptrdiff_t goal) {
  waiting_lock();
  sleeper *me = sleeper_take();
  if (me) {
    atomic_fetch_add(&queue->count, 1);          /* before the look at the value: `wake_up` does it in the other order */
    if (atomic_load(value) < goal) {
      me->next = queue->first;
      queue->first = me;
      waiting_unlock();
      PyThread_acquire_lock(me->wake, WAIT_LOCK);
      waiting_lock();
    } else {
      atomic_fetch_sub(&queue->count, 1);
    }
    me->next = waiting.spare;
    waiting.spare = me;
  }
  waiting_unlock();
}

/* Waits until *value >= goal. Every thread that raises the value calls `wake_up` afterwards. */
static void wait_for(wait_queue *queue, _Atomic ptrdiff_t *value, ptrdiff_t goal) {
  int64_t start = 0;
  for (unsigned n = 1; atomic_load(value) < goal; n++) {
    PAUSE();
    if (EXACT || n & 63) continue;
    int64_t now = nanoseconds();
    if (!start) start = now;
    if (now - start >= waiting.spin_nanoseconds) sleep_until(queue, value, goal);
  }
}

/* Wakes the threads that sleep in the queue. */
static void wake_up(wait_queue *queue) {
  if (!atomic_fetch_add(&queue->count, 0)) return;
  waiting_lock();
  sleeper *s = queue->first;
  queue->first = NULL;
  while (s) {
    sleeper *next = s->next;                     /* read before the thread runs on */
    atomic_fetch_sub(&queue->count, 1);
    PyThread_release_lock(s->wake);
    s = next;
  }
  waiting_unlock();
}
#endif
