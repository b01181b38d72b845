"""Times single ops without Python overhead, and measures peak throughput and bandwidth. Built by peak.py."""
from libc.stdint cimport uint8_t
from libc.string cimport memset
from numpy import random, zeros
from posix.time cimport CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID, clock_gettime, clockid_t, timespec

from minidl_c.op cimport LANES, Op, aligned, batch_view, op, tile

cdef extern from "minidl_c/simd/reduction.h" nogil:
    Py_ssize_t find_slots(Py_ssize_t tiles, Py_ssize_t *starts)

cdef extern from *:
    """
    #include "minidl_c/simd/lanes.h"
    enum { CHAINS = VECTOR_REGISTERS == 32 ? 24 : 12, FLOPS = 2 * CHAINS * VECTOR_BYTES / 4 };

    /* Independent chains of multiply-adds: the peak throughput of this machine. */
    static float multiply_add(ptrdiff_t iterations) {
      vector_f32 sum[CHAINS], a = broadcast_f32(0.5f), total = {0};
      UNROLL for (int i = 0; i < CHAINS; i++) sum[i] = broadcast_f32((float)i);
      ROLL for (ptrdiff_t r = 0; r < iterations; r++) {
        UNROLL for (int i = 0; i < CHAINS; i++) sum[i] = fma_f32(sum[i], a, a);
      }
      UNROLL for (int i = 0; i < CHAINS; i++) total += sum[i];
      return total[0];
    }

    enum { NUMBERS = 1 << 16 };        /* elements; two such arrays take 512 KB, a quarter of a 2 MB cache */

    static void increase(const float *x, float *y) {
      const vector_f32 one = broadcast_f32(1);
      for (const float *end = x + NUMBERS; x < end; x += VECTOR_BYTES / 4, y += VECTOR_BYTES / 4)
        *(vector_f32 *)y = *(const vector_f32 *)x + one;
      __asm__ volatile("" ::: "memory");         /* keeps the compiler from hoisting the loop */
    }
    """
    const int FLOPS
    enum: NUMBERS
    float multiply_add(Py_ssize_t iterations) nogil
    void increase(const float *x, float *y) nogil

DIRECTIONS = ("forward", "backward", "backward without dx", "rows", "ReLU forward", "ReLU backward")


cdef clockid_t clock = CLOCK_MONOTONIC


def count_own_time():
    """Switches to CPU time of the thread, which excludes time that the processor spends on other processes."""
    global clock
    clock = CLOCK_THREAD_CPUTIME_ID


cdef double now() noexcept nogil:
    cdef timespec t
    clock_gettime(clock, &t)
    return t.tv_sec + 1e-9 * t.tv_nsec


def peak(double seconds):
    """Returns the float32 FLOP/s of one thread, sustained for `seconds` seconds."""
    cdef double start = now(), done = 0
    cdef float total = 0
    with nogil:
        while done == 0 or now() - start < seconds:
            total += multiply_add(20000)
            done += 20000.0 * FLOPS
    return done / (now() - start) + 0 * total


def bandwidth(double seconds):
    """Returns the bytes per second that one thread reads and writes in its L2 cache, sustained for `seconds` seconds."""
    cdef uint8_t[::1] buffer = zeros(2 * NUMBERS * sizeof(float) + 64, "uint8")
    cdef float *x = <float *> aligned(&buffer[0])
    cdef double start = now(), done = 0
    cdef int i
    with nogil:
        while done == 0 or now() - start < seconds:
            for i in range(16):
                increase(x, x + NUMBERS)
            done += 16.0 * 2 * NUMBERS * sizeof(float)
    return done / (now() - start)


cdef class TiledOp:
    """An op with all its arrays: one tile, or `tiles` of them for the reduction that follows the last tile.

    direction: one of DIRECTIONS. "rows" is the reduction of backward; the ReLU directions include a fused ReLU before the op.
    Raises ValueError if the op lacks that direction.
    """
    cdef Op source
    cdef tile t
    cdef batch_view w
    cdef Py_ssize_t starts[17]
    cdef list arrays
    cdef void (*one_tile)(const op *, const tile *) noexcept nogil
    cdef void (*reduce)(const op *, const batch_view *, Py_ssize_t, Py_ssize_t) noexcept nogil

    def __init__(self, Op source not None, str direction, Py_ssize_t tiles=1):
        cdef const op *o = &source.c
        self.source, self.arrays = source, []
        self.one_tile, self.reduce = o.forward_tile, NULL
        if direction == "ReLU forward":
            self.one_tile = o.fusion.forward_tile
        elif direction == "ReLU backward":
            self.one_tile = o.fusion.backward_tile
        elif direction != "forward":
            self.one_tile = o.backward_tile
        if direction == "rows":
            self.reduce = o.reduce.backward
        if direction not in DIRECTIONS or self.one_tile == NULL or direction == "rows" and self.reduce == NULL:
            raise ValueError(f"{type(source).__name__}: has no {direction}")
        self.fill(o, direction != "backward without dx", tiles)

    cdef int fill(self, const op *o, bint want_dx, Py_ssize_t tiles) except -1:
        """Allocates the arrays of the op and runs its forward, which fills some of them."""
        cdef tile *t = &self.t
        cdef batch_view *w = &self.w
        cdef Py_ssize_t number = o.real_bytes, row = o.real_bytes * LANES
        memset(t, 0, sizeof(tile))
        memset(w, 0, sizeof(batch_view))
        t.x, t.y, t.dy = self.allocate_random(tiles * o.in_size * row), self.allocate(o.out_size * row), self.allocate_random(tiles * o.out_size * row)
        t.dx = self.allocate(o.in_size * row) if want_dx else NULL
        t.saved, t.scratch = self.allocate_random(tiles * o.memory.saved), self.allocate(o.memory.scratch)
        t.sums = self.allocate(o.reduce.n_sums * row)
        t.param = self.allocate_random((o.n_param + o.n_state) * number)
        t.packed = self.allocate(o.memory.packed + o.memory.packed_dx)
        t.examples, t.parts, t.training, t.sum_stride = LANES, 1, 1, 1
        w.x, w.dy, w.saved, w.param, w.grad = t.x, t.dy, t.saved, t.param, self.allocate(o.n_param * number)
        w.x_tile, w.dy_tile, w.saved_tile = o.in_size * row, o.out_size * row, o.memory.saved
        w.starts, w.slots = self.starts, find_slots(tiles, self.starts)
        w.tiles, w.examples, w.training = tiles, tiles * LANES, 1
        if o.memory.prepare != NULL:
            o.memory.prepare(o, t.param, <void *> t.packed, False, 0, 1)
        if o.memory.prepare_dx != NULL:
            o.memory.prepare_dx(o, t.param, <void *> t.packed, 0, 1)
        if self.reduce == NULL:
            o.forward_tile(o, t)
        return 0

    cdef void *allocate(self, Py_ssize_t bytes) except NULL:
        """Returns zeroed memory with the alignment of a plan's arrays."""
        array = zeros(bytes + 64, "uint8")
        cdef uint8_t[::1] view = array
        self.arrays.append(array)
        return aligned(&view[0])

    cdef void *allocate_random(self, Py_ssize_t bytes) except NULL:
        """Returns memory with normal random numbers of the op's dtype."""
        cdef char *at = <char *> self.allocate(bytes)
        cdef uint8_t[::1] view = self.arrays[len(self.arrays) - 1]
        start = <Py_ssize_t> (at - <char *> &view[0])
        part = self.arrays[len(self.arrays) - 1][start:start + bytes].view(self.source.dtype)
        part[:] = random.default_rng(0).standard_normal(part.size)
        return at

    def seconds(self, double least):
        """Returns the mean seconds of one run of the op over at least `least` seconds, after a run that fills the caches."""
        cdef double start, end
        cdef Py_ssize_t n = 0, batch = 1, i
        with nogil:
            self.run()
            start = end = now()
            while end - start < least:
                for i in range(batch):
                    self.run()
                n, batch = n + batch, min(2 * batch, <Py_ssize_t> 256)
                end = now()
        return (end - start) / n

    cdef inline void run(self) noexcept nogil:
        if self.reduce != NULL:
            self.reduce(&self.source.c, &self.w, 0, self.source.c.reduce.n_items)
        else:
            self.one_tile(&self.source.c, &self.t)
