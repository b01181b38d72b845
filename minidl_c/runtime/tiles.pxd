"""One instruction on one tile. See tiles.pyx."""
from minidl_c.runtime.run_state cimport instr, run_state

cdef void run_instr(const run_state *run, const instr *i, Py_ssize_t step, Py_ssize_t row, Py_ssize_t t, int thread,
                    Py_ssize_t part, Py_ssize_t parts) noexcept nogil
