"""An op whose fields are what a test says: for plans that refuse it, or are never run."""
from minidl_c.op cimport CUT_FORWARD, Op, describe, op, tile, whole


cdef void tiles(const op *o, const tile *t) noexcept nogil:
    pass


cdef void rows_of(const op *o, const whole *w, Py_ssize_t r0, Py_ssize_t r1) noexcept nogil:
    pass


cdef class FieldsOp(Op):
    """float32, (3,) to (3,)."""

    def __init__(self, Py_ssize_t n_param=0, Py_ssize_t n_lane=0, Py_ssize_t rows=0, bint backward=True,
                 bint backward_rows=False, bint forward_rows=False):
        describe(self, (3,), (3,), "float32")
        self.c.n_param, self.c.n_lane, self.c.rows = n_param, n_lane, rows
        self.c.forward_tile = tiles
        if backward:
            self.c.backward_tile = tiles
        if backward_rows:
            self.c.backward_rows = rows_of
        if forward_rows:
            self.c.forward_rows, self.c.cut = rows_of, CUT_FORWARD
