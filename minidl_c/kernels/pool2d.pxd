"""The windows of a pooling. See pool2d.h."""

cdef extern from "minidl_c/kernels/pool2d.h" nogil:
    ctypedef struct pool2d_dims:
        Py_ssize_t C, H, W, OH, OW
        Py_ssize_t kh, kw, sh, sw, ph, pw
        bint tiled
    ctypedef struct window:
        Py_ssize_t h0, h1, w0, w1, width, row_stride
    Py_ssize_t clip_window(Py_ssize_t start, Py_ssize_t size, Py_ssize_t cells, Py_ssize_t *first, Py_ssize_t *end)
