"""A batch shared out over processes. See partition.pyx."""
from minidl_c.op cimport op
from minidl_c.runtime.reduction_tree cimport row_bytes
from minidl_c.runtime.run_state cimport RANGES, call, job, phase, sharing

cdef inline Py_ssize_t bytes_of(const job *j, const call *c, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """How many bytes rows a to b of an op take, so that the next ones are aligned."""
    return ((b - a) * row_bytes(j, &j.ops[c.op], c) + 15) // 16 * 16


cdef inline Py_ssize_t first_of(Py_ssize_t n, Py_ssize_t rank, const sharing *s) noexcept nogil:
    """The first of n slots or items that a process does; that of rank + 1 is where it ends."""
    return n * rank // s.ranks


cdef inline Py_ssize_t width_of(const phase *f, Py_ssize_t rank, const sharing *s) noexcept nogil:
    """How many bytes of a node a process joins."""
    return f.at[first_of(RANGES, rank + 1, s)] - f.at[first_of(RANGES, rank, s)]


cdef bint can_share(const op *o) noexcept
cdef list find_nodes(sharing *s, Py_ssize_t slots)
cdef void place_rows(const job *j, phase *f) noexcept
cdef bint losses_finite(const job *j, Py_ssize_t round) noexcept nogil
cdef void run_nodes(const job *j, const phase *f, Py_ssize_t round, Py_ssize_t item) noexcept nogil
cdef void run_join(const job *j, const phase *f, Py_ssize_t item) noexcept nogil
cdef const char *joined_rows(job *j, const phase *f, Py_ssize_t item) noexcept nogil
