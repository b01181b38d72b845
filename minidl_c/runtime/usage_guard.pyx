"""UsageGuard: who is at work on a model, so that nobody trains what another thread reads.

Compiled, because then neither a signal nor another thread comes between looking and marking, or between marking and the
`with` block that takes the mark away: an interrupted predict leaves nothing behind that would refuse a fit for ever.
"""
import os

from cpython.pythread cimport PyThread_get_thread_ident

cdef enum:
    READ
    WRITE
    TRAIN

cdef long _forks = 0


def _after_fork():
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


cdef class UsageGuard:
    """Many readers or one writer, told apart by thread; nobody waits, who comes at a wrong time gets a RuntimeError.

    Each method returns a context, entered and left by one thread. The thread that writes may read and write meanwhile
    (callbacks predict, and load weights), but not begin to train once more. A forked child starts free: the threads that
    were at work do not exist in it.
    """

    cdef unsigned long owner            # the thread that writes, while depth > 0
    cdef Py_ssize_t depth, readers
    cdef long forks                     # how many forks lay before what the other fields say
    cdef object doing                   # what the owner began with

    def reading(self, what):
        """For what only looks: refused while another thread writes."""
        return _use(self, what, READ)

    def writing(self, what):
        """For what changes the model: refused while another thread is at work on it."""
        return _use(self, what, WRITE)

    def training(self, what):
        """As `writing`, and refused inside itself."""
        return _use(self, what, TRAIN)


cdef Usage _use(UsageGuard busy, object what, int kind):
    cdef Usage use = Usage.__new__(Usage)
    use.busy, use.what, use.kind = busy, what, kind
    return use


cdef class Usage:
    """The context that UsageGuard's methods return."""

    cdef UsageGuard busy
    cdef object what
    cdef int kind, entered              # entered: how often, and not left yet
    cdef long forks

    def __enter__(self):
        cdef UsageGuard busy = self.busy
        if busy is None:
            raise TypeError("expected a context of UsageGuard's methods, got one that was made by itself")
        cdef unsigned long me = PyThread_get_thread_ident()
        if busy.forks != _forks:
            busy.forks, busy.depth, busy.readers = _forks, 0, 0
        if busy.depth and busy.owner != me:
            raise RuntimeError(f"{self.what}: another thread is at work on this model, in {busy.doing}; "
                               "wait for its end, or use a copy made before")
        if busy.depth and self.kind == TRAIN:
            raise RuntimeError(f"{self.what}: this model is training already, in {busy.doing}; wait for its end")
        if busy.readers and not busy.depth and self.kind != READ:
            raise RuntimeError(f"{self.what}: this model is predicting just now; wait for its end, or use a copy")
        self.forks = _forks
        self.entered += 1
        if self.kind == READ:
            busy.readers += 1
            return
        if not busy.depth:
            busy.owner, busy.doing = me, self.what
        busy.depth += 1

    def __exit__(self, *error):
        if not self.entered:
            return
        self.entered -= 1
        if self.forks != self.busy.forks:                     # entered before a fork, which set everything free
            return
        if self.kind == READ:
            self.busy.readers -= 1
        else:
            self.busy.depth -= 1
