"""What follows when all tiles of a batch went by. See rows.pyx."""
from minidl_c.job cimport call, job

cdef void run_rows(job *j, const call *c, Py_ssize_t round, Py_ssize_t item, Py_ssize_t items) noexcept nogil
cdef void check(job *j, Py_ssize_t round) noexcept nogil
cdef void update(job *j, Py_ssize_t round, Py_ssize_t item, Py_ssize_t items) noexcept nogil
cdef void end_step(job *j, Py_ssize_t k) noexcept nogil
