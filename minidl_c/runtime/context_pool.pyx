"""ContextPool: the contexts of a plan that no call uses, and the steps in which one context changes hands.

Several threads call one plan. Each step below is atomic, also in a free-threaded Python.
"""
from minidl_c.runtime.spinlock cimport spinlock_acquire, spinlock_release


cdef class ContextPool:
    """A stack of contexts."""

    cdef ExecutionContext take(self):
        """Returns a context that is the caller's from now on; None if there is none."""
        cdef ExecutionContext p
        spinlock_acquire(&self.lock)
        p = self.first
        if p is not None:
            self.first, p.next = p.next, None
        spinlock_release(&self.lock)
        return p

    cdef void put(self, ExecutionContext p) noexcept:
        """Adds a context that nothing else uses."""
        spinlock_acquire(&self.lock)
        p.next, self.first = self.first, p
        spinlock_release(&self.lock)


cdef bint begin_backward(ExecutionContext p, object plan) noexcept:
    """Reserves the context for a backward; returns 0 if it is not the plan's, or another thread runs backward in it."""
    cdef bint is_free
    spinlock_acquire(&p.lock)
    is_free = p.plan is plan and not p.in_backward
    if is_free:
        p.in_backward = True
    spinlock_release(&p.lock)
    return is_free


cdef bint move_arena(ExecutionContext p, object plan, ExecutionContext target) noexcept:
    """Gives the memory of p to `target`, after which p can do nothing more; returns 0 where `begin_backward` does."""
    cdef bint is_free
    spinlock_acquire(&p.lock)
    is_free = p.plan is plan and not p.in_backward
    if is_free:
        target.arena, p.arena, p.plan = p.arena, None, None
    spinlock_release(&p.lock)
    return is_free
