"""Who is at work on a model. See usage_guard.pyx."""

cdef class Busy:
    cdef unsigned long owner            # the thread that writes, while depth > 0
    cdef Py_ssize_t depth, readers
    cdef long forks                     # how many forks lay before what the other fields say
    cdef object doing                   # what the owner began with


cdef class Use:
    cdef Busy busy
    cdef object what
    cdef int kind, entered              # entered: how often, and not left yet
    cdef long forks
