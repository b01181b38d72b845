"""Fork and join: ops for a value that is read twice.

    Split    passes its input on; backward adds the gradient of the second reader (`dskip`)
    Add      y = x + the second input (`skip`); dy is the gradient of both
    Recall   begins a second branch: y is an earlier value (`skip`). Backward passes the gradient of the join (`dskip`) to
             its own input, the end of the first branch
    Gate     y = x * the end of the first branch (`skip`), where x comes from a Recall with `gate`. In backward, Gate reads
             its second input again and Recall its output
"""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, READS_Y, Op, init_op, op, real, split_range, tile


cdef void combine(const real *a, const real *b, real *out, Py_ssize_t i0, Py_ssize_t i1, bint product) noexcept nogil:
    """Sets rows i0 to i1 of out [size][16] to a + b, or to a * b if `product`; out may be a or b."""
    cdef Py_ssize_t i
    if product:
        for i in range(i0 * LANES, i1 * LANES):
            out[i] = a[i] * b[i]
    else:
        for i in range(i0 * LANES, i1 * LANES):
            out[i] = a[i] + b[i]


cdef void combine_part(const op *o, const tile *t, const void *a, const void *b, void *out, bint product) noexcept nogil:
    cdef Py_ssize_t i0 = 0, i1 = 0
    if out == NULL:
        return
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    if o.real_bytes == 4:
        combine(<const float *> a, <const float *> b, <float *> out, i0, i1, product)
    else:
        combine(<const double *> a, <const double *> b, <double *> out, i0, i1, product)


cdef void split_backward(const op *o, const tile *t) noexcept nogil:
    combine_part(o, t, t.dy, t.dskip, t.dx, False)


cdef void add_forward(const op *o, const tile *t) noexcept nogil:
    combine_part(o, t, t.x, t.skip, t.y, False)


cdef void gate_forward(const op *o, const tile *t) noexcept nogil:
    combine_part(o, t, t.x, t.skip, t.y, True)


cdef void gate_backward(const op *o, const tile *t) noexcept nogil:
    combine_part(o, t, t.dy, t.skip, t.dx, True)


cdef void recall_forward(const op *o, const tile *t) noexcept nogil:
    memcpy(t.y, t.skip, o.out_size * LANES * o.real_bytes)


cdef void recall_backward_add(const op *o, const tile *t) noexcept nogil:
    if t.dx != NULL:
        memcpy(t.dx, t.dskip, o.in_size * LANES * o.real_bytes)


cdef void recall_backward_gate(const op *o, const tile *t) noexcept nogil:
    combine_part(o, t, t.dskip, t.y, t.dx, True)


cdef class SplitOp(Op):
    """y = x, which a second op reads too; dx = dy + the gradient of value `dskip`."""

    def __init__(self, in_shape, dskip, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.splits = self.c.memory.in_place = 1
        self.c.branch.dskip = dskip
        self.c.backward_tile = split_backward


cdef class AddOp(Op):
    """y = x + value `skip`."""

    def __init__(self, in_shape, skip, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.splits = self.c.memory.in_place = 1
        self.c.branch.skip = skip
        self.c.forward_tile = add_forward


cdef class GateOp(Op):
    """y = x * value `skip`."""

    def __init__(self, in_shape, skip, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.splits = self.c.memory.in_place = 1
        self.c.branch.skip = skip
        self.c.forward_tile, self.c.backward_tile = gate_forward, gate_backward


cdef class RecallOp(Op):
    """y = value `skip`; dx = the gradient of value `dskip`, times y with `gate`."""

    def __init__(self, in_shape, skip, dskip, gate=False, dtype="float32"):
        init_op(self, tuple(in_shape), tuple(in_shape), dtype)
        self.c.branch.skip, self.c.branch.dskip = skip, dskip
        self.c.forward_tile, self.c.backward_tile = recall_forward, recall_backward_add
        if gate:
            self.c.reads, self.c.backward_tile = READS_Y, recall_backward_gate
