"""y = x, and dx = dy: what most ops that draw compute in inference, in tiles and in the blocked layout."""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, op, real, split_range, typed_tile


cdef inline void copy_rows(const real *x, real *y, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """Copies rows i0 to i1 of x to y, which may be x."""
    if y != x:
        memcpy(y + i0 * LANES, x + i0 * LANES, (i1 - i0) * LANES * sizeof(real))


cdef inline void copy_elements(const op *o, const typed_tile *t, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """The `blocked.elements` of an op that is the identity in inference."""
    copy_rows(t.x, t.y, i0, i1)


cdef inline void copy_part(const op *o, const typed_tile *t, const real *x, real *y) noexcept nogil:
    """Copies this part of a tile, x to y or dy to dx."""
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    copy_rows(x, y, i0, i1)
