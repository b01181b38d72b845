"""The sizes of a 2-D convolution, its taps inside the input and its register tiles.

Everything that needs Python objects or allocates memory is done here, once: the arithmetic in conv2d.pyx does neither.
"""
from libc.stdlib cimport free, malloc

from minidl_c.kernels.axes cimport describe_axis, find_runs
from minidl_c.kernels.correlate cimport direction
from minidl_c.kernels.windows import convolution
from minidl_c.op cimport LANES, SMALL_BATCH

cdef extern from "minidl_c/kernels/conv2d_tiles.h" nogil:
    void choose_tile(Py_ssize_t outputs, Py_ssize_t pixels, int *rows, int *columns)


cdef int find_direction(conv2d_dims *d, direction *a, bint back) except -1:
    """Finds the runs and the register tile for y, or with `back` for dx."""
    cdef Py_ssize_t C = d.C // d.groups, K = d.K // d.groups
    a.groups, a.taps_h, a.taps_w = d.groups, d.R, d.S
    a.channels, a.height, a.width = (K, d.OH, d.OW) if back else (C, d.H, d.W)
    a.outputs, a.out_height, a.out_width = (C, d.H, d.W) if back else (K, d.OH, d.OW)
    a.w_tap = C if back else d.K        # packed for dx, [k][r][s][c] of each group; as stored, (c, r, s, k of all groups)
    a.w_group = K * d.R * d.S * C if back else K
    if d.R == d.S == d.sh == d.sw == 1 and d.PH == d.H == d.OH and d.PW == d.W == d.OW:       # pixels are then one long row
        a.height, a.width, a.out_height, a.out_width = 1, d.H * d.W, 1, d.H * d.W
        find_runs(&a.rows, 1, 1, 1, 1, 0, 1, back)
        find_runs(&a.columns, 1, 1, 1, 1, 0, 1, back)
        a.columns.runs[0].n = a.columns.longest = a.width
    else:
        find_runs(&a.rows, a.out_height, a.height, d.R, d.sh, d.top, d.dh, back)
        find_runs(&a.columns, a.out_width, a.width, d.S, d.sw, d.left, d.dw, back)
    choose_tile(a.outputs, a.columns.longest, &a.tile[0], &a.tile[1])
    return 0


cdef int conv2d_init_dims(
    conv2d_dims *d,                     # OUT; zeros before
    object in_shape, object filters, object kernel_size, object stride, object padding, object dilation, object groups,
    object out_size,                    # (OH, OW), or None: as many as fit
) except -1:
    """Checks the arguments of a convolution and computes its sizes. Raises TypeError, ValueError as windows.convolution."""
    cdef Py_ssize_t c, r, s, n = 0
    (C, H, W), filters, groups, kernel, stride, padding, dilation, padded, window = convolution(
        in_shape, filters, kernel_size, stride, padding, dilation, groups)
    d.C, d.H, d.W, d.K, d.groups = C, H, W, filters, groups
    (d.R, d.S), (d.sh, d.sw), (d.dh, d.dw), (d.PH, d.PW) = kernel, stride, dilation, padded
    d.top, d.left = padding[0], padding[2]
    d.OH, d.OW = out_size or [(size - span) // step + 1 for size, span, step in zip(padded, window, stride)]
    find_direction(d, &d.forward, False)
    find_direction(d, &d.back, True)
    # with fewer channels than lanes, only a single example is faster that way
    d.small_batch = SMALL_BATCH if d.K // groups >= LANES and (d.C == 1 or d.C // groups >= LANES) else 1
    d.taps = <Py_ssize_t *> malloc(2 * (C // groups) * d.R * d.S * sizeof(Py_ssize_t))
    if d.taps == NULL:
        raise MemoryError()
    d.dw_taps = d.taps + <Py_ssize_t> (C // groups) * d.R * d.S
    d.dw_output = d.R * d.S * (d.C // d.groups) if out_size else 1     # a transposed convolution stores (K, R, S, C / groups)
    for c in range(d.C // d.groups):
        for r in range(d.R):
            for s in range(d.S):
                d.taps[n] = ((c * d.PH + r * d.dh) * d.PW + s * d.dw) * LANES
                d.dw_taps[n] = (r * d.S + s) * (d.C // d.groups) + c if out_size else n * d.K
                n += 1
    d.weights = d.K * n
    return 0


cdef tuple conv2d_axes(const conv2d_dims *d, bint back):
    """Returns the rows and the columns of y, or with `back` of dx, as describe_axis does: for the export to C."""
    cdef Py_ssize_t h = d.H if back else d.OH, w = d.W if back else d.OW
    return (describe_axis(h, d.OH if back else d.H, d.R, d.sh, d.top, d.dh, back),
            describe_axis(w, d.OW if back else d.W, d.S, d.sw, d.left, d.dw, back))


cdef void conv2d_free_dims(conv2d_dims *d) noexcept:
    """Frees the memory that conv2d_init_dims allocated."""
    free(d.forward.rows.runs)
    free(d.forward.columns.runs)
    free(d.back.rows.runs)
    free(d.back.columns.runs)
    free(d.taps)
