"""A batch shared out over processes. See partition.pyx."""
from minidl_c.op cimport op
from minidl_c.runtime.reduction_tree cimport item_bytes
from minidl_c.runtime.run_state cimport RANGES, instr, partition, phase, run_state

cdef inline Py_ssize_t bytes_of(const run_state *run, const instr *c, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """How many bytes rows a to b of an op take, so that the next ones are aligned."""
    return ((b - a) * item_bytes(run, &run.program.ops[c.op], c) + 15) // 16 * 16


cdef inline Py_ssize_t first_of(Py_ssize_t n, Py_ssize_t rank, const partition *s) noexcept nogil:
    """The first of n slots or items that a process does; that of rank + 1 is where it ends."""
    return n * rank // s.size


cdef inline Py_ssize_t width_of(const phase *f, Py_ssize_t rank, const partition *s) noexcept nogil:
    """How many bytes of a node a process joins."""
    return f.at[first_of(RANGES, rank + 1, s)] - f.at[first_of(RANGES, rank, s)]


cdef bint is_distributable(const op *o) noexcept
cdef list find_nodes(partition *s, Py_ssize_t slots)
cdef void place_items(const run_state *run, phase *f) noexcept
cdef bint losses_finite(const run_state *run, Py_ssize_t round) noexcept nogil
cdef void run_partials(const run_state *run, const phase *f, Py_ssize_t round, Py_ssize_t item) noexcept nogil
cdef void run_combine(const run_state *run, const phase *f, Py_ssize_t item) noexcept nogil
cdef const char *combined_items(run_state *run, const phase *f, Py_ssize_t item) noexcept nogil
