"""How many threads a call may use."""
cdef int threads_for(object num_threads) except -1
