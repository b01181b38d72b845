"""A lock of fields that threads share in a free-threaded Python. See spinlock.h."""

cdef extern from "minidl_c/runtime/spinlock.h" nogil:
    ctypedef struct spinlock:
        pass
    void spinlock_acquire(spinlock *lock)
    void spinlock_release(spinlock *lock)
