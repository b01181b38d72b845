"""A batch divided among processes. See partition.pyx."""
from minidl_c.op cimport op
from minidl_c.runtime.reduction_tree cimport item_bytes
from minidl_c.runtime.run_state cimport REDUCE_TASKS, instr, partition, phase, run_state

cdef inline Py_ssize_t aligned_bytes(const run_state *run, const instr *i, Py_ssize_t i0, Py_ssize_t i1) noexcept nogil:
    """The bytes of reduction items i0 to i1 of an op, rounded up so that those of the next op are aligned."""
    return ((i1 - i0) * item_bytes(run, i) + 15) // 16 * 16


cdef inline Py_ssize_t first_of(Py_ssize_t n, Py_ssize_t rank, const partition *s) noexcept nogil:
    """The first of n slots or tasks of a process; that of rank + 1 is their end."""
    return n * rank // s.size


cdef inline Py_ssize_t width_of(const phase *f, Py_ssize_t rank, const partition *s) noexcept nogil:
    """The bytes of a node that a process combines."""
    return f.offsets[first_of(REDUCE_TASKS, rank + 1, s)] - f.offsets[first_of(REDUCE_TASKS, rank, s)]


cdef list find_nodes(partition *s, Py_ssize_t slots)
cdef void place_tasks(const run_state *run, phase *f) noexcept
cdef bint losses_finite(const run_state *run, Py_ssize_t step) noexcept nogil
cdef void run_partials(const run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task) noexcept nogil
cdef void run_combine(const run_state *run, const phase *f, Py_ssize_t task) noexcept nogil
cdef const char *combined_items(run_state *run, const phase *f, Py_ssize_t task) noexcept nogil
