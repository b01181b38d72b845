"""What a run of slots leaves of an op's rows. See reduction_tree.pyx."""
from minidl_c.op cimport batch_view, op, split_range
from minidl_c.runtime.lane_sums cimport has_sums
from minidl_c.runtime.run_state cimport BACKWARD, FORWARD, ITEMS_AT_ONCE, RANGES, instr, run_state

cdef inline void item_range(const op *o, Py_ssize_t item, Py_ssize_t *a, Py_ssize_t *b) noexcept nogil:
    """The rows of an op that an item of REDUCE does: whole register tiles of a dense layer, but for the last."""
    split_range((o.reduce.n_items + ITEMS_AT_ONCE - 1) // ITEMS_AT_ONCE, item, RANGES, a, b)
    a[0], b[0] = a[0] * ITEMS_AT_ONCE, min(b[0] * ITEMS_AT_ONCE, o.reduce.n_items)


cdef inline bint has_reduction(const op *o, const instr *c) noexcept nogil:
    """Whether a call leaves something of its rows."""
    return (c.kind == BACKWARD or c.kind == FORWARD) and o.reduce.n_items > 0 and not o.plan.frozen and (
        c.kind == BACKWARD or o.reduce.forward != NULL)


cdef inline Py_ssize_t item_bytes(const run_state *run, const op *o, const instr *c) noexcept nogil:
    """How many bytes a row of an op leaves of a node."""
    if o.reduce.partial != NULL and c.kind == FORWARD:
        return o.reduce.partial_bytes
    return (o.reduce.n_sums if has_sums(o, c.kind) else o.n_param) // o.reduce.n_items * run.program.real_bytes


cdef void fill_batch_view(const run_state *run, const instr *c, Py_ssize_t s0, Py_ssize_t s1, batch_view *w, Py_ssize_t *starts) noexcept nogil
cdef void emit_partial(const run_state *run, const instr *c, Py_ssize_t s0, Py_ssize_t s1, char *out, Py_ssize_t a, Py_ssize_t b) noexcept nogil
cdef void combine_nodes(const run_state *run, const instr *c, const char *nodes, Py_ssize_t stride, const Py_ssize_t *first, Py_ssize_t n,
                     char *out, Py_ssize_t a, Py_ssize_t b) noexcept nogil
