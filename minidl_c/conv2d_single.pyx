"""The weight gradient of a convolution for a few examples, one by one, with output channels in the lanes.

A tile with one example would compute fifteen that are not there. So its numbers are taken out of the tile, and every
gradient is the same chain of multiply-adds as in conv2d.pyx, beside other channels instead of other examples: the same bits.
"""
from libc.string cimport memset

from minidl_c.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport LANES, real

cdef extern from "conv2d_single.h" nogil:
    ctypedef struct gradient_walk:
        Py_ssize_t rows, columns, x_row, x_column, dy_channel, dw_channel
    void weight_gradient_single_f32(Py_ssize_t, Py_ssize_t, const gradient_walk *, const float *, const Py_ssize_t *,
                                    const float *, Py_ssize_t, float *, int)
    void weight_gradient_single_f64(Py_ssize_t, Py_ssize_t, const gradient_walk *, const double *, const Py_ssize_t *,
                                    const double *, Py_ssize_t, double *, int)
    void sum_pixels_single_f32(Py_ssize_t, Py_ssize_t, const float *, Py_ssize_t, float *, int)
    void sum_pixels_single_f64(Py_ssize_t, Py_ssize_t, const double *, Py_ssize_t, double *, int)


cdef inline Py_ssize_t dy_row(const conv2d_dims *d) noexcept nogil:
    """Numbers from pixel to pixel of a gradient with its channels side by side: whole vectors."""
    return (d.K + LANES - 1) // LANES * LANES


cdef Py_ssize_t single_scratch(const conv2d_dims *d) noexcept nogil:
    """How many numbers of scratch a convolution of single examples needs; the last vectors may reach beyond their row."""
    return max(d.C * d.PH * d.PW, d.K * d.OH * d.OW) + d.OH * d.OW * dy_row(d) + 2 * LANES


cdef void conv2d_backward_w_single(
    const conv2d_dims *d,
    const real *dy,                     # IN  [K][OH][OW][16]
    const real *x,                      # IN  [C][H][W][16]
    real *dw,                           # ADD [K][C / groups][R][S][16], only this lane
    real *db,                           # ADD [K][16], only this lane; or NULL
    Py_ssize_t k0, Py_ssize_t k1,       # only these output channels
    real *scratch, int lane,
) noexcept nogil:
    cdef Py_ssize_t C = d.C // d.groups, K = d.K // d.groups, n_taps = C * d.R * d.S, P = d.OH * d.OW, row = dy_row(d)
    cdef Py_ssize_t c, h, w, k, q, g, k_end
    cdef real *padded = scratch
    cdef real *turned = scratch + d.C * d.PH * d.PW         # [P][row]: channels side by side
    cdef gradient_walk walk
    walk.rows, walk.columns, walk.x_row, walk.x_column = d.OH, d.OW, d.sh * d.PW, d.sw
    walk.dy_channel, walk.dw_channel = 1, n_taps * LANES
    memset(padded, 0, d.C * d.PH * d.PW * sizeof(real))
    for c in range(d.C):
        for h in range(d.H):
            for w in range(d.W):
                padded[(c * d.PH + h + d.top) * d.PW + d.left + w] = x[((c * d.H + h) * d.W + w) * LANES + lane]
    for k in range(k0, k1):
        for q in range(P):
            turned[q * row + k] = dy[(k * P + q) * LANES + lane]
    for g in range(k0 // K, (k1 + K - 1) // K):
        k, k_end = max(k0, g * K), min(k1, (g + 1) * K)
        if real is float:
            weight_gradient_single_f32(k_end - k, n_taps, &walk, padded + g * C * d.PH * d.PW, d.taps, turned + k, row,
                                       dw + k * walk.dw_channel, lane)
        else:
            weight_gradient_single_f64(k_end - k, n_taps, &walk, padded + g * C * d.PH * d.PW, d.taps, turned + k, row,
                                       dw + k * walk.dw_channel, lane)
    if db == NULL:
        return
    if real is float:
        sum_pixels_single_f32(k1 - k0, P, turned + k0, row, db + k0 * LANES, lane)
    else:
        sum_pixels_single_f64(k1 - k0, P, turned + k0, row, db + k0 * LANES, lane)
