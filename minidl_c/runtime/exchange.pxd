"""Steps that several processes do together. See exchange.pyx."""
from minidl_c.runtime.run_state cimport job, sharing

cdef int run_shared(job *j, sharing *s, list rooms, Py_ssize_t rounds, object share) except -1
