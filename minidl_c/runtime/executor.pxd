"""The executor of a plan. See executor.pyx."""
from minidl_c.runtime.run_state cimport run_state

cdef void begin_run(run_state *run) noexcept nogil
cdef void execute_phases(run_state *run, Py_ssize_t step, int first, int last) noexcept nogil
cdef void execute(run_state *run, Py_ssize_t n_steps) noexcept nogil
cdef void execute_unlocked(run_state *run, Py_ssize_t n_steps) noexcept nogil
