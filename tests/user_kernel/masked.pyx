"""A user's dropout: in training, y = 2 x where a random bit of the element is 1, else 0; in inference, y = x."""
from libc.stdint cimport uint32_t

from minidl_c.kernels.threefry cimport keys_of_examples, lane_keys, threefry_lanes
from minidl_c.op cimport LANES, Op, init_op, op, real, tile

cdef int PATH = 7                       # in place of a hash of the layer's path


cdef void mask_tile(const op *o, const tile *t, const real *x, real *y, bint draws) noexcept nogil:
    cdef lane_keys keys = keys_of_examples(t.seed, PATH, t.step, t.example_ids, t.examples)
    cdef uint32_t bits[2 * 16]
    cdef Py_ssize_t i, lane
    for i in range(o.in_size):
        threefry_lanes(&keys, i, bits)
        for lane in range(LANES):
            y[i * LANES + lane] = x[i * LANES + lane] * (2 * (bits[lane] >> 31) if draws else 1)


cdef void mask(const op *o, const tile *t, const void *x, void *y, bint draws) noexcept nogil:
    if o.real_bytes == 4:
        mask_tile(o, t, <const float *> x, <float *> y, draws)
    else:
        mask_tile(o, t, <const double *> x, <double *> y, draws)


cdef void forward(const op *o, const tile *t) noexcept nogil:
    mask(o, t, t.x, t.y, t.training)


cdef void backward(const op *o, const tile *t) noexcept nogil:
    if t.dx != NULL:
        mask(o, t, t.dy, t.dx, t.training)


cdef void always_draw(const op *o, const tile *t) noexcept nogil:
    if t.dx != NULL:
        mask(o, t, t.dy, t.dx, True)


cdef class MaskedOp(Op):
    """Of any shape. fault: "none"; "unsaid", it does not say that it draws; "backward", which draws in inference, too."""

    def __init__(self, in_shape, str fault, dtype):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.forward_tile = forward
        self.c.backward_tile = always_draw if fault == "backward" else backward
        self.c.draws = fault != "unsaid"
