"""The phases of a call. See phases.pyx."""
from minidl_c.runtime.run_state cimport phase_kind, run_state

cdef void add_phase(run_state *run, phase_kind kind, int first, int last, Py_ssize_t tasks) noexcept
cdef void add_stages(run_state *run) noexcept
