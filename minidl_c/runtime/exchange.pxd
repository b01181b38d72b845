"""Steps that several processes run together. See exchange.pyx."""
from minidl_c.runtime.run_state cimport partition, run_state

cdef int run_distributed(run_state *run, partition *s, list buffers, Py_ssize_t n_steps, object comm) except -1
