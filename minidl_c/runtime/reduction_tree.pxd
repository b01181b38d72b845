"""The nodes of a batch's reduction tree. See reduction_tree.pyx."""
from minidl_c.op cimport batch_view, op, split_range
from minidl_c.runtime.lane_sums cimport has_sums
from minidl_c.runtime.memory_map cimport ITEM_BLOCK
from minidl_c.runtime.run_state cimport BACKWARD, FORWARD, instr, op_of, run_state

cdef inline void items_of_task(const op *o, Py_ssize_t task, Py_ssize_t tasks, Py_ssize_t *i0, Py_ssize_t *i1) noexcept nogil:
    """Sets i0..i1 to an op's reduction items in one of some REDUCE tasks: whole register tiles of a dense layer, except the last."""
    cdef Py_ssize_t block = o.reduce.item_block if o.reduce.item_block else ITEM_BLOCK
    split_range((o.reduce.n_items + block - 1) // block, task, tasks, i0, i1)
    i0[0], i1[0] = i0[0] * block, min(i1[0] * block, o.reduce.n_items)


cdef inline bint has_reduction(const run_state *run, const instr *i) noexcept nogil:
    """Whether a reduction follows an instruction when all tiles are done."""
    cdef const op *o = op_of(run, i)
    return (i.kind == BACKWARD or i.kind == FORWARD) and o.reduce.n_items > 0 and not o.plan.frozen and (
        i.kind == BACKWARD or o.reduce.forward != NULL)


cdef inline Py_ssize_t item_bytes(const run_state *run, const instr *i) noexcept nogil:
    """The bytes of one item in a partial result."""
    cdef const op *o = op_of(run, i)
    if o.reduce.partial != NULL and i.kind == FORWARD:
        return o.reduce.partial_bytes
    return (o.reduce.n_sums if has_sums(o, i.kind) else o.n_param) // o.reduce.n_items * run.program.real_bytes


cdef void fill_batch_view(const run_state *run, const instr *i, Py_ssize_t s0, Py_ssize_t s1, batch_view *w,
                          Py_ssize_t *starts) noexcept nogil
cdef Py_ssize_t cut_nodes(Py_ssize_t slot, Py_ssize_t end, Py_ssize_t *first) noexcept nogil
cdef void emit_batch(const run_state *run, const instr *i, char *out, Py_ssize_t i0, Py_ssize_t i1, int thread) noexcept nogil
cdef void emit_partial(const run_state *run, const instr *i, Py_ssize_t s0, Py_ssize_t s1, char *out,
                       Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
cdef void combine_nodes(const run_state *run, const instr *i, const char *nodes, Py_ssize_t stride, const Py_ssize_t *first,
                        Py_ssize_t n_nodes, char *out, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil
