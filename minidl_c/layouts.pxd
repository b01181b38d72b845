"""What a kernel needs to be written once for both layouts: see "Groups" and "Element-wise ops" in docs/reference/kernels.md."""
from libc.string cimport memcpy

from minidl_c.op cimport LANES, elements_function, op, real, split_range, tile, typed_tile


cdef enum:
    SPLITS_CHANNELS = 2                 # of op.splits: a part of a tile is group0 to group1, or as many elements. An op that reads no other
                                        # channel may then follow without a barrier, if all parts are equal


cdef inline Py_ssize_t first_channel(const typed_tile *t, Py_ssize_t group) noexcept nogil:
    """The first channel of a group: of a channel in a tile, of 16 channels in the blocked layout."""
    return group * LANES if t.blocked else group


cdef inline Py_ssize_t live_lanes(const typed_tile *t, Py_ssize_t channels, Py_ssize_t group) noexcept nogil:
    """The number of a group's channels, one in each lane; 0: all lanes are of one channel."""
    return min(<Py_ssize_t> LANES, channels - group * LANES) if t.blocked else 0


cdef inline void store_sums(const typed_tile *t, Py_ssize_t k, Py_ssize_t channels, Py_ssize_t group, const real *row) noexcept nogil:
    """Writes a group's row of sums: sum k of each channel, of [sums][channels][16] in a tile, of [sums][channels] in the blocked layout."""
    cdef Py_ssize_t live = live_lanes(t, channels, group), lane
    cdef Py_ssize_t at = k * channels + group * LANES if t.blocked else (k * channels + group) * LANES
    cdef real *sums = <real *> t.sums
    if not t.blocked:
        memcpy(sums + at, row, LANES * sizeof(real))
    for lane in range(live):
        sums[at + lane] = row[lane]


cdef inline void fill_row(const typed_tile *t, const double *values, Py_ssize_t channels, Py_ssize_t group, real *row) noexcept nogil:
    """Sets a row to the values of a group's channels, which its lanes are of; after the last channel, to that of the last."""
    cdef Py_ssize_t lane
    cdef real one = <real> values[min(first_channel(t, group), channels - 1)]
    for lane in range(LANES):
        row[lane] = <real> values[min(group * LANES + lane, channels - 1)] if t.blocked else one


cdef inline void forward_rows(const op *o, const tile *t) noexcept nogil:
    """The forward_tile of an element-wise op: this part of its rows."""
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size, t.part, t.parts, &i0, &i1)
    o.blocked.elements(o, t, i0, i1)


cdef inline void backward_rows(const op *o, const tile *t) noexcept nogil:
    """The backward_tile of an element-wise op."""
    cdef Py_ssize_t i0 = 0, i1 = 0
    split_range(o.in_size if t.dx != NULL else 0, t.part, t.parts, &i0, &i1)
    o.blocked.backward_elements(o, t, i0, i1)


cdef inline void set_elementwise(op *o, elements_function forward, elements_function backward) noexcept:
    """Sets the functions of an element-wise op, for both layouts; NULL: none."""
    o.splits = SPLITS_CHANNELS
    if forward != NULL:
        o.forward_tile, o.blocked.elements = forward_rows, forward
    if backward != NULL:
        o.backward_tile, o.blocked.backward_elements = backward_rows, backward
