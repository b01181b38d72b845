"""y = x as an op with a selectable fault, which a working sanitizer has to report."""
from libc.stdint cimport int64_t

from minidl_c.optimizers.update cimport optimizer
from minidl_c.op cimport LANES, READS_X, Op, batch_view, init_op, op, tile
from minidl_c.optimizers.update cimport Update

cdef long long shared = 0               # incremented by the faults that race


cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef const float *x = <const float *> t.x
    cdef float *y = <float *> t.y
    cdef Py_ssize_t i
    for i in range(o.in_size * LANES):
        y[i] = x[i]


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef const float *dy = <const float *> t.dy
    cdef float *dx = <float *> t.dx
    cdef Py_ssize_t i
    for i in range(o.in_size * LANES):
        dx[i] = dy[i]


cdef void reads_beyond(const op *o, const tile *t) noexcept nogil:
    forward(o, t)
    (<float *> t.y)[0] += (<const float *> t.x)[o.in_size * LANES]


cdef void writes_beyond(const op *o, const tile *t) noexcept nogil:
    forward(o, t)
    (<float *> t.y)[o.in_size * LANES] = 1


cdef void misaligned(const op *o, const tile *t) noexcept nogil:
    forward(o, t)
    (<float *> t.y)[0] = <float> (<const double *> (<const char *> t.x + 4))[0]


cdef void overflows(const op *o, const tile *t) noexcept nogil:
    forward(o, t)
    (<float *> t.y)[0] = <float> (<int> t.examples + 0x7FFFFFFF)


cdef void reads_scratch(const op *o, const tile *t) noexcept nogil:
    forward(o, t)
    (<float *> t.y)[0] += (<const float *> t.scratch)[0]


cdef void reads_saved(const op *o, const tile *t) noexcept nogil:
    backward(o, t)
    (<float *> t.dx)[0] += (<const float *> t.saved)[0]


cdef void shares(const op *o, const tile *t) noexcept nogil:
    global shared
    forward(o, t)
    shared += 1


cdef void shares_rows(const op *o, const batch_view *w, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil:
    global shared
    cdef Py_ssize_t r
    for r in range(r0, r1):
        (<float *> w.grad)[r] = 0
        shared += 1


cdef class CanaryOp(Op):
    """An op in float32. fault: "none" or one of those below."""

    def __init__(self, in_shape, str fault):
        init_op(self, tuple(in_shape), tuple(in_shape), "float32")
        self.c.reads = READS_X
        self.c.memory.saved = self.c.memory.scratch = 64
        self.c.forward_tile, self.c.backward_tile = forward, backward
        if fault == "reads beyond":
            self.c.forward_tile = reads_beyond
        elif fault == "writes beyond":
            self.c.forward_tile = writes_beyond
        elif fault == "misaligned":
            self.c.forward_tile = misaligned
        elif fault == "overflows":
            self.c.forward_tile = overflows
        elif fault == "reads scratch":
            self.c.forward_tile = reads_scratch
        elif fault == "reads saved":
            self.c.backward_tile = reads_saved
        elif fault == "shares":
            self.c.forward_tile = shares
        elif fault == "ignores part":
            self.c.splits = 1
        elif fault == "shares rows":
            self.c.n_param = self.c.reduce.n_items = 512
            self.c.reduce.backward = shares_rows
        elif fault != "none":
            raise ValueError(f"fault: got {fault!r}")


cdef void shares_update(const optimizer *o, void *param, const void *grad, Py_ssize_t start, Py_ssize_t end,
                        double rate, int64_t step) noexcept nogil:
    global shared
    shared += end - start


cdef class CanaryUpdate(Update):
    """An optimizer that increments a shared counter without synchronization and updates nothing."""

    def __init__(self, size):
        self.begin(size, "float32")
        self.c.update = shares_update
