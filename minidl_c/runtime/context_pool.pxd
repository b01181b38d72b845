"""ContextPool: the contexts of a plan that no call uses. See context_pool.pyx."""
from minidl_c.runtime.execution_context cimport ExecutionContext
from minidl_c.runtime.spinlock cimport spinlock


cdef class ContextPool:
    cdef spinlock lock
    cdef ExecutionContext first
    cdef ExecutionContext take(self)
    cdef void put(self, ExecutionContext p) noexcept


cdef bint begin_backward(ExecutionContext p, object plan) noexcept
cdef bint move_arena(ExecutionContext p, object plan, ExecutionContext target) noexcept
