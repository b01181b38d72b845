"""An op with selectable fields, for plans that refuse it or are never run."""
from minidl_c.op cimport BARRIER_FORWARD, Op, batch_view, init_op, op, tile


cdef void compute_tile(const op *o, const tile *t) noexcept nogil:
    pass


cdef void reduce_rows(const op *o, const batch_view *w, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil:
    pass


cdef class FieldsOp(Op):
    """Maps (3,) to (3,) in float32; its functions do nothing."""

    def __init__(self, Py_ssize_t n_param=0, Py_ssize_t n_sums=0, Py_ssize_t n_items=0, bint backward=True,
                 bint reduce_backward=False, bint reduce_forward=False):
        init_op(self, (3,), (3,), "float32")
        self.c.n_param, self.c.reduce.n_sums, self.c.reduce.n_items = n_param, n_sums, n_items
        self.c.forward_tile = compute_tile
        if backward:
            self.c.backward_tile = compute_tile
        if reduce_backward:
            self.c.reduce.backward = reduce_rows
        if reduce_forward:
            self.c.reduce.forward, self.c.reduce.barrier = reduce_rows, BARRIER_FORWARD
