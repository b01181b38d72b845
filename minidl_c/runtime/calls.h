/* calls.h: what a call knows of the others of this process, and how it takes back the interpreter's lock (GIL).
 *
 * A call gives up the GIL while it computes. If another thread has it when the computation ends, CPython puts the thread to sleep, and
 * every thread that gives up the GIL wakes one: that takes longer than to predict with a small net. Threads that call such nets have the
 * GIL for some microseconds each. So a thread waits for its turn without sleep, no longer than such a turn; if others wait already, it
 * takes a nap first, which leaves the core to them. */
#ifndef MINIDL_CALLS_H
#define MINIDL_CALLS_H
#include "minidl_c/runtime/waiting.h"

enum { TURN_NANOSECONDS = 50000, NAP_NANOSECONDS = 2000000, MOST_NAPS = 5, MOST_WAITING = 2, RECENT_NANOSECONDS = 1000000 };

static struct {
  _Atomic int computing;                         /* calls that compute now */
  _Atomic int64_t ended;                         /* when the last one ended */
  _Atomic int in_turn;                           /* whether the thread whose call ended last still has the GIL, as far as is known */
  _Atomic int waiting;                           /* threads that wait for their turn */
} calls;

#define GET(x) atomic_load_explicit(&calls.x, memory_order_relaxed)
#define SET(x, value) atomic_store_explicit(&calls.x, value, memory_order_relaxed)
#define ADD(x, value) atomic_fetch_add_explicit(&calls.x, value, memory_order_relaxed)

/* In a forked child, which has none of the threads that computed. */
static void forget_calls(void) { SET(computing, 0); SET(waiting, 0); SET(in_turn, 0); }

/* The number of calls that compute now. */
static int computing_calls(void) { return GET(computing); }

/* Whether the last call ended a while ago: then the threads of a parallel region sleep. */
static int calls_are_rare(void) { return !GET(computing) && nanoseconds() - GET(ended) > RECENT_NANOSECONDS; }

/* Begins a computation, after which the caller gives up the GIL. */
static void begin_computing(void) { ADD(computing, 1); SET(in_turn, 0); }

static void nap(void) {
#ifdef _WIN32
  Sleep(NAP_NANOSECONDS / 1000000);
#else
  nanosleep(&(struct timespec){.tv_nsec = NAP_NANOSECONDS}, NULL);
#endif
}

/* Waits until no other thread is in its turn, as far as is known. */
static void wait_for_turn(int most) {
  for (int naps = 0; ADD(waiting, 1) >= most && naps < MOST_NAPS; naps++) { ADD(waiting, -1); nap(); }
  int64_t start = nanoseconds();
  for (int n = 0; atomic_exchange_explicit(&calls.in_turn, 1, memory_order_relaxed); )
    while (GET(in_turn)) {
      PAUSE();
      if (!(++n & 63) && nanoseconds() - start > TURN_NANOSECONDS) goto end;
    }
end:
  ADD(waiting, -1);
}

/* Ends a computation, before the caller takes back the GIL. */
static void end_computing(int cores) {
  SET(ended, nanoseconds());
  ADD(computing, -1);
#ifndef Py_GIL_DISABLED
  if (cores > 1) wait_for_turn(cores - 1 < MOST_WAITING ? cores - 1 : MOST_WAITING);
#else
  (void)cores;
#endif
}

/* When the caller has the GIL again: another thread may have begun its turn since `end_computing`, and ended it. */
static void take_turn(void) { SET(in_turn, 1); }
#undef GET
#undef SET
#undef ADD
#endif
