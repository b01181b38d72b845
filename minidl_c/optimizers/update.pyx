"""Update: the interface of a native optimizer to a plan."""
from operator import index

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from numpy import frombuffer, zeros

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport dtype_of

cdef extern from "minidl_c/simd/lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)


cdef void update_between(const optimizer *o, const param_range *ranges, Py_ssize_t n, void *param, const void *grad, Py_ssize_t a,
                         Py_ssize_t b, double rate, int64_t step) noexcept nogil:
    """Updates the parameters from a to b that are in one of n ranges."""
    cdef optimizer scaled = o[0]
    cdef const param_range *r
    cdef Py_ssize_t k = 0, end = n, middle
    while k < end:                                     # finds the first range that ends after a
        middle = (k + end) >> 1
        if ranges[middle].end <= a:
            k = middle + 1
        else:
            end = middle
    while k < n and ranges[k].start < b:
        r = &ranges[k]
        scaled.weight_decay = o.weight_decay * r.decay_scale
        o.update(&scaled, param, grad, max(a, r.start), min(b, r.end), rate * r.lr_scale, step - r.skipped_steps)
        k += 1


cdef class ParamRanges:
    """The ranges of the flat parameters that steps change, in order, each with how an optimizer treats it.

    ranges: for each (start, end, factor of the learning rate, factor of the weight decay, steps skipped while it was frozen).
    Raises TypeError or ValueError for ranges that overlap or are not in order, and for invalid numbers.
    """

    def __cinit__(self, ranges):
        cdef param_range *r
        ranges = [(index(a), index(b), float(lr), float(decay), index(skipped)) for a, b, lr, decay, skipped in ranges]
        self.ranges = <param_range *> calloc(len(ranges) + 1, sizeof(param_range))
        if self.ranges == NULL:
            raise MemoryError()
        last = 0
        for start, end, *scales, skipped in ranges:
            if not (last <= start <= end < 2**62 and all([0 <= scale < 1e300 for scale in scales]) and 0 <= skipped < 2**62):
                raise ValueError("ranges: expected them in order, finite factors and skipped steps of at least 0, "
                                 f"got {start} to {end}, {scales} and {skipped}")
            r = &self.ranges[self.n]
            r.start, r.end, r.skipped_steps, last = start, end, skipped, end
            r.lr_scale, r.decay_scale = scales
            self.max_skipped_steps = max(self.max_skipped_steps, r.skipped_steps)
            self.n += 1

    def __dealloc__(self):
        free(self.ranges)


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

    cdef int bind(self, ArrayArgs arguments, Py_ssize_t size, str dtype, ParamRanges ranges) except -1:
        """Binds the state to a call; raises TypeError or ValueError unless made for `size` parameters of this dtype.

        Also raises ValueError for ranges beyond them, and for more skipped steps than the optimizer has done.
        """
        if self.c.update == NULL:
            raise TypeError(f"update: expected that of an optimizer, got {type(self).__name__}")
        if self.size != size or self.c.real_bytes != (4 if dtype == "float32" else 8):
            got = f"{self.size} of float{8 * self.c.real_bytes}"
            raise ValueError(f"update: expected one made for {size} parameters of {dtype}, got one for {got}")
        if ranges.n and ranges.ranges[ranges.n - 1].end > size:
            raise ValueError(f"ranges: expected ranges of {size} parameters, got an end of {ranges.ranges[ranges.n - 1].end}")
        if ranges.max_skipped_steps > self.c.steps:           # the step of a formula would be negative
            raise ValueError(f"ranges: expected at most the {self.c.steps} steps that the optimizer has done as skipped steps, "
                             f"got {ranges.max_skipped_steps}")
        for array in self.arrays.values():
            arguments.acquire(array, dtype, size, 1, True, "update")
        return 0

    def apply(self, param, grad, double rate, step_counter=None, ParamRanges ranges=None):
        """Updates the flat parameters once, outside a plan: param IN and OUT, grad IN, of one size and dtype.

        ranges: the parameters to update; None: all, with factors of 1.
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
        if ranges is None:
            ranges = ParamRanges([(0, size, 1, 1, 0)])
        self.bind(a, size, dtype, ranges)
        a.check_no_overlap()
        cdef unsigned before = flush_subnormals()      # as inside a plan
        update_between(&self.c, ranges.ranges, ranges.n, w, g, 0, size, rate, self.c.steps)
        restore_subnormals(before)
        self.c.steps += 1
        if steps != NULL:
            steps[0] += 1
