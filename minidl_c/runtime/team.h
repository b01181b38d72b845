/* team.h: the only place that opens a parallel region, and the only one that waits.
 *
 * A run consists of steps (training steps), a step of phases, a phase of tasks (slots of tiles, ranges of parameters). A phase
 * opens when all tasks before it are done. A free thread claims a task of the open phase: first one of its own share, which is
 * the same in every step, so that the data are still in its core's cache; then any other (work stealing). Within a run a thread
 * therefore waits for a task that another thread executes, never for a thread: one that the machine does not schedule costs
 * nothing. A wait spins for a while and then sleeps, so that a working thread gets the core. Only the end of a run, OpenMP's own,
 * waits for all threads: once in many steps of `fit`, in every `train_batch`.
 *
 * libgomp's own loops wait for threads and spin much longer: beside a busy process its 0.5 ms steps took 2 to 5 ms, with claimed
 * tasks 1 ms. The region itself is OpenMP's, so OMP_NUM_THREADS, threadpoolctl and joblib have their usual effect. The
 * assignment of tasks to threads never changes a bit.
 *
 * Only the end of a phase orders two tasks, and the atomics say no more than that: ThreadSanitizer reports tasks of two threads
 * that access the same number even if one happened to run after the other. It cannot see into libgomp; for it,
 * MINIDL_PTHREADS opens the region with threads of its own. There each thread executes its share and no more, and waits without
 * a lock, which would order more than the phases do: slow, and exact. */
#ifndef MINIDL_TEAM_H
#define MINIDL_TEAM_H
#include "minidl_c/simd/lanes.h"

/* Runs one task of one phase of one step, as thread number `thread`. */
typedef void (*team_work)(void *arg, ptrdiff_t step, ptrdiff_t phase, ptrdiff_t task, int thread);

static void team_run_serial(team_work work, void *arg, ptrdiff_t steps, const ptrdiff_t *tasks, ptrdiff_t phases) {
  for (ptrdiff_t step = 0; step < steps; step++)
    for (ptrdiff_t phase = 0; phase < phases; phase++)
      for (ptrdiff_t task = 0; task < tasks[phase]; task++) work(arg, step, phase, task, 0);
}

#ifdef _OPENMP
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#ifdef MINIDL_PTHREADS
#include <sched.h>
#define EXACT 1
#define SPIN_NANOSECONDS INT64_MAX
#define PAUSE() sched_yield()
#else
#define EXACT 0
/* Longer than a thread takes to wake up, or sleep would follow sleep: LeNet-5's steps then took 1.5 times as long. */
#define SPIN_NANOSECONDS 400000
#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif
#endif

typedef struct {
  team_work work;
  void *arg;
  const ptrdiff_t *tasks;                        /* of each phase */
  ptrdiff_t phases;
  ptrdiff_t step_tasks, total_tasks;             /* tasks of a step, and of the run */
  int threads;
  _Atomic int32_t *claims;                       /* of each task of a step: the number of steps in which it was claimed */
  _Atomic ptrdiff_t done, open;                  /* tasks that are done; tasks of the phases that are complete */
  _Atomic int sleepers;
  pthread_mutex_t lock;
  pthread_cond_t phase_opened;
} team;

static int64_t nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Waits until the phases of the first `n_tasks` tasks are complete. */
static void team_wait(team *c, ptrdiff_t n_tasks) {
  int64_t start = 0;
  for (unsigned n = 1; atomic_load(&c->open) < n_tasks; n++) {
    PAUSE();
    if (n & 63) continue;
    int64_t now = nanoseconds();
    if (!start) start = now;
    if (now - start < SPIN_NANOSECONDS) continue;
    pthread_mutex_lock(&c->lock);
    atomic_fetch_add(&c->sleepers, 1);
    while (atomic_load(&c->open) < n_tasks) pthread_cond_wait(&c->phase_opened, &c->lock);
    atomic_fetch_sub(&c->sleepers, 1);
    pthread_mutex_unlock(&c->lock);
  }
}

/* Claims a task of the phase whose first task in its step is `first`; returns -1 if all are claimed. The tasks of an earlier step
 * have been claimed once more than `step` says, so a late thread gets none of them. */
static ptrdiff_t team_claim(team *c, ptrdiff_t step, ptrdiff_t first, ptrdiff_t tasks, int thread) {
  ptrdiff_t own = tasks * thread / c->threads, n = EXACT ? tasks * (thread + 1) / c->threads - own : tasks;
  for (ptrdiff_t i = 0; i < n; i++) {
    ptrdiff_t task = own + i < tasks ? own + i : own + i - tasks;
    int32_t claimed = (int32_t)step;
    if (atomic_load_explicit(&c->claims[first + task], memory_order_relaxed) == claimed
        && atomic_compare_exchange_strong_explicit(&c->claims[first + task], &claimed, claimed + 1, memory_order_relaxed,
                                                   memory_order_relaxed)) return task;
  }
  return -1;
}

static void team_member(team *c, int thread) {
  unsigned before = flush_subnormals();
  for (ptrdiff_t start; (start = atomic_load(&c->open)) < c->total_tasks;) {
    ptrdiff_t step = start / c->step_tasks, end = step * c->step_tasks, phase = 0;
    while (start >= (end += c->tasks[phase])) phase++;
    ptrdiff_t task = team_claim(c, step, start - step * c->step_tasks, end - start, thread);
    if (task < 0) { team_wait(c, end); continue; }
    c->work(c->arg, step, phase, task, thread);
    if (atomic_fetch_add_explicit(&c->done, 1, memory_order_release) + 1 < end) continue;
    atomic_load(&c->done);                                   /* acquires the writes of all tasks, to publish them */
    atomic_store(&c->open, end);
    if (atomic_fetch_add(&c->sleepers, 0)) {
      pthread_mutex_lock(&c->lock);
      pthread_cond_broadcast(&c->phase_opened);
      pthread_mutex_unlock(&c->lock);
    }
  }
  restore_subnormals(before);
}

#ifdef MINIDL_PTHREADS
typedef struct { team *c; int number; pthread_t id; } team_thread;

static void *team_start(void *thread) {
  team_member(((team_thread *)thread)->c, ((team_thread *)thread)->number);
  return 0;
}

static void team_region(team *c, int threads) {
  team_thread others[threads];
  for (int i = 1; i < threads; i++) {
    others[i] = (team_thread){c, i};
    if (pthread_create(&others[i].id, 0, team_start, &others[i])) abort();
  }
  team_member(c, 0);
  for (int i = 1; i < threads; i++) pthread_join(others[i].id, 0);
}
#else
static void team_region(team *c, int threads) {
  #pragma omp parallel num_threads(threads)
  team_member(c, omp_get_thread_num());
}
#endif

/* Returns 0 if there is no memory, before any task has run. */
static int team_run_parallel(team_work work, void *arg, ptrdiff_t steps, const ptrdiff_t *tasks, ptrdiff_t phases, int threads) {
  team c = {.work = work, .arg = arg, .tasks = tasks, .phases = phases, .threads = threads};
  for (ptrdiff_t p = 0; p < phases; p++) c.step_tasks += tasks[p];
  c.total_tasks = c.step_tasks * steps;
  c.claims = calloc(c.step_tasks, sizeof *c.claims);
  if (!c.claims) return 0;
  pthread_mutex_init(&c.lock, 0);
  pthread_cond_init(&c.phase_opened, 0);
  team_region(&c, threads);
  pthread_cond_destroy(&c.phase_opened);
  pthread_mutex_destroy(&c.lock);
  free(c.claims);
  return 1;
}
#endif

/* Runs all steps with at most `threads` threads, numbered from 0. One thread opens no region. */
static void team_run(team_work work, void *arg, ptrdiff_t steps, const ptrdiff_t *tasks, ptrdiff_t phases, int threads) {
#ifdef _OPENMP
  if (threads > 1 && team_run_parallel(work, arg, steps, tasks, phases, threads)) return;
#endif
  (void)threads;
  unsigned before = flush_subnormals();
  team_run_serial(work, arg, steps, tasks, phases);
  restore_subnormals(before);
}
#endif
