"""Arena: the memory of a running plan. See arena.pyx."""
from minidl_c.op cimport op
from minidl_c.runtime.memory_map cimport MemoryMap, buffer, value
from minidl_c.runtime.schedule cimport schedule


cdef class Arena:
    cdef MemoryMap map
    cdef char *block
    cdef Py_ssize_t capacity
    cdef tuple shape                    # what the map was computed for
    cdef int packs_dx                   # whether the packed parameters in the block are those of a map with backward
    cdef int bind(self, const op *ops, const value *values, int n_ops, bint blocked) except -1
    cdef Py_ssize_t block_bytes(self, const schedule *s) except -1
    cdef int grow(self, Py_ssize_t bytes) except -1
    cdef int prepare(self, const schedule *s) except -1
