"""Plan: the ops of a model, run over the tiles of a batch. See plan.pyx."""
from libc.stdint cimport int64_t

from minidl_c.optimizers.update cimport ParamRanges, Update
from minidl_c.runtime.context_pool cimport ContextPool
from minidl_c.runtime.execution_context cimport ExecutionContext
from minidl_c.runtime.program cimport Program
from minidl_c.runtime.training_call cimport TrainingCall


cdef class Plan(Program):
    cdef ContextPool context_pool
    cdef ExecutionContext new_context(self)
    cdef ExecutionContext acquire_context(self, bint trains)
    cdef void release_context(self, ExecutionContext p)
    cdef int64_t *bind_training(self, ExecutionContext p, TrainingCall call, ParamRanges ranges, Py_ssize_t m,
                                Py_ssize_t n_steps) except NULL
    cdef int schedule_steps(self, ExecutionContext p, Update update) except -1
