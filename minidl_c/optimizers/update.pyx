"""Update: what a native optimizer brings to a plan."""
from operator import index

from libc.stdint cimport int64_t
from numpy import frombuffer, zeros

from minidl_c.array_args cimport ArrayArgs

cdef extern from "minidl_c/simd/lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)


cdef class Update:
    """What a native optimizer brings: a C function that updates a range of the flat parameters. See sgd.pyx."""

    def __cinit__(self):
        self.arrays = {}

    cdef int begin(self, Py_ssize_t size, dtype) except -1:
        """Says for how many parameters of which dtype it is."""
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype: expected 'float32' or 'float64', got {dtype!r}")
        if not 0 <= size <= 2**56:                     # so many bytes can be counted
            raise ValueError(f"size: expected from 0 to 2**56, got {size}")
        self.size, self.c.real_bytes = size, 4 if dtype == "float32" else 8
        return 0

    cdef object add_state(self, int place, name):
        """A new array of zeros, one for each flat parameter, that nobody can resize: the C function finds it in `state`."""
        dtype = "float32" if self.c.real_bytes == 4 else "float64"
        array = frombuffer(bytearray(self.size * self.c.real_bytes), dtype) if self.size else zeros(0, dtype)
        self.arrays[name] = array
        self.c.state[place] = <void *> <size_t> array.ctypes.data
        return array

    @property
    def state(self):
        """What it remembers, by name: the arrays themselves (size,), in the order of the flat parameters."""
        return dict(self.arrays)

    @property
    def steps(self):
        """How many steps it has done: its own, since a run may go on with another optimizer."""
        return self.c.steps

    @steps.setter
    def steps(self, steps):
        if not 0 <= index(steps) < 2**62:                     # so many can be counted on from there
            raise ValueError(f"steps: expected from 0 to 2**62 - 1, got {steps}")
        self.c.steps = steps

    cdef int belong(self, ArrayArgs arguments, Py_ssize_t size, str dtype, int64_t late) except -1:
        """Raises TypeError or ValueError unless it was made for so many parameters of this dtype, and did `late` steps."""
        if self.c.update == NULL:
            raise TypeError(f"update: expected that of an optimizer, got {type(self).__name__}")
        if self.size != size or self.c.real_bytes != (4 if dtype == "float32" else 8):
            got = f"{self.size} of float{8 * self.c.real_bytes}"
            raise ValueError(f"update: expected one made for {size} parameters of {dtype}, got one for {got}")
        if late > self.c.steps:                               # a formula would count its steps from below zero
            raise ValueError(f"late: expected at most the {self.c.steps} steps that the optimizer has done, got {late}")
        for array in self.arrays.values():
            arguments.acquire(array, dtype, size, 1, True, "update")
        return 0

    def apply(self, param, grad, double rate, count=None, ranges=None):
        """One update of all flat parameters, outside a plan: param IN and OUT, grad IN, of one size and dtype.

        ranges: (start, end, factor of the rate, steps that went by without it), which alone are updated; None: everything.
        count (1,) int64 IN and OUT, or None: the steps done so far, one more now; no signal can come between the two.
        Raises TypeError or ValueError for other arrays.
        """
        cdef ArrayArgs a = ArrayArgs()
        cdef str dtype = "float32" if self.c.real_bytes == 4 else "float64"
        cdef char *w = a.acquire(param, dtype, -1, 1, True, "param")
        cdef Py_ssize_t size = a.rows
        cdef char *g = a.acquire(grad, dtype, size, 1, False, "grad")
        cdef int64_t *steps = NULL
        if count is not None:
            steps = <int64_t *> a.acquire(count, "int64", 1, 1, True, "count")
        ranges = [(0, size, 1, 0)] if ranges is None else ranges
        ranges = [(index(start), index(end), float(factor), index(late)) for start, end, factor, late in ranges]
        self.belong(a, size, dtype, max([late for *_, late in ranges], default=0))
        a.check_no_overlap()
        for start, end, factor, late in ranges:
            if not 0 <= start <= end <= size or late < 0:
                raise ValueError(f"ranges: expected parts of {size} numbers, and steps of at least 0 that went by without, "
                                 f"got {start} to {end} and {late}")
        cdef unsigned before = flush_subnormals()      # as inside a plan
        for start, end, factor, late in ranges:
            self.c.update(&self.c, w, g, start, end, rate * <double> factor, self.c.steps - <int64_t> late)
        restore_subnormals(before)
        self.c.steps += 1
        if steps != NULL:
            steps[0] += 1
