"""Copies of whole channels in the blocked layout, where a channel is one lane of a block."""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, real

cdef extern from "minidl_c/simd/lane_copies.h" nogil:
    void copy_lanes(Py_ssize_t n, Py_ssize_t rows, const void *x, Py_ssize_t x_row, void *y, Py_ssize_t y_row)
    void pick_lanes(const Py_ssize_t *source, Py_ssize_t rows, const void *x, void *y)


cdef inline void copy_channel_pixels(
    const real *x,                      # IN  [blocks][pixels][16]
    Py_ssize_t x0,                      # from this channel on
    real *y,                            # OUT [blocks][pixels][16]
    Py_ssize_t y0,                      # to this channel, and the next ones
    Py_ssize_t n,                       # number of channels
    Py_ssize_t pixels,
    Py_ssize_t p0, Py_ssize_t p1,       # only these pixels
) noexcept nogil:
    cdef Py_ssize_t i = x0, k = y0, lanes
    cdef const real *source
    cdef real *target
    while k < y0 + n:                   # the channels that lie in one block of x, and in one of y
        lanes = min(y0 + n - k, LANES - max(i % LANES, k % LANES))
        source, target = x + (i // LANES * pixels + p0) * LANES + i % LANES, y + (k // LANES * pixels + p0) * LANES + k % LANES
        if lanes == LANES:
            memcpy(target, source, (p1 - p0) * LANES * sizeof(real))
        else:
            copy_lanes(lanes, p1 - p0, source, LANES, target, LANES)
        i, k = i + lanes, k + lanes


cdef inline void copy_channels(const real *x, Py_ssize_t x0, real *y, Py_ssize_t y0, Py_ssize_t n, Py_ssize_t pixels) noexcept nogil:
    copy_channel_pixels(x, x0, y, y0, n, pixels, 0, pixels)
