"""Per-example gradients. See per_example.pyx."""
from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport op, tile
from minidl_c.runtime.run_state cimport example_output, run_state


cdef class PerExampleOutputs:
    cdef tuple requests
    cdef list arguments                 # the arrays, held until the call ends
    cdef example_output *outputs
    cdef int bind(self, const op *ops, int n_ops, run_state *run) except -1
    cdef int check_no_overlap(self, ArrayArgs others) except -1
    cdef char *acquire(self, object array, str kind, Py_ssize_t rows, Py_ssize_t width, str name) except? NULL

cdef char *cleared_lanes(const run_state *run, const op *o, int thread) noexcept nogil
cdef void write_example_grads(const run_state *run, const op *o, const tile *t) noexcept nogil
