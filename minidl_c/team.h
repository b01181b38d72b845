/* team.h: the one place that opens a parallel region, and the only one that waits.
 *
 * A job is a number of rounds (training steps); a round is a list of phases, a phase a number of items (slots of tiles,
 * ranges of parameters). Every item of every round is a ticket. Threads draw tickets in order, and a phase opens when all
 * tickets before it are done. So a thread waits for a ticket that somebody works on, never for a thread: one that the
 * machine does not run costs nothing. A wait spins 50 us and then sleeps, so that whoever holds the ticket gets the core.
 *
 * libgomp's own loops wait for threads and spin much longer: beside a busy process its 0.5 ms steps took 2 to 5 ms, with
 * tickets 1 ms. The region itself is OpenMP's, so OMP_NUM_THREADS, threadpoolctl and joblib act on it as on any other.
 * Which thread does what never changes a bit. */
#ifndef MINIDL_TEAM_H
#define MINIDL_TEAM_H
#include "lanes.h"

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
#include <time.h>

#define SPIN_NANOSECONDS 50000

typedef struct {
  team_work work;
  void *job;
  const ptrdiff_t *items;
  ptrdiff_t phases, round_size, tickets;         /* tickets of a round, of the job */
  _Atomic ptrdiff_t next, done;                  /* the next ticket to draw; how many are done */
  _Atomic int sleepers;
  pthread_mutex_t lock;
  pthread_cond_t news;
} team;

static int64_t nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Waits until more than `seen` tickets are done. */
static void team_wait(team *c, ptrdiff_t seen) {
  int64_t start = 0;
  for (unsigned n = 1; atomic_load(&c->done) == seen; n++) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (n & 63) continue;
    int64_t now = nanoseconds();
    if (!start) start = now;
    if (now - start < SPIN_NANOSECONDS) continue;
    pthread_mutex_lock(&c->lock);
    atomic_fetch_add(&c->sleepers, 1);
    while (atomic_load(&c->done) == seen) pthread_cond_wait(&c->news, &c->lock);
    atomic_fetch_sub(&c->sleepers, 1);
    pthread_mutex_unlock(&c->lock);
  }
}

static void team_member(team *c, int thread) {
  for (;;) {
    ptrdiff_t done = atomic_load(&c->done), k = atomic_load(&c->next);
    if (k >= c->tickets) return;
    ptrdiff_t round = k / c->round_size, start = round * c->round_size, phase = 0;
    while (k >= start + c->items[phase]) start += c->items[phase++];
    if (done < start) { team_wait(c, done); continue; }
    if (!atomic_compare_exchange_strong(&c->next, &k, k + 1)) continue;
    c->work(c->job, round, phase, k - start, thread);
    atomic_fetch_add(&c->done, 1);
    if (atomic_load(&c->sleepers)) {
      pthread_mutex_lock(&c->lock);
      pthread_cond_broadcast(&c->news);
      pthread_mutex_unlock(&c->lock);
    }
  }
}

static void team_together(team_work work, void *job, ptrdiff_t rounds, const ptrdiff_t *items, ptrdiff_t phases, int threads) {
  team c = {.work = work, .job = job, .items = items, .phases = phases};
  for (ptrdiff_t p = 0; p < phases; p++) c.round_size += items[p];
  c.tickets = c.round_size * rounds;
  pthread_mutex_init(&c.lock, 0);
  pthread_cond_init(&c.news, 0);
  #pragma omp parallel num_threads(threads)
  {
    unsigned before = flush_subnormals();
    team_member(&c, omp_get_thread_num());
    restore_subnormals(before);
  }
  pthread_cond_destroy(&c.news);
  pthread_mutex_destroy(&c.lock);
}
#endif

/* Does the whole job with at most `threads` threads, numbered from 0. One thread opens no region. */
static void team_run(team_work work, void *job, ptrdiff_t rounds, const ptrdiff_t *items, ptrdiff_t phases, int threads) {
#ifdef _OPENMP
  if (threads > 1) { team_together(work, job, rounds, items, phases, threads); return; }
#endif
  (void)threads;
  unsigned before = flush_subnormals();
  team_alone(work, job, rounds, items, phases);
  restore_subnormals(before);
}
#endif
