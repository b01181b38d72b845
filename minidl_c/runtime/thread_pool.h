/* thread_pool.h: threads that are kept for the next parallel region, for builds without OpenMP.
 *
 * A region invites idle workers and starts those that are missing. A worker that accepts calls the region's function once. The
 * caller takes part and never waits for a worker: it withdraws invitations that were not accepted in time. So a worker that the
 * machine does not schedule costs nothing, whereas OpenMP's regions begin and end with all their threads.
 *
 * Threads are CPython's, which are the same on Linux, macOS and Windows. Where there are none (WebAssembly), the caller works
 * alone. The workers end with the process. */
#ifndef MINIDL_THREAD_POOL_H
#define MINIDL_THREAD_POOL_H
#include "minidl_c/runtime/waiting.h"
#ifndef _WIN32
#include <signal.h>
#endif

enum { INVITED, RUNNING, FINISHED, WITHDRAWN };

typedef struct worker {
  struct worker *next;                           /* in the list of idle workers, or of a region's guests */
  void (*function)(void *arg, int number);       /* of the region */
  void *arg;
  int number;                                    /* from 1; the caller is 0 */
  _Atomic int state;
  _Atomic ptrdiff_t invitations;                 /* their number so far */
  wait_queue queue;
} worker;

static struct {                                  /* under `waiting.lock` */
  worker *idle;
  int workers, wanted;                           /* the number of all workers, and of those that the open regions want */
} pool;

/* Returns 0 if there is no memory. Called once, and again in a forked child, in which the workers do not exist. */
static int pool_init(int spin) {
  pool.idle = NULL;
  pool.workers = pool.wanted = 0;
  return waiting_init(spin);
}

/* Leaves signals to Python's threads, except those of faults in this thread. */
static void block_signals(void) {
#ifndef _WIN32
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  sigset_t signals;
  sigfillset(&signals);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&signals, faults[i]);
#ifdef __linux__
  sigprocmask(SIG_BLOCK, &signals, NULL);        /* of this thread; pthread_sigmask would need glibc 2.32 */
#else
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
#endif
#endif
}

static void worker_main(void *arg) {
  worker *w = arg;
  block_signals();
  for (ptrdiff_t n = 1;; n++) {
    wait_for(&w->queue, &w->invitations, n);
    int state = INVITED;
    if (!atomic_compare_exchange_strong(&w->state, &state, RUNNING)) continue;      /* withdrawn */
    w->function(w->arg, w->number);
    if (atomic_exchange(&w->state, FINISHED) != WITHDRAWN) continue;                /* the caller makes it idle */
    waiting_lock();
    w->next = pool.idle;
    pool.idle = w;
    waiting_unlock();
  }
}

/* Starts a thread with the system's stack size: that of threading.stack_size() may be too small for kernels. */
static unsigned long start_thread(void (*function)(void *), void *arg) {
  PyObject *module = PyImport_ImportModule("_thread");
  PyObject *size = module ? PyObject_CallMethod(module, "stack_size", "i", 0) : NULL;
  unsigned long id = PyThread_start_new_thread(function, arg);
  PyObject *done = size ? PyObject_CallMethod(module, "stack_size", "O", size) : NULL;
  PyErr_Clear();
  Py_XDECREF(done);
  Py_XDECREF(size);
  Py_XDECREF(module);
  return id;
}

/* Starts a worker; returns NULL if there is no memory or no thread. */
static worker *worker_start(void) {
  worker *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  PyGILState_STATE gil = PyGILState_Ensure();
  unsigned long id = start_thread(worker_main, w);
  PyGILState_Release(gil);
  if (id != (unsigned long)-1) return w;         /* PYTHREAD_INVALID_THREAD_ID, which the limited API lacks */
  free(w);
  return NULL;
}

/* Takes an idle worker, or starts one; returns NULL if there is none. None is started in place of one that is about to become
 * idle: on a busy machine, that could be one for each region. */
static worker *worker_take(void) {
  waiting_lock();
  worker *w = pool.idle;
  int starts = !w && (EXACT || pool.workers < pool.wanted);
  if (w) pool.idle = w->next;
  pool.workers += starts;
  waiting_unlock();
  if (!starts || (w = worker_start())) return w;
  waiting_lock();
  pool.workers--;
  waiting_unlock();
  return NULL;
}

/* Invites n workers to call function(arg, 1..n); returns those that are there. `pool_withdraw` follows, with the same n. */
static worker *pool_invite(int n, void (*function)(void *, int), void *arg) {
  worker *guests = NULL;
  waiting_lock();
  pool.wanted += n;
  waiting_unlock();
  for (int number = n; number > 0; number--) {
    worker *w = worker_take();
    if (!w) break;
    w->function = function;
    w->arg = arg;
    w->number = number;
    w->next = guests;
    guests = w;
    atomic_store(&w->state, INVITED);
    atomic_fetch_add(&w->invitations, 1);
    wake_up(&w->queue);
  }
  return guests;
}

/* Withdraws invitations that were not accepted; returns their number. Guests that still run go on, and become idle later. */
static int pool_withdraw(int n, worker *guests) {
  int withdrawn = 0;
  waiting_lock();
  pool.wanted -= n;
  while (guests) {
    worker *w = guests;
    guests = w->next;
    int state = atomic_exchange(&w->state, WITHDRAWN);
    if (state == RUNNING) continue;
    withdrawn += state == INVITED;
    w->next = pool.idle;
    pool.idle = w;
  }
  waiting_unlock();
  return withdrawn;
}
#endif
