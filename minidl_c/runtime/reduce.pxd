"""What follows when all tiles of a batch went by. See reduce.pyx."""
from minidl_c.runtime.run_state cimport job, phase

cdef void run_rows(job *j, const phase *f, Py_ssize_t round, Py_ssize_t item) noexcept nogil
cdef void check(job *j, Py_ssize_t round) noexcept nogil
cdef void update(job *j, Py_ssize_t round, Py_ssize_t item) noexcept nogil
cdef void end_step(job *j, Py_ssize_t k) noexcept nogil
