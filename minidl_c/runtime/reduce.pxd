"""The phases after all tiles of a batch. See reduce.pyx."""
from minidl_c.runtime.run_state cimport phase, run_state

cdef void run_reduce(run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task, int thread) noexcept nogil
cdef void run_check(run_state *run, Py_ssize_t step) noexcept nogil
cdef void run_update(run_state *run, Py_ssize_t step, Py_ssize_t task) noexcept nogil
cdef void run_commit(run_state *run, Py_ssize_t k) noexcept nogil
