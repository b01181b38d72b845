"""The windows of a pooling. See pool2d.h and pool2d.pyx."""

cdef extern from "minidl_c/kernels/pool2d.h" nogil:
    ctypedef struct span:
        Py_ssize_t start, first, end, counted
    ctypedef struct pool2d_dims:
        Py_ssize_t C, H, W, OH, OW
        Py_ssize_t kw, dh, dw
        span *rows
        span *columns
        bint tiled
    ctypedef struct window:
        Py_ssize_t h0, h1, w0, w1, width, row_step, cell_step
    Py_ssize_t find_window(const pool2d_dims *d, Py_ssize_t oh, Py_ssize_t ow, window *k)

cdef int pool2d_init_dims(pool2d_dims *d, object in_shape, object pool_size, object stride, object padding, object ceil_mode,
                          object dilation, bint count_padding) except -1
cdef int pool2d_init_adaptive(pool2d_dims *d, object in_shape, object size) except -1
cdef void pool2d_free_dims(pool2d_dims *d) noexcept
