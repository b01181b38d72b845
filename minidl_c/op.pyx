"""Op: what a layer brings to a plan."""
from math import prod
from operator import index

from libc.string cimport memset

cdef object MOST = 2**40                # numbers an example may have: 4 TB; products of sizes stay far from overflow


def whole_numbers(name, values, count, least):
    """`values` as a tuple of `count` ints of at least `least`; raises TypeError or ValueError naming the argument."""
    if not isinstance(values, (tuple, list)) or len(values) != count:
        raise TypeError(f"{name}: expected {count} whole numbers, got {values!r}")
    try:
        numbers = tuple(index(value) for value in values)
    except TypeError:
        raise TypeError(f"{name}: expected {count} whole numbers, got {values!r}") from None
    if min(numbers) < least or max(numbers) >= 2**63:
        raise ValueError(f"{name}: expected numbers from {least} to {2**63 - 1}, got {values!r}")
    return numbers


cdef class Op:
    """A C `op` (see op.h) and the shapes around it. A kernel's class derives from this and fills `c`.

    An Op is read-only once it is made, and may belong to several plans.
    """

    def __cinit__(self):
        memset(&self.c, 0, sizeof(op))
        self.c.skip = self.c.dskip = self.c.input = self.c.output = -1

    cdef int check_shapes(self, tuple in_shape, tuple out_shape, object dtype) except -1:
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype: expected 'float32' or 'float64', got {dtype!r}")
        for shape in (in_shape, out_shape):
            if any(size < 1 for size in shape):
                raise ValueError(f"every size of a shape has to be at least 1, got {shape}")
            if prod(shape) > MOST:
                raise ValueError(f"a shape of {prod(shape)} numbers an example is too large: {shape}")
        self.in_shape, self.out_shape = in_shape, out_shape
        self.c.in_size, self.c.out_size = prod(in_shape), prod(out_shape)
        self.c.work = self.c.in_size + self.c.out_size
        self.c.real_bytes = 4 if dtype == "float32" else 8
        return 0

    @property
    def dtype(self):
        """'float32' or 'float64'."""
        return "float32" if self.c.real_bytes == 4 else "float64"

    @property
    def n_param(self):
        """How many parameters the op reads, in the order in which the layer made them."""
        return self.c.n_param
