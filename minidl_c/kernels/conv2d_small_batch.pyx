"""The weight gradient of a convolution for a small batch: example by example, with output channels in the lanes.

A tile of one example would waste 15 of its 16 lanes. Here the example is copied out of the tile. Every gradient is the same chain
of multiply-adds as in conv2d.pyx, so the bits are the same; the other lanes hold other channels instead of other examples.
"""
from libc.string cimport memset

from minidl_c.kernels.conv2d_dims cimport conv2d_dims
from minidl_c.op cimport LANES, real

cdef extern from "minidl_c/kernels/conv2d_small_batch.h" nogil:
    ctypedef struct gradient_walk:
        Py_ssize_t rows, columns, x_row, x_column, dy_channel
        const Py_ssize_t *taps
        const Py_ssize_t *dw_taps
        Py_ssize_t dw_output
    ctypedef struct dense_examples:
        Py_ssize_t examples, x_example, dy_example, dy_pixel
    void weight_gradient_small_batch(Py_ssize_t outputs, Py_ssize_t n_taps, const gradient_walk *k, const dense_examples *e,
                                     const void *x, const void *dy, void *dw)
    void sum_pixels_small_batch(Py_ssize_t outputs, Py_ssize_t pixels, const dense_examples *e, const void *dy, void *db)


cdef inline Py_ssize_t pixel_stride(const conv2d_dims *d) noexcept nogil:
    """Returns the stride between pixels of a dy whose channels are contiguous: whole vectors."""
    return (d.K + LANES - 1) // LANES * LANES


cdef Py_ssize_t small_batch_scratch(const conv2d_dims *d) noexcept nogil:
    """Returns the elements of scratch for a small batch; the last vectors may reach beyond the last pixel."""
    return d.small_batch * (d.C * d.PH * d.PW + d.OH * d.OW * pixel_stride(d)) + 2 * LANES


cdef void conv2d_backward_w_small_batch(
    const conv2d_dims *d,
    const real *dy,                     # IN  [K][OH][OW][16]
    const real *x,                      # IN  [C][H][W][16]
    real *dw,                           # ADD the weights as they are stored
    real *db,                           # ADD [K], or NULL
    Py_ssize_t k0, Py_ssize_t k1,       # only these output channels
    Py_ssize_t examples, real *scratch,
) noexcept nogil:
    cdef Py_ssize_t C = d.C // d.groups, K = d.K // d.groups, n_taps = C * d.R * d.S, P = d.OH * d.OW, stride = pixel_stride(d)
    cdef Py_ssize_t X = d.C * d.PH * d.PW, i, k, g, k_end
    cdef real *transposed = scratch + examples * X          # [examples][P][stride]: contiguous channels
    cdef gradient_walk walk
    cdef dense_examples e
    walk.rows, walk.columns, walk.x_row, walk.x_column = d.OH, d.OW, d.sh * d.PW, d.sw
    walk.dy_channel, walk.taps, walk.dw_taps, walk.dw_output = 1, d.taps, d.dw_taps, d.dw_output
    e.examples, e.x_example, e.dy_example, e.dy_pixel = examples, X, P * stride, stride
    for i in range(examples):
        copy_example(d, dy + i, x + i, scratch + i * X, transposed + i * P * stride, k0, k1)
    for g in range(k0 // K, (k1 + K - 1) // K):
        k, k_end = max(k0, g * K), min(k1, (g + 1) * K)
        weight_gradient_small_batch(k_end - k, n_taps, &walk, &e, scratch + g * C * d.PH * d.PW, transposed + k,
                                    dw + k * d.dw_output)
    if db != NULL:
        sum_pixels_small_batch(k1 - k0, P, &e, transposed + k0, db + k0)


cdef void copy_example(
    const conv2d_dims *d,
    const real *dy,                     # IN  [K][OH][OW][16], from the example's lane on
    const real *x,                      # IN  [C][H][W][16], from the example's lane on
    real *padded,                       # OUT [C][PH][PW]
    real *transposed,                   # OUT [OH][OW][pixel_stride]
    Py_ssize_t k0, Py_ssize_t k1,       # only these output channels
) noexcept nogil:
    cdef Py_ssize_t P = d.OH * d.OW, stride = pixel_stride(d), c, h, w, k, q
    memset(padded, 0, d.C * d.PH * d.PW * sizeof(real))
    for c in range(d.C):
        for h in range(d.H):
            for w in range(d.W):
                padded[(c * d.PH + h + d.top) * d.PW + d.left + w] = x[((c * d.H + h) * d.W + w) * LANES]
    for k in range(k0, k1):
        for q in range(P):
            transposed[q * stride + k] = dy[(k * P + q) * LANES]
