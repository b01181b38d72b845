/* team.h: the one place that opens a parallel region, and the only one that waits.
 *
 * A job is a number of rounds (training steps); a round is a list of phases, a phase a number of items (slots of tiles,
 * ranges of parameters). A phase opens when all items before it are done. Whoever is free claims an item of the open phase,
 * first those of his own share, which are the same in every round, so that what he wrote is still in his core's cache;
 * then anybody's. So inside a job a thread waits for an item that somebody works on, never for a thread: one that the machine
 * does not run costs nothing. A wait spins for a while and then sleeps, so that whoever is at work gets the core. Only the end
 * of a job, OpenMP's own, waits for all threads: once in many steps of `fit`, in every `train_batch`.
 *
 * libgomp's own loops wait for threads and spin much longer: beside a busy process its 0.5 ms steps took 2 to 5 ms, with
 * items to claim 1 ms. The region itself is OpenMP's, so OMP_NUM_THREADS, threadpoolctl and joblib act on it as on any other.
 * Which thread does what never changes a bit.
 *
 * Nothing but the end of a phase orders what two items do, and the atomics say no more than that: ThreadSanitizer reports
 * items of two threads that touch one number even if they came one after the other. It cannot see into libgomp, so for it
 * MINIDL_PTHREADS opens the region with threads of our own. Each does its share and no more, and waits without a lock, which
 * would order more than the phases do: slow, and exact. */
#ifndef MINIDL_TEAM_H
#define MINIDL_TEAM_H
#include "minidl_c/simd/lanes.h"

/* The job's function: does one item of one phase of one round, as the thread of that number. */
typedef void (*team_work)(void *job, ptrdiff_t round, ptrdiff_t phase, ptrdiff_t item, int thread);

static void team_alone(team_work work, void *job, ptrdiff_t rounds, const ptrdiff_t *items, ptrdiff_t phases) {
  for (ptrdiff_t round = 0; round < rounds; round++)
    for (ptrdiff_t phase = 0; phase < phases; phase++)
      for (ptrdiff_t item = 0; item < items[phase]; item++) work(job, round, phase, item, 0);
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
/* Longer than a sleeper takes to wake, or one sleep would follow another: LeNet-5's steps then took half as long again. */
#define SPIN_NANOSECONDS 400000
#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif
#endif

typedef struct {
  team_work work;
  void *job;
  const ptrdiff_t *items;
  ptrdiff_t phases;
  ptrdiff_t round_size, total;                   /* items of a round, of the run_state */
  int threads;
  _Atomic int32_t *claims;                       /* for each item of a round: in how many rounds it was claimed */
  _Atomic ptrdiff_t done, open;                  /* items of the job; of the phases that are over */
  _Atomic int sleepers;
  pthread_mutex_t lock;
  pthread_cond_t news;
} team;

static int64_t nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Waits until the phases with the first so many items are over. */
static void team_wait(team *c, ptrdiff_t enough) {
  int64_t start = 0;
  for (unsigned n = 1; atomic_load(&c->open) < enough; n++) {
    PAUSE();
    if (n & 63) continue;
    int64_t now = nanoseconds();
    if (!start) start = now;
    if (now - start < SPIN_NANOSECONDS) continue;
    pthread_mutex_lock(&c->lock);
    atomic_fetch_add(&c->sleepers, 1);
    while (atomic_load(&c->open) < enough) pthread_cond_wait(&c->news, &c->lock);
    atomic_fetch_sub(&c->sleepers, 1);
    pthread_mutex_unlock(&c->lock);
  }
}

/* An item of the phase that begins at `first` in its round, or -1 if all are claimed. Those of a round that is over have
 * been claimed once more than `round` says, so a thread that comes late gets none. */
static ptrdiff_t team_claim(team *c, ptrdiff_t round, ptrdiff_t first, ptrdiff_t items, int thread) {
  ptrdiff_t own = items * thread / c->threads, some = EXACT ? items * (thread + 1) / c->threads - own : items;
  for (ptrdiff_t i = 0; i < some; i++) {
    ptrdiff_t item = own + i < items ? own + i : own + i - items;
    int32_t claimed = (int32_t)round;
    if (atomic_load_explicit(&c->claims[first + item], memory_order_relaxed) == claimed
        && atomic_compare_exchange_strong_explicit(&c->claims[first + item], &claimed, claimed + 1, memory_order_relaxed,
                                                   memory_order_relaxed)) return item;
  }
  return -1;
}

static void team_member(team *c, int thread) {
  unsigned before = flush_subnormals();
  for (ptrdiff_t start; (start = atomic_load(&c->open)) < c->total;) {
    ptrdiff_t round = start / c->round_size, end = round * c->round_size, phase = 0;
    while (start >= (end += c->items[phase])) phase++;
    ptrdiff_t item = team_claim(c, round, start - round * c->round_size, end - start, thread);
    if (item < 0) { team_wait(c, end); continue; }
    c->work(c->job, round, phase, item, thread);
    if (atomic_fetch_add_explicit(&c->done, 1, memory_order_release) + 1 < end) continue;
    atomic_load(&c->done);                                   /* sees what all of them did, and hands it on */
    atomic_store(&c->open, end);
    if (atomic_fetch_add(&c->sleepers, 0)) {
      pthread_mutex_lock(&c->lock);
      pthread_cond_broadcast(&c->news);
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

/* Returns 0 if there is no memory for it; then nothing was done. */
static int team_together(team_work work, void *job, ptrdiff_t rounds, const ptrdiff_t *items, ptrdiff_t phases, int threads) {
  team c = {.work = work, .job = job, .items = items, .phases = phases, .threads = threads};
  for (ptrdiff_t p = 0; p < phases; p++) c.round_size += items[p];
  c.total = c.round_size * rounds;
  c.claims = calloc(c.round_size, sizeof *c.claims);
  if (!c.claims) return 0;
  pthread_mutex_init(&c.lock, 0);
  pthread_cond_init(&c.news, 0);
  team_region(&c, threads);
  pthread_cond_destroy(&c.news);
  pthread_mutex_destroy(&c.lock);
  free(c.claims);
  return 1;
}
#endif

/* Does the whole job with at most `threads` threads, numbered from 0. One thread opens no region. */
static void team_run(team_work work, void *job, ptrdiff_t rounds, const ptrdiff_t *items, ptrdiff_t phases, int threads) {
#ifdef _OPENMP
  if (threads > 1 && team_together(work, job, rounds, items, phases, threads)) return;
#endif
  (void)threads;
  unsigned before = flush_subnormals();
  team_alone(work, job, rounds, items, phases);
  restore_subnormals(before);
}
#endif
