"""Shift: y = x + shift, one parameter per element. The gradient of `shift` is summed row by row after all tiles are done."""
from minidl_c.op cimport LANES, Op, batch_view, init_op, op, real, split_range, tile


cdef void shift_forward_tile(
    const real *x,                      # IN  [size][16]
    const real *shift,                  # IN  (size,)
    real *y,                            # OUT [size][16]; may be x
    Py_ssize_t i0, Py_ssize_t i1,       # rows to compute
) noexcept nogil:
    cdef Py_ssize_t i, lane
    for i in range(i0, i1):
        for lane in range(LANES):
            y[i * LANES + lane] = x[i * LANES + lane] + shift[i]


cdef void shift_backward_rows(
    const batch_view *w,                # IN  dy [tiles][size][16]
    real *dshift,                       # OUT (size,)
    Py_ssize_t i0, Py_ssize_t i1,
) noexcept nogil:
    cdef Py_ssize_t i, t, lane
    cdef const real *dy
    cdef real total
    for i in range(i0, i1):
        total = 0
        for t in range(w.tiles):
            dy = <const real *> (<const char *> w.dy + t * w.dy_tile) + i * LANES
            for lane in range(LANES):
                total += dy[lane]
        dshift[i] = total


cdef void forward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    if o.real_bytes == 4:
        shift_forward_tile(<const float *> t.x, <const float *> t.param, <float *> t.y, i0, i1)
    else:
        shift_forward_tile(<const double *> t.x, <const double *> t.param, <double *> t.y, i0, i1)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    cdef Py_ssize_t i, i0 = 0, i1 = 0
    if t.dx == NULL or t.dx == t.dy:
        return
    split_range(o.in_size * LANES * o.real_bytes, t.part, t.parts, &i0, &i1)
    for i in range(i0, i1):
        (<char *> t.dx)[i] = (<const char *> t.dy)[i]


cdef void reduce_rows(const op *o, const batch_view *w, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    if o.real_bytes == 4:
        shift_backward_rows(w, <float *> w.grad, i0, i1)
    else:
        shift_backward_rows(w, <double *> w.grad, i0, i1)


cdef class ShiftOp(Op):
    """Adds a parameter to every element of in_shape."""

    def __init__(self, in_shape, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.splits = self.c.memory.in_place = 1
        self.c.n_param = self.c.reduce.n_items = self.c.in_size
        self.c.forward_tile, self.c.backward_tile, self.c.reduce.backward = forward, backward, reduce_rows
