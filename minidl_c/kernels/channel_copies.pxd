"""Copies of whole channels in the blocked layout, where a channel is one lane of a block."""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, real


cdef inline void copy_channels(
    const real *x,                      # IN  [blocks][pixels][16]
    Py_ssize_t x0,                      # from this channel on
    real *y,                            # OUT [blocks][pixels][16]
    Py_ssize_t y0,                      # to this channel, and the next ones
    Py_ssize_t n,                       # number of channels
    Py_ssize_t pixels,
) noexcept nogil:
    cdef Py_ssize_t c = 0, p
    cdef const real *source
    cdef real *target
    while c < n:
        source = x + ((x0 + c) // LANES * pixels) * LANES + (x0 + c) % LANES
        target = y + ((y0 + c) // LANES * pixels) * LANES + (y0 + c) % LANES
        if (x0 + c) % LANES == 0 and (y0 + c) % LANES == 0 and n - c >= LANES:       # a whole block
            memcpy(target, source, pixels * LANES * sizeof(real))
            c += LANES
            continue
        for p in range(pixels):
            target[p * LANES] = source[p * LANES]
        c += 1
