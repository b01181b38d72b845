"""The number of threads of a call. See threads.pyx."""
cdef bint chooses_threads() noexcept
cdef int threads_for(object num_threads, double work, double n_steps) except -1
cdef int threads_of_prediction(object num_threads, double work) except -1
cdef bint keeps_lock(double work) noexcept
cdef void begin_call() noexcept nogil
cdef void end_call() noexcept nogil
cdef void take_lock() noexcept
