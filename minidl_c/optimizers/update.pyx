"""Update: the interface of a native optimizer to a plan."""
from operator import index

from libc.stdint cimport int64_t
from numpy import frombuffer, zeros

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport dtype_of

cdef extern from "minidl_c/simd/lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)


cdef class Update:
    """A native optimizer: a C function that updates a range of the flat parameters, and its state. See sgd.pyx."""

    def __cinit__(self):
        self.arrays = {}

    cdef int begin(self, Py_ssize_t size, dtype) except -1:
        """Sets the number of parameters and their dtype."""
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype: expected 'float32' or 'float64', got {dtype!r}")
        if not 0 <= size <= 2**56:                     # the number of bytes fits in 64 bits
            raise ValueError(f"size: expected from 0 to 2**56, got {size}")
        self.size, self.c.real_bytes = size, 4 if dtype == "float32" else 8
        return 0

    cdef void use(self, update_function f32, update_function f64) noexcept:
        """Sets the C function: the one of the dtype."""
        self.c.update = f32 if self.c.real_bytes == 4 else f64

    cdef object add_state(self, int i, name):
        """Returns a new array of zeros, one for each flat parameter, which cannot be resized: state[i] points to it."""
        dtype = dtype_of(self.c.real_bytes)
        array = frombuffer(bytearray(self.size * self.c.real_bytes), dtype) if self.size else zeros(0, dtype)
        self.arrays[name] = array
        self.c.state[i] = <void *> <size_t> array.ctypes.data
        return array

    @property
    def state(self):
        """The state by name: the arrays themselves (size,), in the order of the flat parameters."""
        return dict(self.arrays)

    @property
    def steps(self):
        """The number of steps of this optimizer; a run may continue with another one."""
        return self.c.steps

    @steps.setter
    def steps(self, steps):
        if not 0 <= index(steps) < 2**62:                     # leaves room for the steps that follow
            raise ValueError(f"steps: expected from 0 to 2**62 - 1, got {steps}")
        self.c.steps = steps

    cdef int bind(self, ArrayArgs arguments, Py_ssize_t size, str dtype, int64_t skipped_steps) except -1:
        """Binds the state to a call; raises TypeError or ValueError unless made for `size` parameters of this dtype.

        skipped_steps: the most steps that an op has skipped; more than the optimizer has done raise ValueError.
        """
        if self.c.update == NULL:
            raise TypeError(f"update: expected that of an optimizer, got {type(self).__name__}")
        if self.size != size or self.c.real_bytes != (4 if dtype == "float32" else 8):
            got = f"{self.size} of float{8 * self.c.real_bytes}"
            raise ValueError(f"update: expected one made for {size} parameters of {dtype}, got one for {got}")
        if skipped_steps > self.c.steps:                      # the step of a formula would be negative
            raise ValueError(f"skipped_steps: expected at most the {self.c.steps} steps that the optimizer has done, "
                             f"got {skipped_steps}")
        for array in self.arrays.values():
            arguments.acquire(array, dtype, size, 1, True, "update")
        return 0

    def apply(self, param, grad, double rate, step_counter=None, ranges=None):
        """Updates the flat parameters once, outside a plan: param IN and OUT, grad IN, of one size and dtype.

        ranges: the (start, end, factor of the rate, skipped steps) to update; None: all parameters, with factor 1.
        step_counter (1,) int64 IN and OUT, or None: incremented together with the update; a signal cannot separate the two.
        Raises TypeError or ValueError for other arrays.
        """
        cdef ArrayArgs a = ArrayArgs()
        cdef str dtype = dtype_of(self.c.real_bytes)
        cdef char *w = a.acquire(param, dtype, -1, 1, True, "param")
        cdef Py_ssize_t size = a.rows
        cdef char *g = a.acquire(grad, dtype, size, 1, False, "grad")
        cdef int64_t *steps = NULL
        if step_counter is not None:
            steps = <int64_t *> a.acquire(step_counter, "int64", 1, 1, True, "step_counter")
        ranges = [(0, size, 1, 0)] if ranges is None else ranges
        ranges = [(index(start), index(end), float(factor), index(skipped)) for start, end, factor, skipped in ranges]
        self.bind(a, size, dtype, max([skipped for *_, skipped in ranges], default=0))
        a.check_no_overlap()
        for start, end, factor, skipped in ranges:
            if not 0 <= start <= end <= size or skipped < 0:
                raise ValueError(f"ranges: expected ranges of {size} parameters and at least 0 skipped steps, "
                                 f"got {start} to {end} and {skipped}")
        cdef unsigned before = flush_subnormals()      # as inside a plan
        for start, end, factor, skipped in ranges:
            self.c.update(&self.c, w, g, start, end, rate * <double> factor, self.c.steps - <int64_t> skipped)
        restore_subnormals(before)
        self.c.steps += 1
        if steps != NULL:
            steps[0] += 1
