"""Log-cosh loss, log(cosh(x - t)): a user-defined loss, the last op of a training plan."""
from libc.math cimport cosh, log, tanh
from libc.string cimport memset

from minidl_c.op cimport LANES, READS_Y, Op, init_op, op, real, tile


cdef void forward_rows(
    const real *x,                      # IN  [size][16]
    const real *targets,                # IN  [size][16]
    Py_ssize_t size,
    real *y,                            # OUT [size][16], tanh(x - t) for backward; may be x
    real *losses,                       # OUT [16]
) noexcept nogil:
    cdef Py_ssize_t i, lane
    cdef double d
    for lane in range(LANES):
        losses[lane] = 0
    for i in range(size):
        for lane in range(LANES):
            d = x[i * LANES + lane] - targets[i * LANES + lane]
            losses[lane] += <real> log(cosh(d))
            y[i * LANES + lane] = <real> tanh(d)


cdef void backward_rows(
    const real *y,                      # IN  [size][16]
    const real *weights,                # IN  [16], 0 in lanes without an example
    Py_ssize_t size,
    real *dx,                           # OUT [size][16]
) noexcept nogil:
    cdef Py_ssize_t i, lane
    for i in range(size):
        for lane in range(LANES):
            dx[i * LANES + lane] = weights[lane] * y[i * LANES + lane]


cdef void forward(const op *o, const tile *t) noexcept nogil:
    memset(t.scratch, 0xFF, (<const Py_ssize_t *> o.dims)[0])
    if o.real_bytes == 4:
        forward_rows(<const float *> t.x, <const float *> t.targets, o.in_size, <float *> t.y, <float *> t.losses)
    else:
        forward_rows(<const double *> t.x, <const double *> t.targets, o.in_size, <double *> t.y, <double *> t.losses)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    if o.real_bytes == 4:
        backward_rows(<const float *> t.y, <const float *> t.weights, o.in_size, <float *> t.dx)
    else:
        backward_rows(<const double *> t.y, <const double *> t.weights, o.in_size, <double *> t.dx)


cdef class LogCoshOp(Op):
    """Sums log(cosh(x - t)) over the outputs of an example. scratch: bytes of scratch memory, filled with garbage."""

    cdef Py_ssize_t bytes

    def __init__(self, in_shape, dtype="float32", scratch=0, is_loss=1):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.loss.is_loss, self.c.memory.in_place, self.c.reads = is_loss, 1, READS_Y
        self.bytes = scratch
        self.c.loss.n_target, self.c.memory.scratch, self.c.dims = self.c.in_size, self.bytes, &self.bytes
        self.c.forward_tile, self.c.backward_tile = forward, backward
