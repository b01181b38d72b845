"""The blocked layout. See blocked.pyx."""
from minidl_c.runtime.run_state cimport instr, phase, run_state

cdef void run_joint(const run_state *run, const instr *i, Py_ssize_t step, int thread, Py_ssize_t part, Py_ssize_t parts) noexcept nogil
cdef void run_chunks(const run_state *run, const phase *f, Py_ssize_t step, Py_ssize_t task, int thread) noexcept nogil
cdef void run_converted(const run_state *run, const instr *i, Py_ssize_t step, int thread) noexcept nogil
cdef void run_blocked(const run_state *run, const instr *i, Py_ssize_t step, Py_ssize_t t, int thread, Py_ssize_t part,
                      Py_ssize_t parts, bint by_rows) noexcept nogil
