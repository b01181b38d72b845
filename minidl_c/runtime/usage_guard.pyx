"""UsageGuard: a readers-writer lock for a model, so that no thread trains what another one reads.

It is compiled so that neither a signal nor another thread can come between check and acquisition, or between acquisition and
the `with` block that releases: an interrupted predict never leaves a model locked.
"""
import os

from cpython.pythread cimport PyThread_get_thread_ident
from minidl_c.runtime.spinlock cimport spinlock, spinlock_acquire, spinlock_release

cdef enum:                              # kinds of usage
    READ
    WRITE
    TRAIN

cdef enum:                              # what conflicts with a usage: another thread or this one writes; others read
    WRITES = 1
    TRAINS
    READS

cdef long _forks = 0


def _after_fork():
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


cdef class UsageGuard:
    """A non-blocking readers-writer lock, reentrant per thread: a conflicting acquisition raises RuntimeError.

    Each method returns a context manager for one thread. Inside its own lock, the thread that writes may read and write
    (callbacks predict, and load weights), but not start to train again. A forked child starts unlocked: the threads that held
    the lock do not exist in it.
    """

    cdef spinlock lock                  # of the following fields
    cdef unsigned long owner            # the thread that writes, while depth > 0
    cdef Py_ssize_t depth, readers
    cdef long forks                     # the number of forks when the other fields were set
    cdef object doing                   # the name of the owner's outermost call

    def reading(self, what):
        """Returns a lock for reading: refused while another thread writes. what: the caller's name, for messages."""
        return _usage(self, what, READ)

    def writing(self, what):
        """Returns a lock for writing: refused while another thread reads or writes."""
        return _usage(self, what, WRITE)

    def training(self, what):
        """Returns a lock as `writing` does, which is also refused while the same thread writes."""
        return _usage(self, what, TRAIN)


cdef Usage _usage(UsageGuard guard, object what, int kind):
    cdef Usage usage = Usage.__new__(Usage)
    usage.guard, usage.what, usage.kind = guard, what, kind
    return usage


cdef class Usage:
    """The context manager that UsageGuard's methods return."""

    cdef UsageGuard guard
    cdef object what
    cdef int kind, entered              # entered: the number of times without the exit
    cdef long forks

    def __enter__(self):
        cdef UsageGuard guard = self.guard
        cdef object doing
        cdef int conflict
        if guard is None:
            raise TypeError("expected a context of UsageGuard's methods, got one that was made by itself")
        spinlock_acquire(&guard.lock)
        conflict, doing = self.acquire(guard), guard.doing
        spinlock_release(&guard.lock)
        if conflict == WRITES:
            raise RuntimeError(f"{self.what}: another thread is at work on this model, in {doing}; "
                               "wait for its end, or use a copy made before")
        if conflict == TRAINS:
            raise RuntimeError(f"{self.what}: this model is training already, in {doing}; wait for its end")
        if conflict == READS:
            raise RuntimeError(f"{self.what}: this model is predicting just now; wait for its end, or use a copy")

    def __exit__(self, *error):
        if self.guard is not None:
            spinlock_acquire(&self.guard.lock)
            self.release(self.guard)
            spinlock_release(&self.guard.lock)

    cdef int acquire(self, UsageGuard guard) noexcept:
        """Counts this usage, and returns 0; or returns the conflict."""
        cdef unsigned long me = PyThread_get_thread_ident()
        if guard.forks != _forks:
            guard.forks, guard.depth, guard.readers = _forks, 0, 0
        if guard.depth and guard.owner != me:
            return WRITES
        if guard.depth and self.kind == TRAIN:
            return TRAINS
        if guard.readers and not guard.depth and self.kind != READ:
            return READS
        self.forks = _forks
        self.entered += 1
        if self.kind == READ:
            guard.readers += 1
            return 0
        if not guard.depth:
            guard.owner, guard.doing = me, self.what
        guard.depth += 1
        return 0

    cdef void release(self, UsageGuard guard) noexcept:
        """Ends what `acquire` began, unless a fork in between has ended it."""
        if not self.entered:
            return
        self.entered -= 1
        if self.forks != guard.forks:
            return
        if self.kind == READ:
            guard.readers -= 1
        else:
            guard.depth -= 1
