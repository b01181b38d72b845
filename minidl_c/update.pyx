"""Update: what a native optimizer brings to a plan."""
from libc.stdint cimport int64_t

from minidl_c.buffers cimport address

cdef extern from "lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)


cdef class Update:
    """What a native optimizer brings: a C function that updates a range of the flat parameters. See sgd.pyx."""

    def apply(self, param, grad, double rate, int64_t[::1] count not None):
        """One update of all flat parameters, outside a plan: param IN and OUT, grad IN, of one size and dtype.

        count (1,) IN and OUT: the steps done so far, one more now; no signal can come between the two.
        """
        dtype, size = "float32" if self.c.real_bytes == 4 else "float64", len(grad)
        cdef char *w = address(param, dtype, size, True, "param")
        cdef char *g = address(grad, dtype, size, False, "grad")
        cdef unsigned before = flush_subnormals()      # as inside a plan
        self.c.update(&self.c, w, g, 0, size, rate)
        restore_subnormals(before)
        count[0] += 1
