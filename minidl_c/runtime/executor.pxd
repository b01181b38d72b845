"""What a thread does in one call of a plan. See executor.pyx."""
from minidl_c.runtime.run_state cimport job

cdef void begin_job(job *j) noexcept nogil
cdef void run_part(job *j, Py_ssize_t round, int first, int last) noexcept nogil
cdef void run_job(job *j, Py_ssize_t rounds) noexcept nogil
