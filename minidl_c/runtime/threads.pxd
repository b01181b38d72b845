"""How many threads a call may use."""
cdef int threads_for(object num_threads, double work, double rounds) except -1
