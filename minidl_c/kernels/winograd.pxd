"""Convolutions of 3 x 3 with fewer multiplications. See winograd.pyx."""
from minidl_c.kernels.conv2d_dims cimport conv2d_dims, winograd_dims
from minidl_c.op cimport op, real

cdef extern from "minidl_c/kernels/winograd_tiles.h" nogil:
    const int OUT
    const int POINTS
    const int TAPS
    ctypedef struct winograd_patches:
        Py_ssize_t first, n, across, height, width, top, left, out_height, out_width, row0, row1
    Py_ssize_t point_stride(Py_ssize_t elements)
    void winograd_input(const winograd_patches *p, Py_ssize_t vectors, const void *x, void *v, Py_ssize_t v_point)

cdef inline Py_ssize_t count_patches(const winograd_dims *d) noexcept nogil:
    """The number of patches of an image."""
    return (d.out_height + OUT - 1) // OUT * ((d.out_width + OUT - 1) // OUT)


cdef winograd_patches patches_of(const winograd_dims *d) noexcept nogil
cdef bint init_winograd_dims(conv2d_dims *d) noexcept
cdef bint winograd_pays(const conv2d_dims *d) noexcept
cdef void use_winograd(op *o, conv2d_dims *d) noexcept
cdef const real *packed_for_dx(const conv2d_dims *d, const real *packed) noexcept nogil
cdef void winograd_tile(const winograd_dims *d, const real *x, const real *u, const real *b, real *y, Py_ssize_t part, Py_ssize_t parts,
                        real *scratch) noexcept nogil
