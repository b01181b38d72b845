"""Op: what a layer brings to a plan."""
from math import prod
from operator import index

from libc.string cimport memset

cdef object MAX_ELEMENTS = 2**40        # of an example: 4 TB; products of sizes stay far from overflow


def check_ints(name, values, count, minimum):
    """Returns `values` as a tuple of `count` ints of at least `minimum`; raises TypeError or ValueError naming the argument."""
    if not isinstance(values, (tuple, list)) or len(values) != count:
        raise TypeError(f"{name}: expected {count} whole numbers, got {values!r}")
    try:
        numbers = tuple(index(value) for value in values)
    except TypeError:
        raise TypeError(f"{name}: expected {count} whole numbers, got {values!r}") from None
    if min(numbers) < minimum or max(numbers) >= 2**63:
        raise ValueError(f"{name}: expected numbers from {minimum} to {2**63 - 1}, got {values!r}")
    return numbers


def check_element_count(name, sizes):
    """Returns the product of integers; raises ValueError beyond MAX_ELEMENTS."""
    product = prod(sizes)
    if product > MAX_ELEMENTS:
        raise ValueError(f"{name}: expected at most {MAX_ELEMENTS} numbers, got {' * '.join(map(str, sizes))}")
    return product


cdef class Op:
    """A C `op` (see op.h) with its shapes. The class of a kernel derives from this and fills `c`.

    An Op is read-only after its constructor, and may belong to several plans.
    """

    def __cinit__(self):
        memset(&self.c, 0, sizeof(op))
        self.c.branch.skip = self.c.branch.dskip = self.c.branch.factor = self.c.plan.input = self.c.plan.output = -1

    cdef int check_shapes(self, tuple in_shape, tuple out_shape, object dtype) except -1:
        if self.c.size:
            raise TypeError(f"{type(self).__name__}: constructed already; plans may use it")
        if dtype not in ("float32", "float64"):
            raise ValueError(f"dtype: expected 'float32' or 'float64', got {dtype!r}")
        in_shape = check_ints("input shape", in_shape, len(in_shape), 1)
        out_shape = check_ints("output shape", out_shape, len(out_shape), 1)
        self.c.in_size = check_element_count("input shape", in_shape)
        self.c.out_size = check_element_count("output shape", out_shape)
        self.in_shape, self.out_shape = in_shape, out_shape
        self.c.in_channels, self.c.out_channels = (*in_shape, 1)[0], (*out_shape, 1)[0]
        self.c.in_rows, self.c.out_rows = [shape[1] if len(shape) == 3 else 1 for shape in (in_shape, out_shape)]
        self.c.work = self.c.in_size + self.c.out_size
        self.c.real_bytes = 4 if dtype == "float32" else 8
        return 0

    cdef int check(self, str name, int real_bytes) except -1:
        """Raises ValueError if no plan could run the op, with any other ops."""
        cdef const op *o = &self.c
        if o.size != sizeof(op):
            raise ValueError(f"{name}: compiled against another minidl (its op has {o.size} bytes, "
                             f"this one's {sizeof(op)}); build it again")
        if o.real_bytes != real_bytes:                        # never self.dtype, which a class of Python may override
            raise ValueError(f"{name}: expected {dtype_of(real_bytes)}, got {dtype_of(o.real_bytes)}")
        if min(o.n_param, o.n_state, o.memory.saved, o.memory.scratch, o.memory.packed, o.memory.packed_dx,
               o.memory.packed_kept) < 0:
            raise ValueError(f"{name}: n_param, n_state and bytes of memory: expected at least 0")
        check_memory(name, o)
        check_reduce(name, o)
        check_parameters(name, o)
        if o.loss.n_target < 0 or o.loss.n_target > MAX_ELEMENTS or o.loss.n_target and not o.loss.is_loss:
            raise ValueError(f"{name}: loss.n_target: expected 0 to {MAX_ELEMENTS} elements, for a loss, got {o.loss.n_target}")
        if not 0 <= o.loss.n_labels <= o.loss.n_target or o.loss.n_labels and o.loss.classes < 1:
            raise ValueError(f"{name}: loss.n_labels: expected 0 to {o.loss.n_target} labels (n_target) of at least 1 class, "
                             f"got {o.loss.n_labels} of {o.loss.classes}")
        return 0

    @property
    def dtype(self):
        """'float32' or 'float64'."""
        return dtype_of(self.c.real_bytes)

    @property
    def has_backward(self):
        """Whether it has a gradient; else only plans that predict take it."""
        return not self.c.no_backward

    @property
    def back(self):
        """How many values before the last one its input was written; 0: its input is the value of the op before it."""
        return max(BEFORE(0) - self.c.plan.input, 0)

    @property
    def draws(self):
        """Whether it draws random numbers in training."""
        return self.c.draws != 0

    @property
    def couples_examples(self):
        """Whether an example's output in training depends on the other examples of the batch."""
        return self.c.reduce.forward != NULL

    @property
    def has_per_example_grad(self):
        """Whether a batch gives the gradient of each example: as lanes of its sums, or from the op's own functions."""
        return self.c.n_param == 0 or has_per_example_grad(&self.c)

    @property
    def n_target(self):
        """Of a loss, the number of elements of one example's target; 0: it is a label."""
        return self.c.loss.n_target

    @property
    def n_labels(self):
        """Of a loss with n_target, the number of labels that it takes instead; 0: it takes none."""
        return self.c.loss.n_labels

    @property
    def n_param(self):
        """The number of elements of all parameters, which the op reads in the order in which the layer made them."""
        return self.c.n_param

    @property
    def n_state(self):
        """The number of elements of running statistics, which follow the parameters, in the order of the layer's buffers."""
        return self.c.n_state


cdef int check_memory(str name, const op *o) except -1:
    """Checks the aliases of y and dx."""
    cdef Py_ssize_t skip = o.branch.skip_size or o.in_size, dskip = o.branch.dskip_size or o.in_size
    cdef bint y_is_x = o.memory.y_alias == ALIAS_X or o.memory.y_alias == ALIAS_NONE and o.forward_tile == NULL
    cdef bint dx_is_dy = o.memory.dx_alias == ALIAS_X or o.memory.dx_alias == ALIAS_NONE and o.backward_tile == NULL
    if (y_is_x or dx_is_dy and not o.no_backward or o.memory.in_place) and o.in_size != o.out_size:
        raise ValueError(f"{name}: its output cannot have the memory of its input, {o.in_size} elements are not {o.out_size}")
    if (o.memory.y_alias == ALIAS_SKIP and (o.branch.skip < 0 or skip != o.out_size)
            or o.memory.dx_alias == ALIAS_SKIP and (o.branch.dskip < 0 or dskip != o.in_size)):
        raise ValueError(f"{name}: expected skip as large as y, and dskip as large as dx, where they are the same")
    return 0


cdef int check_reduce(str name, const op *o) except -1:
    """Checks that the functions of a reduction belong together, and its sizes."""
    if o.reduce.forward != NULL and (o.forward_tile == NULL or not o.reduce.barrier & BARRIER_FORWARD):
        raise ValueError(f"{name}: reduce.forward: expected a forward_tile and BARRIER_FORWARD with it")
    if o.reduce.backward != NULL and o.backward_tile == NULL:
        raise ValueError(f"{name}: reduce.backward: expected a backward_tile with it")
    if (o.per_example.gradient == NULL) != (o.per_example.squares == NULL) or (
            o.per_example.gradient != NULL and o.reduce.backward == NULL):
        raise ValueError(f"{name}: per_example: expected gradient and squares together, with reduce.backward")
    if (o.reduce.partial == NULL) != (o.reduce.combine == NULL) or o.reduce.partial != NULL and (
            o.reduce.forward == NULL or o.reduce.n_sums or o.reduce.partial_bytes not in range(8, 65, 8)):
        raise ValueError(f"{name}: reduce.partial and combine: expected both, with reduce.forward, without n_sums, and with "
                         f"partial_bytes of 8, 16 ... 64, got {o.reduce.partial_bytes}")
    if min(o.reduce.n_sums, o.reduce.n_items) < 0 or o.reduce.n_items and o.n_param % o.reduce.n_items:
        raise ValueError(f"{name}: reduce.n_items: expected a divisor of {o.n_param} parameters (n_param), got {o.reduce.n_items}")
    if o.reduce.n_sums and (o.reduce.n_items == 0 or o.reduce.n_sums % o.reduce.n_items):
        raise ValueError(f"{name}: reduce.n_items: expected a divisor of {o.reduce.n_sums} sums (n_sums), got {o.reduce.n_items}")
    if o.reduce.update_state != NULL and o.n_state == 0:
        raise ValueError(f"{name}: reduce.update_state: expected n_state above 0 with it")
    return 0


cdef int check_parameters(str name, const op *o) except -1:
    """Checks that the gradients of an op's parameters are computed."""
    if o.n_param and o.reduce.backward == NULL and (o.reduce.n_sums == 0 or o.reduce.forward != NULL):
        raise ValueError(f"{name}: op has {o.n_param} parameters, but neither sums on its way backward (reduce.n_sums) nor "
                         f"reduce.backward: set n_sums = n_items = {o.n_param}, and add each lane's share to t.sums; what has "
                         "no gradient belongs to n_state")
    if o.n_param and (o.backward_tile == NULL or o.reduce.n_items == 0):
        missing = "reduce.n_items" if o.backward_tile != NULL else "backward_tile"
        raise ValueError(f"{name}: op has {o.n_param} parameters, but no {missing}: nothing would write their gradient")
    if o.n_param and o.reduce.n_sums not in (0, o.n_param) and o.reduce.forward == NULL:
        raise ValueError(f"{name}: reduce.n_sums: expected 0, or a sum for each of {o.n_param} parameters, got {o.reduce.n_sums}")
    return 0
