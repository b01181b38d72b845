"""What a run of slots leaves of an op's rows. See reduction_tree.pyx."""
from minidl_c.op cimport op, share, whole
from minidl_c.runtime.lane_sums cimport sums_up
from minidl_c.runtime.run_state cimport BACKWARD, FORWARD, RANGES, ROWS_AT_ONCE, call, job

cdef inline void range_of(const op *o, Py_ssize_t item, Py_ssize_t *a, Py_ssize_t *b) noexcept nogil:
    """The rows of an op that an item of ROWS does: whole register tiles of a dense layer, but for the last."""
    share((o.rows + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE, item, RANGES, a, b)
    a[0], b[0] = a[0] * ROWS_AT_ONCE, min(b[0] * ROWS_AT_ONCE, o.rows)


cdef inline bint has_rows(const op *o, const call *c) noexcept nogil:
    """Whether a call leaves something of its rows."""
    return (c.kind == BACKWARD or c.kind == FORWARD) and o.rows > 0 and not o.frozen and (
        c.kind == BACKWARD or o.forward_rows != NULL)


cdef inline Py_ssize_t row_bytes(const job *j, const op *o, const call *c) noexcept nogil:
    """How many bytes a row of an op leaves of a node."""
    if o.slot_rows != NULL and c.kind == FORWARD:
        return o.summary
    return (o.n_lane if sums_up(o, c.kind) else o.n_param) // o.rows * j.real_bytes


cdef void fill_whole(const job *j, const call *c, Py_ssize_t s0, Py_ssize_t s1, whole *w, Py_ssize_t *starts) noexcept nogil
cdef void leave(const job *j, const call *c, Py_ssize_t s0, Py_ssize_t s1, char *out, Py_ssize_t a, Py_ssize_t b) noexcept nogil
cdef void join_nodes(const job *j, const call *c, const char *nodes, Py_ssize_t stride, const Py_ssize_t *first, Py_ssize_t n,
                     char *out, Py_ssize_t a, Py_ssize_t b) noexcept nogil
