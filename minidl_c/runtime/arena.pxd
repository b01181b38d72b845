"""Where the values of a running plan live. See arena.pyx."""
from minidl_c.op cimport op

ctypedef struct room:                   # one buffer: a copy for each tile of the batch, or for each thread
    char *at
    Py_ssize_t bytes                    # of one copy
    Py_ssize_t stride                   # from copy to copy
    int keep                            # 1: for each tile, 0: for each thread

cdef extern from "minidl_c/runtime/optimize.h" nogil:
    ctypedef struct value:
        Py_ssize_t size, bytes
        int home, grad_home, rows_read, grad_rows_read


cdef class Arena:
    cdef char *block
    cdef Py_ssize_t capacity, used
    cdef tuple shape                    # what it is laid out for
    cdef tuple how                      # whether all is kept, whether there is a backward: what the next four belong to
    cdef list own, places, kept         # arrays of each thread and where in its memory they lie; arrays of each tile
    cdef Py_ssize_t end                 # of a thread's memory
    cdef room *data
    cdef room *grad
    cdef room *saved
    cdef char **packed
    cdef char **joined
    cdef char *scratch
    cdef Py_ssize_t scratch_bytes, sums_bytes, parts_bytes
    cdef char *sums
    cdef char *parts
    cdef char *totals
    cdef int n_ops
    cdef int reserve(self, int n_ops) except -1
    cdef char *take(self, Py_ssize_t bytes, Py_ssize_t copies) noexcept
    cdef room *room_of(self, int kind, int number) noexcept
    cdef int decide(self, const op *ops, const value *values, int keep_all, int backward) except -1
    cdef int overlaid(self, const op *ops, const value *values, int keep_all, int backward) except -1
    cdef int assign(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int backward) except -1
    cdef int grow(self, Py_ssize_t bytes) except -1
    cdef Py_ssize_t needed(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int backward) except -1
    cdef int settle(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int backward) except -1
    cdef int lay_out(self, const op *ops, const value *values, Py_ssize_t tiles, int threads, int keep_all,
                     int backward) except -1


cdef inline char *place(const room *r, Py_ssize_t tile, int thread) noexcept nogil:
    return r.at + (tile if r.keep else thread) * r.stride
