"""What follows when all tiles of a batch went by. See reduce.pyx."""
from minidl_c.runtime.run_state cimport phase, run_state

cdef void run_reduce(run_state *run, const phase *f, Py_ssize_t round, Py_ssize_t item) noexcept nogil
cdef void check(run_state *run, Py_ssize_t round) noexcept nogil
cdef void update(run_state *run, Py_ssize_t round, Py_ssize_t item) noexcept nogil
cdef void commit(run_state *run, Py_ssize_t k) noexcept nogil
