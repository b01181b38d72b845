"""Steps that several processes do together. See exchange.pyx."""
from minidl_c.runtime.run_state cimport partition, run_state

cdef int run_shared(run_state *run, partition *s, list rooms, Py_ssize_t rounds, object comm) except -1
