/* team.h: the only place that opens a parallel region.
 *
 * A run consists of steps (training steps), a step of phases, a phase of tasks (slots of tiles, ranges of parameters). A phase
 * opens when all tasks before it are done. A free thread claims a task of the open phase: first one of its own share, which is
 * the same in every step, so that the data are still in its core's cache; then any other (work stealing). Within a run a thread
 * therefore waits for a task that another thread executes, never for a thread: one that the machine does not schedule costs
 * nothing. The assignment of tasks to threads never changes a bit.
 *
 * The threads of a region are OpenMP's, or those of thread_pool.h in a build without OpenMP. OpenMP's region waits for all its
 * threads at its end: once in many steps of `fit`, in every `train_batch`. libgomp's own loops would wait for threads in each
 * phase: beside a busy process its 0.5 ms steps took 2 to 5 ms, with claimed tasks 1 ms.
 *
 * Only the end of a phase orders two tasks, and the atomics say no more than that: ThreadSanitizer reports tasks of two threads
 * that access the same number even if one happened to run after the other (see MINIDL_EXACT in waiting.h). */
#ifndef MINIDL_TEAM_H
#define MINIDL_TEAM_H
#include <string.h>
#include "minidl_c/runtime/thread_pool.h"
#include "minidl_c/simd/lanes.h"
#ifdef _OPENMP
#include <omp.h>
#endif

/* Runs one task of one phase of one step, as thread number `thread`. */
typedef void (*team_work)(void *arg, ptrdiff_t step, ptrdiff_t phase, ptrdiff_t task, int thread);

typedef struct {
  team_work work;
  void *arg;
  ptrdiff_t phases, step_tasks, total_tasks;     /* phases and tasks of a step, tasks of the run */
  int threads;
  _Atomic int holders;                           /* threads that may still read this struct; the last one frees it */
  _Atomic ptrdiff_t done, open;                  /* tasks that are done; tasks of the phases that are complete */
  wait_queue queue;                              /* of threads that wait for `open` */
  ptrdiff_t *tasks;                              /* of each phase */
  _Atomic int32_t *claims;                       /* of each task of a step: the number of steps in which it was claimed */
} team;

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

/* Takes part in a run until all its tasks are done. */
static void team_member(team *c, int thread) {
  unsigned before = flush_subnormals();
  for (ptrdiff_t start; (start = atomic_load(&c->open)) < c->total_tasks;) {
    ptrdiff_t step = start / c->step_tasks, end = step * c->step_tasks, phase = 0;
    while (start >= (end += c->tasks[phase])) phase++;
    ptrdiff_t task = team_claim(c, step, start - step * c->step_tasks, end - start, thread);
    if (task < 0) { wait_for(&c->queue, &c->open, end); continue; }
    c->work(c->arg, step, phase, task, thread);
    if (atomic_fetch_add_explicit(&c->done, 1, memory_order_release) + 1 < end) continue;
    atomic_load(&c->done);                                   /* acquires the writes of all tasks, to publish them */
    atomic_store(&c->open, end);
    wake_up(&c->queue);
  }
  restore_subnormals(before);
}

static void team_release(team *c, int holders) {
  if (atomic_fetch_sub(&c->holders, holders) == holders) free(c);
}

/* Returns NULL if there is no memory. */
static team *team_new(team_work work, void *arg, ptrdiff_t steps, const ptrdiff_t *tasks, ptrdiff_t phases, int threads) {
  ptrdiff_t step_tasks = 0, largest = 1;                     /* more threads than tasks of a phase have nothing to do */
  for (ptrdiff_t p = 0; p < phases; p++) {
    step_tasks += tasks[p];
    if (tasks[p] > largest) largest = tasks[p];
  }
  if (threads > largest) threads = (int)largest;
  team *c = calloc(1, sizeof *c + phases * sizeof *c->tasks + step_tasks * sizeof *c->claims);
  if (!c) return 0;
  *c = (team){.work = work, .arg = arg, .phases = phases, .step_tasks = step_tasks, .total_tasks = step_tasks * steps,
              .threads = threads, .holders = threads, .tasks = (ptrdiff_t *)(c + 1)};
  c->claims = (_Atomic int32_t *)(c->tasks + phases);
  memcpy(c->tasks, tasks, phases * sizeof *tasks);           /* a late thread reads them after the caller has returned */
  return c;
}

#ifndef _OPENMP
static void team_guest(void *c, int thread) {
  team_member(c, thread);
  team_release(c, 1);
}
#endif

static void team_run_serial(team_work work, void *arg, ptrdiff_t steps, const ptrdiff_t *tasks, ptrdiff_t phases) {
  unsigned before = flush_subnormals();
  for (ptrdiff_t step = 0; step < steps; step++)
    for (ptrdiff_t phase = 0; phase < phases; phase++)
      for (ptrdiff_t task = 0; task < tasks[phase]; task++) work(arg, step, phase, task, 0);
  restore_subnormals(before);
}

/* Runs all steps with at most `threads` threads, numbered from 0. One thread opens no region; without memory for a team, one thread
 * runs them. */
static void team_run(team_work work, void *arg, ptrdiff_t steps, const ptrdiff_t *tasks, ptrdiff_t phases, int threads) {
  team *c = threads > 1 ? team_new(work, arg, steps, tasks, phases, threads) : 0;
  if (!c) {
    team_run_serial(work, arg, steps, tasks, phases);
    return;
  }
#ifdef _OPENMP
  #pragma omp parallel num_threads(c->threads)
  team_member(c, omp_get_thread_num());
  team_release(c, c->threads);
#else
  int n = c->threads - 1, missing = n;
  worker *guests = pool_invite(n, team_guest, c);
  for (worker *w = guests; w; w = w->next) missing--;
  if (EXACT && missing) abort();                             /* their shares would remain */
  team_member(c, 0);
  team_release(c, 1 + missing + pool_withdraw(n, guests));
#endif
}
#endif
