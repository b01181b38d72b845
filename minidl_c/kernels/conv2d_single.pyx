"""The weight gradient of a convolution for a few examples, one by one, with output channels in the lanes.

A tile with one example would compute fifteen that are not there. So its numbers are taken out of the tile, and every
gradient is the same chain of multiply-adds as in conv2d.pyx, beside other channels instead of other examples: the same bits.
"""
from libc.string cimport memset

from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport LANES, real

cdef extern from "minidl_c/kernels/conv2d_single.h" nogil:
    ctypedef struct gradient_walk:
        Py_ssize_t rows, columns, x_row, x_column, dy_channel, dw_channel
    ctypedef struct few_examples:
        Py_ssize_t examples, x_example, dy_example, dy_pixel
    void weight_gradient_single(Py_ssize_t outputs, Py_ssize_t n_taps, const gradient_walk *k, const few_examples *few,
                                const void *x, const Py_ssize_t *taps, const void *dy, void *dw)
    void sum_pixels_single(Py_ssize_t outputs, Py_ssize_t pixels, const few_examples *few, const void *dy, void *db)


cdef inline Py_ssize_t dy_row(const conv2d_dims *d) noexcept nogil:
    """Numbers from pixel to pixel of a gradient with its channels side by side: whole vectors."""
    return (d.K + LANES - 1) // LANES * LANES


cdef Py_ssize_t single_scratch(const conv2d_dims *d) noexcept nogil:
    """How many numbers of scratch a convolution of single examples needs; the last vectors may reach beyond their row."""
    return d.few * (d.C * d.PH * d.PW + d.OH * d.OW * dy_row(d)) + 2 * LANES


cdef void conv2d_backward_w_single(
    const conv2d_dims *d,
    const real *dy,                     # IN  [K][OH][OW][16]
    const real *x,                      # IN  [C][H][W][16]
    real *dw,                           # ADD [K][C / groups][R][S]
    real *db,                           # ADD [K], or NULL
    Py_ssize_t k0, Py_ssize_t k1,       # only these output channels
    Py_ssize_t examples, real *scratch,
) noexcept nogil:
    cdef Py_ssize_t C = d.C // d.groups, K = d.K // d.groups, n_taps = C * d.R * d.S, P = d.OH * d.OW, row = dy_row(d)
    cdef Py_ssize_t X = d.C * d.PH * d.PW, e, k, g, k_end
    cdef real *turned = scratch + examples * X              # [examples][P][row]: channels side by side
    cdef gradient_walk walk
    cdef few_examples few
    walk.rows, walk.columns, walk.x_row, walk.x_column = d.OH, d.OW, d.sh * d.PW, d.sw
    walk.dy_channel, walk.dw_channel = 1, n_taps
    few.examples, few.x_example, few.dy_example, few.dy_pixel = examples, X, P * row, row
    for e in range(examples):
        take_example(d, dy + e, x + e, scratch + e * X, turned + e * P * row, k0, k1)
    for g in range(k0 // K, (k1 + K - 1) // K):
        k, k_end = max(k0, g * K), min(k1, (g + 1) * K)
        weight_gradient_single(k_end - k, n_taps, &walk, &few, scratch + g * C * d.PH * d.PW, d.taps, turned + k,
                               dw + k * n_taps)
    if db == NULL:
        return
    sum_pixels_single(k1 - k0, P, &few, turned + k0, db + k0)


cdef void take_example(
    const conv2d_dims *d,
    const real *dy,                     # IN  [K][OH][OW][16], from its lane on
    const real *x,                      # IN  [C][H][W][16], from its lane on
    real *padded,                       # OUT [C][PH][PW]
    real *turned,                       # OUT [OH][OW][dy_row]
    Py_ssize_t k0, Py_ssize_t k1,       # only these output channels
) noexcept nogil:
    cdef Py_ssize_t P = d.OH * d.OW, row = dy_row(d), c, h, w, k, q
    memset(padded, 0, d.C * d.PH * d.PW * sizeof(real))
    for c in range(d.C):
        for h in range(d.H):
            for w in range(d.W):
                padded[(c * d.PH + h + d.top) * d.PW + d.left + w] = x[((c * d.H + h) * d.W + w) * LANES]
    for k in range(k0, k1):
        for q in range(P):
            turned[q * row + k] = dy[(k * P + q) * LANES]
