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


def product_of(name, sizes):
    """The product of whole numbers; raises ValueError if nobody could have so much memory."""
    product = prod(sizes)
    if product > MOST:
        raise ValueError(f"{name}: expected at most {MOST} numbers, got {' * '.join(map(str, sizes))}")
    return product


cdef class Op:
    """A C `op` (see op.h) and the shapes around it. A kernel's class derives from this and fills `c`.

    An Op is read-only once it is made, and may belong to several plans.
    """

    def __cinit__(self):
        memset(&self.c, 0, sizeof(op))
        self.c.skip = self.c.dskip = self.c.input = self.c.output = -1

    cdef int check_shapes(self, tuple in_shape, tuple out_shape, object dtype) except -1:
        if self.c.size:
            raise TypeError(f"{type(self).__name__}: made already; plans may use it")
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype: expected 'float32' or 'float64', got {dtype!r}")
        in_shape = whole_numbers("input shape", in_shape, len(in_shape), 1)
        out_shape = whole_numbers("output shape", out_shape, len(out_shape), 1)
        self.c.in_size, self.c.out_size = product_of("input shape", in_shape), product_of("output shape", out_shape)
        self.in_shape, self.out_shape = in_shape, out_shape
        self.c.work = self.c.in_size + self.c.out_size
        self.c.real_bytes = 4 if dtype == "float32" else 8
        self.c.rate = 1
        return 0

    cdef int check(self, str name, int real_bytes) except -1:
        """Raises ValueError if no plan could run it, whatever stands around it."""
        cdef const op *o = &self.c
        if o.size != sizeof(op):
            raise ValueError(f"{name}: compiled against another minidl (its op has {o.size} bytes, "
                             f"this one's {sizeof(op)}); build it again")
        if o.real_bytes != real_bytes:                        # never self.dtype, which a class of Python may override
            raise ValueError(f"{name}: expected {dtype_of(real_bytes)}, got {dtype_of(o.real_bytes)}")
        if (o.forward_rows != NULL and (o.forward_tile == NULL or not o.cut & CUT_FORWARD)
                or o.backward_rows != NULL and o.backward_tile == NULL):
            raise ValueError(f"{name}: rows want a tile function of the same direction, "
                             "and forward_rows want CUT_FORWARD")
        if (o.forward_tile == NULL and o.y_is == NEW or o.backward_tile == NULL and o.dx_is == NEW or o.in_place
                or THE_FIRST in (o.y_is, o.dx_is)) and o.in_size != o.out_size:
            raise ValueError(f"{name}: its output cannot lie where its input does, {o.in_size} numbers are not {o.out_size}")
        if (o.y_is == THE_SECOND and (o.skip < 0 or (o.skip_size or o.in_size) != o.out_size)
                or o.dx_is == THE_SECOND and (o.dskip < 0 or (o.dskip_size or o.in_size) != o.in_size)):
            raise ValueError(f"{name}: expected skip as large as y, and dskip as large as dx, where they are the same")
        if (o.example_gradient == NULL) != (o.example_squares == NULL) or o.example_gradient != NULL and o.backward_rows == NULL:
            raise ValueError(f"{name}: example_gradient and example_squares come together, with backward_rows")
        if (o.slot_rows == NULL) != (o.join_rows == NULL) or o.slot_rows != NULL and (
                o.forward_rows == NULL or o.n_lane or o.summary not in range(8, 65, 8)):
            raise ValueError(f"{name}: slot_rows and join_rows come together, with forward_rows, without sums, and with a "
                             f"summary of 8, 16 ... 64 bytes, got {o.summary}")
        if o.n_param and o.backward_rows == NULL and (o.n_lane == 0 or o.forward_rows != NULL):
            raise ValueError(f"{name}: op has {o.n_param} parameters, but neither sums on its way backward (n_lane) nor "
                             f"backward_rows: say n_lane = rows = {o.n_param}, and add each lane's share to t.sums; what has no "
                             "gradient belongs to n_state")
        if o.n_param and (o.backward_tile == NULL or o.rows == 0):
            raise ValueError(f"{name}: op has {o.n_param} parameters, but no {'rows' if o.backward_tile != NULL else 'backward_tile'}: "
                             "nothing would write their gradient")
        if o.n_param and o.n_lane not in (0, o.n_param) and o.forward_rows == NULL:
            raise ValueError(f"{name}: n_lane: expected 0, or a sum for each of {o.n_param} parameters, got {o.n_lane}")
        if o.n_lane and (o.rows == 0 or o.n_lane % o.rows):
            raise ValueError(f"{name}: rows: expected a divisor of {o.n_lane} sums (n_lane), got {o.rows}")
        if o.end_step != NULL and o.n_state == 0:
            raise ValueError(f"{name}: end_step wants n_state numbers to write to")
        if min(o.n_param, o.n_state, o.n_lane, o.rows, o.saved, o.scratch, o.packed) < 0 or (o.rows and o.n_param % o.rows):
            raise ValueError(f"{name}: expected sizes of at least 0, and rows of equal length")
        if o.n_target < 0 or o.n_target > MOST or o.n_target and not o.is_loss:
            raise ValueError(f"{name}: n_target: expected 0 to {MOST} numbers, for a loss, got {o.n_target}")
        return 0

    @property
    def dtype(self):
        """'float32' or 'float64'."""
        return dtype_of(self.c.real_bytes)

    @property
    def couples(self):
        """Whether training looks at a whole batch on its way forward: an example's output depends on the others."""
        return self.c.forward_rows != NULL

    @property
    def tells_examples(self):
        """Whether the gradients of single examples can be taken from a batch: from lanes, or because the op says them."""
        return self.c.n_param == 0 or tells_examples(&self.c)

    @property
    def n_param(self):
        """How many parameters the op reads, in the order in which the layer made them."""
        return self.c.n_param

    @property
    def n_state(self):
        """How many numbers behind the parameters are the op's own, in the order in which the layer made its buffers."""
        return self.c.n_state
