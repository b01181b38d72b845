"""Update: the interface of a native optimizer to a plan. See update.pyx."""
from libc.stdint cimport int64_t

from minidl_c.array_args cimport ArrayArgs

ctypedef void (*update_function)(const optimizer *, void *param, const void *grad, Py_ssize_t start, Py_ssize_t end,
                                 double rate, int64_t step) noexcept nogil

ctypedef struct optimizer:              # for an example see sgd.pyx
    update_function update
    int real_bytes
    int64_t steps                       # completed steps; the `step` of the next update
    void *state[3]                      # arrays as large as the flat parameters, or NULL
    double weight_decay                 # in an update, times the decay_scale of the range
    double hyper[8]

ctypedef struct param_range:            # of the flat parameters: a parameter group
    Py_ssize_t start, end
    double lr_scale, decay_scale        # factors of the learning rate and of the weight decay
    int64_t skipped_steps               # optimizer steps that were made while it was frozen


cdef class ParamRanges:
    cdef param_range *ranges
    cdef Py_ssize_t n
    cdef int64_t max_skipped_steps


cdef class Update:
    cdef optimizer c
    cdef Py_ssize_t size                # of the flat parameters
    cdef dict arrays                    # the state by name: arrays as large as the flat parameters
    cdef int begin(self, Py_ssize_t size, dtype) except -1
    cdef void use(self, update_function f32, update_function f64) noexcept
    cdef object add_state(self, int i, name)
    cdef int bind(self, ArrayArgs arguments, Py_ssize_t size, str dtype, ParamRanges ranges) except -1

cdef void update_between(const optimizer *o, const param_range *ranges, Py_ssize_t n, void *param, const void *grad, Py_ssize_t a,
                         Py_ssize_t b, double rate, int64_t step) noexcept nogil
