"""Inference in the blocked layout, one example at a time: a value of (c, h, w) is [blocks][h][w][16], with 16 channels in the lanes.

A tile of few examples leaves most of its lanes empty, and every op moves them. Here the lanes are full if the channels are many.
Each number is computed by the same chain of roundings as in a tile, so it has the same bits. The lanes after the last channel hold
anything: no function reads them.

An op without a form for this layout (a kernel of a user, say) gets a tile with one example, to which its inputs are copied; the
result is copied back.
"""
from libc.stdint cimport int64_t, uint8_t

from minidl_c.op cimport LANES, blocks_of, op, real, split_range, tile
from minidl_c.runtime.blocked_form cimport is_converted
from minidl_c.runtime.gather cimport number
from minidl_c.runtime.layout cimport copy_of, nth_copy, value
from minidl_c.runtime.run_state cimport FLOAT32, GATHER_X, SCATTER_Y, UINT8, instr, op_of, run_state


# ---- copies of one example

cdef void pack_example(
    const number *x,                    # IN  (channels, pixels)
    Py_ssize_t channels, Py_ssize_t pixels,
    real *y,                            # OUT [blocks][pixels][16]
    Py_ssize_t p0, Py_ssize_t p1,       # only these pixels
) noexcept nogil:
    cdef Py_ssize_t c, p
    cdef real *row
    for c in range(channels):
        row = y + c // LANES * pixels * LANES + c % LANES
        for p in range(p0, p1):
            row[p * LANES] = <real> x[c * pixels + p]


cdef void unpack_example(
    const real *x,                      # IN  [blocks][pixels][16]
    Py_ssize_t channels, Py_ssize_t pixels,
    real *y,                            # OUT (channels, pixels)
) noexcept nogil:
    cdef Py_ssize_t c, p
    cdef const real *row
    for c in range(channels):
        row = x + c // LANES * pixels * LANES + c % LANES
        for p in range(pixels):
            y[c * pixels + p] = row[p * LANES]


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


cdef void example_to_tile(
    const real *x,                      # IN  [blocks][pixels][16]
    Py_ssize_t channels, Py_ssize_t pixels,
    real *y,                            # OUT [channels][pixels][16]: the example in lane 0, zeros in the others
) noexcept nogil:
    cdef Py_ssize_t c, p, lane
    for c in range(channels):
        for p in range(pixels):
            y[0] = x[(c // LANES * pixels + p) * LANES + c % LANES]
            for lane in range(1, LANES):
                y[lane] = 0
            y += LANES


cdef void tile_to_example(
    const real *x,                      # IN  [channels][pixels][16]: the example in lane 0
    Py_ssize_t channels, Py_ssize_t pixels,
    real *y,                            # OUT [blocks][pixels][16]
) noexcept nogil:
    cdef Py_ssize_t c, p
    for c in range(channels):
        for p in range(pixels):
            y[(c // LANES * pixels + p) * LANES + c % LANES] = x[(c * pixels + p) * LANES]


# ---- the input and the output

cdef void gather_example(const run_state *run, int64_t row, void *out, Py_ssize_t p0, Py_ssize_t p1) noexcept nogil:
    """Packs pixels p0..p1 of a row of x."""
    cdef const value *v = &run.program.values[0]
    cdef Py_ssize_t pixels = v.size // v.channels
    if run.batch.x_kind == UINT8:
        if run.program.real_bytes == 4:
            pack_example(<const uint8_t *> run.batch.x + row * v.size, v.channels, pixels, <float *> out, p0, p1)
        else:
            pack_example(<const uint8_t *> run.batch.x + row * v.size, v.channels, pixels, <double *> out, p0, p1)
    elif run.batch.x_kind == FLOAT32:
        if run.program.real_bytes == 4:
            pack_example(<const float *> run.batch.x + row * v.size, v.channels, pixels, <float *> out, p0, p1)
        else:
            pack_example(<const float *> run.batch.x + row * v.size, v.channels, pixels, <double *> out, p0, p1)
    else:
        if run.program.real_bytes == 4:
            pack_example(<const double *> run.batch.x + row * v.size, v.channels, pixels, <float *> out, p0, p1)
        else:
            pack_example(<const double *> run.batch.x + row * v.size, v.channels, pixels, <double *> out, p0, p1)


cdef void scatter_example(const run_state *run, const void *x, Py_ssize_t position) noexcept nogil:
    """Unpacks the scores into a row of y."""
    cdef const value *v = &run.program.values[run.program.n_ops]
    cdef Py_ssize_t pixels = v.size // v.channels
    if run.program.real_bytes == 4:
        unpack_example(<const float *> x, v.channels, pixels, <float *> run.batch.y + position * v.size)
    else:
        unpack_example(<const double *> x, v.channels, pixels, <double *> run.batch.y + position * v.size)


# ---- ops

cdef void run_on_tile(const run_state *run, const op *o, tile *v) noexcept nogil:
    """Runs an op that has no form for this layout."""
    cdef const value *x = &run.program.values[o.plan.input]
    cdef const value *skip = &run.program.values[max(o.branch.skip, 0)]
    cdef char *x_tile = <char *> v.scratch
    cdef char *skip_tile = x_tile + x.size * LANES * o.real_bytes
    cdef char *y_tile = skip_tile + (skip.size * LANES * o.real_bytes if o.branch.skip >= 0 else 0)
    cdef void *y = v.y
    if o.real_bytes == 4:
        example_to_tile(<const float *> v.x, x.channels, x.size // x.channels, <float *> x_tile)
        if o.branch.skip >= 0:
            example_to_tile(<const float *> v.skip, skip.channels, skip.size // skip.channels, <float *> skip_tile)
    else:
        example_to_tile(<const double *> v.x, x.channels, x.size // x.channels, <double *> x_tile)
        if o.branch.skip >= 0:
            example_to_tile(<const double *> v.skip, skip.channels, skip.size // skip.channels, <double *> skip_tile)
    v.x, v.y, v.scratch = x_tile, y_tile, y_tile + o.out_size * LANES * o.real_bytes
    v.skip = skip_tile if o.branch.skip >= 0 else NULL
    o.forward_tile(o, v)
    if o.real_bytes == 4:
        tile_to_example(<const float *> y_tile, o.out_channels, o.out_size // o.out_channels, <float *> y)
    else:
        tile_to_example(<const double *> y_tile, o.out_channels, o.out_size // o.out_channels, <double *> y)


cdef void run_elements(const op *o, const tile *v, Py_ssize_t pixels) noexcept nogil:
    """Runs an element-wise op on its part of y: the same pixels of some blocks."""
    cdef Py_ssize_t block
    if v.pixel0 == 0 and v.pixel1 == pixels:
        o.blocked.elements(o, v, v.block0 * pixels, v.block1 * pixels)
        return
    for block in range(v.block0, v.block1):
        o.blocked.elements(o, v, block * pixels + v.pixel0, block * pixels + v.pixel1)


cdef void run_op(const run_state *run, const op *o, Py_ssize_t t, int thread, Py_ssize_t part, Py_ssize_t parts,
                 bint by_rows) noexcept nogil:
    """Runs one op on a part of one example: some rows of pixels, or some blocks of channels."""
    cdef Py_ssize_t pixels = o.out_size // o.out_channels, width = pixels // o.out_rows
    cdef Py_ssize_t element = LANES * pixels, position = run.local.first_tile + t
    cdef tile v
    v.labels = NULL
    v.targets = v.weights = v.losses = v.dy = v.dskip = v.dx = v.sums = NULL
    v.x = copy_of(&run.memory.data[o.plan.input], t, thread)
    v.y = copy_of(&run.memory.data[o.plan.output], t, thread)
    v.skip = copy_of(&run.memory.data[o.branch.skip], t, thread) if o.branch.skip >= 0 else NULL
    v.saved = copy_of(&run.memory.saved[o - run.program.ops], t, thread) if is_converted(o) and o.memory.saved else NULL
    v.scratch = nth_copy(&run.memory.scratch, thread)
    v.param = run.train.param + o.plan.param * run.program.real_bytes
    v.packed = run.memory.packed[o - run.program.ops].base
    v.example_ids, v.index, v.examples = run.batch.example_ids + position, position, 1
    v.part, v.parts, v.sum_stride, v.training = 0, 1, 1, 0
    v.seed, v.step = run.train.seed, run.train.first_step
    v.block0, v.block1, v.pixel0, v.pixel1 = 0, blocks_of(o.out_channels), 0, pixels
    if by_rows:
        split_range(o.out_rows, part, parts, &v.pixel0, &v.pixel1)
        v.pixel0, v.pixel1 = v.pixel0 * width, v.pixel1 * width
    else:
        split_range(v.block1, part, parts, &v.block0, &v.block1)
    if o.blocked.elements != NULL:
        run_elements(o, &v, pixels)
    elif o.blocked.forward != NULL:
        o.blocked.forward(o, &v)
    elif is_converted(o):
        run_on_tile(run, o, &v)
    elif o.real_bytes == 4:
        repack_example(<const float *> v.x, o.in_size // o.in_channels, <float *> v.y, pixels,
                       v.block0 * element, min(v.block1 * element, o.out_size))
    else:
        repack_example(<const double *> v.x, o.in_size // o.in_channels, <double *> v.y, pixels,
                       v.block0 * element, min(v.block1 * element, o.out_size))


cdef void run_blocked(const run_state *run, const instr *i, Py_ssize_t t, int thread, Py_ssize_t part, Py_ssize_t parts,
                      bint by_rows) noexcept nogil:
    """Runs one instruction on part `part` of example t."""
    cdef Py_ssize_t p0 = 0, p1 = 0, position = run.local.first_tile + t
    if i.kind == GATHER_X:
        split_range(run.program.values[0].size // run.program.values[0].channels, part, parts, &p0, &p1)
        gather_example(run, run.batch.rows[position], copy_of(&run.memory.data[0], t, thread), p0, p1)
    elif i.kind == SCATTER_Y:
        scatter_example(run, copy_of(&run.memory.data[i.op], t, thread), position)
    else:
        run_op(run, op_of(run, i), t, thread, part, parts, by_rows)
