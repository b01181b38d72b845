"""Copies of one example to and from the blocked layout, [blocks][pixels][16]."""
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from minidl_c.op cimport LANES, blocks_of, real
from minidl_c.runtime.gather cimport number

cdef extern from "minidl_c/simd/transpose.h" nogil:
    void transpose(Py_ssize_t rows, Py_ssize_t columns, const void *x, Py_ssize_t x_row, void *y, Py_ssize_t y_row)

cdef Py_ssize_t PIXELS = 32             # in one pass over the channels: their rows of a block stay in the first cache


cdef void pack_example(
    const number *x,                    # IN  (n, channels, pixels)
    int64_t example,                    # which example
    Py_ssize_t channels, Py_ssize_t pixels,
    real *y,                            # OUT [blocks][pixels][16]
    Py_ssize_t p0, Py_ssize_t p1,       # only these pixels
) noexcept nogil:
    cdef Py_ssize_t block, c, p, start = p0, n
    cdef const number *row
    cdef real *lane
    x += example * channels * pixels
    if pixels == 1:                     # the channels are then contiguous
        for c in range(channels if p1 > p0 else 0):
            y[c] = <real> x[c]
        return
    if number is float and real is float or number is double and real is double:
        for block in range(blocks_of(channels)):
            c = block * LANES
            transpose(min(channels - c, <Py_ssize_t> LANES), p1 - p0, x + c * pixels + p0, pixels, y + c * pixels + p0 * LANES, LANES)
    else:
        while start < p1:
            n = min(p1 - start, PIXELS)
            for c in range(channels):
                row, lane = x + c * pixels + start, y + (c // LANES * pixels + start) * LANES + c % LANES
                for p in range(n):
                    lane[p * LANES] = <real> row[p]
            start += n


cdef void unpack_example(
    const real *x,                      # IN  [blocks][pixels][16]
    Py_ssize_t channels, Py_ssize_t pixels,
    real *y,                            # OUT (channels, pixels)
) noexcept nogil:
    cdef Py_ssize_t block, c
    if pixels == 1:
        memcpy(y, x, channels * sizeof(real))
        return
    for block in range(blocks_of(channels)):
        c = block * LANES
        transpose(pixels, min(channels - c, <Py_ssize_t> LANES), x + c * pixels, LANES, y + c * pixels, pixels)


cdef void repack_example(
    const real *x,                      # IN  [blocks of x][x_pixels][16]
    Py_ssize_t x_pixels,
    real *y,                            # OUT [blocks of y][y_pixels][16], the same elements in the same order
    Py_ssize_t y_pixels,
    Py_ssize_t i0, Py_ssize_t i1,       # only these elements
) noexcept nogil:
    cdef Py_ssize_t i = i0, c, p, k, q, j, n, x_step = LANES if x_pixels > 1 else 1, y_step = LANES if y_pixels > 1 else 1
    cdef const real *source
    cdef real *target
    while i < i1:                       # to the end of a channel of x and y; if they have one pixel, of a block
        c, p, k, q = i // x_pixels, i % x_pixels, i // y_pixels, i % y_pixels
        source, target = x + (c // LANES * x_pixels + p) * LANES + c % LANES, y + (k // LANES * y_pixels + q) * LANES + k % LANES
        n = min(i1 - i, min(x_pixels - p if x_pixels > 1 else LANES - c % LANES, y_pixels - q if y_pixels > 1 else LANES - k % LANES))
        for j in range(n):
            target[j * y_step] = source[j * x_step]
        i += n


cdef void example_to_lane(
    const real *x,                      # IN  [blocks][pixels][16]
    Py_ssize_t channels, Py_ssize_t pixels,
    real *y,                            # OUT [channels][pixels][16], from the example's lane on
) noexcept nogil:
    cdef Py_ssize_t c, p
    for c in range(channels):
        for p in range(pixels):
            y[(c * pixels + p) * LANES] = x[(c // LANES * pixels + p) * LANES + c % LANES]


cdef void lane_to_example(
    const real *x,                      # IN  [channels][pixels][16], from the example's lane on
    Py_ssize_t channels, Py_ssize_t pixels,
    real *y,                            # OUT [blocks][pixels][16]
) noexcept nogil:
    cdef Py_ssize_t c, p
    for c in range(channels):
        for p in range(pixels):
            y[(c // LANES * pixels + p) * LANES + c % LANES] = x[(c * pixels + p) * LANES]
