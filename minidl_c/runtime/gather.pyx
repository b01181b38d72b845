"""Gathers the rows of a batch into tiles: out of (n, size) arrays come [size][16] rows of examples, and back.

Shuffling, conversion to the plan's dtype and the move into lanes happen in one pass, so no shuffled copy of the data ever exists.
The blocked layout has the same copies for one example: see blocked_copies.pyx.
"""
from libc.stdint cimport int64_t, uint8_t

from minidl_c.array_args cimport check_arrays
from minidl_c.op cimport LANES, real

cdef extern from "minidl_c/runtime/gather_tiles.h" nogil:
    void fetch_rows(const char *x, Py_ssize_t item_bytes, const int64_t *rows, Py_ssize_t examples)
    void transpose_bytes_f32(const uint8_t **rows, float *tile)
    void transpose_bytes_f64(const uint8_t **rows, double *tile)


cdef void pack_tile(
    const number *x,                    # IN  (n, size)
    Py_ssize_t size,
    const int64_t *rows,                # IN  [examples] which rows of x
    Py_ssize_t examples,
    real *tile,                         # OUT [size][16]; lanes without an example are zero
    Py_ssize_t i0, Py_ssize_t i1,       # only elements i0 to i1 of each example
) noexcept nogil:
    cdef Py_ssize_t start = i0, end, i, lane
    cdef const number *row
    cdef const uint8_t *bytes[16]
    fetch_rows(<const char *> x, size * sizeof(number), rows, examples)
    if number is uint8_t:
        while examples == LANES and start + 16 <= i1:
            for lane in range(LANES):
                bytes[lane] = x + rows[lane] * size + start
            if real is float:
                transpose_bytes_f32(bytes, tile + start * LANES)
            else:
                transpose_bytes_f64(bytes, tile + start * LANES)
            start += 16
    while start < i1:
        end = min(start + 32, i1)       # 32 elements at a time: their rows of the tile stay in L1
        for lane in range(examples):
            row = x + rows[lane] * size
            for i in range(start, end):
                tile[i * LANES + lane] = <real> row[i]
        for lane in range(examples, LANES):
            for i in range(start, end):
                tile[i * LANES + lane] = 0
        start = end


cdef void pack_labels(
    const label *labels,                # IN  (n, size)
    Py_ssize_t size,
    const int64_t *rows,                # IN  [examples] which rows of labels
    Py_ssize_t examples,
    int64_t *tile,                      # OUT [size][16]; lanes without an example are zero
) noexcept nogil:
    cdef Py_ssize_t start, i, lane
    cdef const label *row
    for start in range(0, size, 32):    # 32 at a time, as in pack_tile
        for lane in range(examples):
            row = labels + rows[lane] * size
            for i in range(start, min(start + 32, size)):
                tile[i * LANES + lane] = row[i]
        for lane in range(examples, LANES):
            for i in range(start, min(start + 32, size)):
                tile[i * LANES + lane] = 0


cdef void unpack_tile(
    const real *tile,                   # IN  [size][16]
    Py_ssize_t size, Py_ssize_t examples,
    real *y,                            # OUT (examples, size)
) noexcept nogil:
    cdef Py_ssize_t i, lane
    for lane in range(examples):
        for i in range(size):
            y[lane * size + i] = tile[i * LANES + lane]


def pack_tiles(
    const number[:, ::1] x not None,    # IN  (n, size)
    const int64_t[::1] rows not None,   # IN  (m,)
    real[:, :, ::1] tiles not None,     # OUT (ceil(m / 16), size, 16)
):
    """Packs row rows[k] of x into lane k % 16 of tile k // 16; lanes without a row become zero.

    Raises ValueError for a wrong shape of `tiles`, or an index of a row outside x.
    """
    cdef Py_ssize_t m = rows.shape[0], k, t
    check_arrays({"x": x, "rows": rows}, {"tiles": tiles})
    if tiles.shape[0] != (m + LANES - 1) // LANES or tiles.shape[1] != x.shape[1] or tiles.shape[2] != LANES:
        raise ValueError(f"tiles: expected shape {((m + LANES - 1) // LANES, x.shape[1], LANES)}, "
                         f"got {(tiles.shape[0], tiles.shape[1], tiles.shape[2])}")
    for k in range(m):
        if rows[k] < 0 or rows[k] >= x.shape[0]:
            raise ValueError(f"rows: expected numbers from 0 to {x.shape[0] - 1}, got {rows[k]} at position {k}")
    for t in range(tiles.shape[0]):
        if x.shape[1]:
            pack_tile(&x[0, 0], x.shape[1], &rows[t * LANES], min(m - t * LANES, <Py_ssize_t> LANES),
                      &tiles[t, 0, 0], 0, x.shape[1])


def unpack_tiles(
    const real[:, :, ::1] tiles not None,      # IN  (ceil(m / 16), size, 16)
    real[:, ::1] y not None,                   # OUT (m, size)
):
    """Unpacks lane k % 16 of tile k // 16 into row k of y. Raises ValueError for a wrong shape of `tiles`."""
    cdef Py_ssize_t m = y.shape[0], t
    check_arrays({"tiles": tiles}, {"y": y})
    if tiles.shape[0] != (m + LANES - 1) // LANES or tiles.shape[1] != y.shape[1] or tiles.shape[2] != LANES:
        raise ValueError(f"tiles: expected shape {((m + LANES - 1) // LANES, y.shape[1], LANES)}, "
                         f"got {(tiles.shape[0], tiles.shape[1], tiles.shape[2])}")
    for t in range(tiles.shape[0]):
        if y.shape[1]:
            unpack_tile(&tiles[t, 0, 0], y.shape[1], min(m - t * LANES, <Py_ssize_t> LANES), &y[t * LANES, 0])
