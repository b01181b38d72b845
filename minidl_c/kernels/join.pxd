"""Functions of two branches, element by element. See join.pyx."""
from minidl_c.op cimport real, typed_tile

cdef extern from "minidl_c/kernels/join_tiles.h" nogil:
    enum:
        JOIN_VALUE
        JOIN_FIRST
        JOIN_SECOND
    const int JOIN_AXES
    ctypedef struct join_loop:
        int axes
        Py_ssize_t size[8]
        Py_ssize_t a[8]
        Py_ssize_t b[8]
        Py_ssize_t dy[8]

ctypedef struct join_dims:              # of y, or of a gradient
    int join, what
    bint same, per_channel              # all shapes are the same; no shape is broadcast along the channels
    Py_ssize_t a, b, dy, out            # rows from one channel to the next
    join_loop each, sum                 # axes of a channel of `out`, and those that are summed
    Py_ssize_t full_size, other_size    # elements of y, and of the operand whose gradient this is not

cdef bint reads_both(const join_dims *d) noexcept
cdef int set_join(join_dims *d, object join, int what, tuple first_shape, tuple second_shape) except -1
cdef void join_groups(const join_dims *d, const typed_tile *t, const real *a, const real *b, const real *dy, const real *plus,
                      real *out) noexcept nogil
cdef void join_elements(const join_dims *d, const typed_tile *t, const real *a, const real *b, const real *dy, const real *plus,
                        real *out, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
