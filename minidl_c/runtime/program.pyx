"""Program: the checked ops of a plan in order, with the indices of their values and the offsets of their parameters and sums."""
from operator import index
from libc.stdlib cimport calloc, free

from minidl_c.op cimport ALIAS_SKIP, BEFORE, LANES, Op, blocks_of, dtype_of, op, target_bytes
from minidl_c.runtime.blocked_form cimport adds_sums, can_train, is_converted, is_repacked, keeps_layout
from minidl_c.runtime.costs cimport measure_blocked, measure_parts

cdef extern from "minidl_c/runtime/optimize.h" nogil:
    void optimize(op *, int, value *)
    void optimize_blocked(const op *, int, value *, int training)

cdef object MAX_OFFSET = 2**62         # elements; sums of such do not overflow


cdef inline Py_ssize_t flat_elements(const op *o) noexcept:
    """The number of elements of an op in the flat buffer: parameters, then state."""
    return o.n_param + o.n_state


cdef inline int from_start(int index, int last) noexcept:
    """Returns the index of a value, if it counts from the value `last` (BEFORE in op.h) or not; -2 if there is no such value."""
    cdef int value = index if index >= -1 else last - (BEFORE(0) - index)
    return value if value >= 0 or index == -1 else -2


cdef inline bint is_shapeless(const op *o) noexcept:
    """Whether an op computes each element alone, from nothing else."""
    return (o.blocked.elements != NULL and o.blocked.forward == NULL and o.blocked.backward == NULL and o.reduce.n_items == 0
            and o.branch.skip < 0 and o.branch.dskip < 0)


cdef class Program:
    """The ops of a model in order, and the offsets of their parameters in the flat buffer.

    ops: Op objects of one dtype. offsets: the offset of the first parameter of each op. has_loss: whether the last op is a loss.
    frozen: for each op, whether its parameters are left alone; empty: of none.
    Raises TypeError or ValueError if the ops do not fit together or one was compiled against another minidl.
    """

    def __cinit__(self, ops, offsets, has_loss=False, frozen=()):
        cdef int k
        ops, offsets = tuple(ops), tuple([index(offset) for offset in offsets])
        if not ops or len(ops) != len(offsets):
            raise ValueError(f"ops: expected at least one, and an offset for each, got {len(ops)} and {len(offsets)} offsets")
        for source, offset in zip(ops, offsets):
            if not isinstance(source, Op):
                raise TypeError(f"ops: expected Op objects, got {source!r}")
            if not 0 <= offset <= MAX_OFFSET:
                raise ValueError(f"offsets: expected offsets in the flat buffer, got {offset}")
        self.sources, self.n_ops, self.has_loss = ops, len(ops), has_loss
        self.costs.trains = self.has_loss
        self.dtype = dtype_of((<Op> ops[0]).c.real_bytes)
        self.ops = <op *> calloc(self.n_ops, sizeof(op))
        self.values = <value *> calloc(self.n_ops + 1, sizeof(value))
        if self.ops == NULL or self.values == NULL:
            raise MemoryError()
        for k in range(self.n_ops):
            self.add(k, ops[k], offsets[k])
        self.check_offsets()
        self.place_sums()
        self.set_training(tuple(frozen))
        self.check_branches()
        optimize(self.ops, self.n_ops, self.values)
        self.flatten_input()
        measure_parts(&self.costs, self.ops, self.n_ops)
        self.find_blocked_values()

    def __dealloc__(self):
        free(self.ops)
        free(self.values)
        free(self.blocked_values)

    @property
    def blocked_limit(self):
        """The number of examples up to which a call runs in the blocked layout: see the table in schedule.pyx.

        Setting it overrides the cost model: the blocked layout then counts as free, so that on several threads every batch of 1 to
        16 examples uses it. 0 turns the layout off. Results have the same bits.
        Raises ValueError for numbers outside 0..16, and any but 0 if the ops do not fit that layout.
        """
        return self.costs.limit

    @blocked_limit.setter
    def blocked_limit(self, value):
        largest = LANES if self.blocked_values != NULL else 0
        if not 0 <= index(value) <= largest:
            raise ValueError(f"blocked_limit: expected a number from 0 to {largest}, got {value}")
        self.costs.limit, self.costs.example, self.costs.rest = value, 0, 0

    cdef int add(self, int k, Op source, Py_ssize_t offset) except -1:
        """Adds op k; raises TypeError or ValueError unless it fits the ops before it."""
        cdef op *o = &self.ops[k]
        cdef int i
        name = f"op {k}, {type(source).__name__}"
        source.check(name, (<Op> self.sources[0]).c.real_bytes)
        if source.c.loss.is_loss != (self.has_loss and k == self.n_ops - 1):
            raise ValueError(f"{name}: expected a loss as the last op of a training plan, and nowhere else")
        o[0] = source.c
        if o.no_backward and self.has_loss:
            raise ValueError(f"{name}: expected a plan that predicts: the op has no gradient")
        o.plan.input = k if o.plan.input == -1 else from_start(o.plan.input, k)
        o.branch.skip = from_start(o.branch.skip, k)
        if o.plan.input < 0 or o.branch.skip < -1:
            raise ValueError(f"{name}: expected inputs among the {k + 1} values before it")
        o.plan.output, o.plan.param = k + 1, offset
        if k == 0:
            self.values[0].size, self.values[0].channels = o.in_size, o.in_channels
        if o.plan.input > k or o.branch.skip > k or self.values[o.plan.input].size != o.in_size:
            raise ValueError(f"{name}: expects {o.in_size} elements per example, but its input has "
                             f"{self.values[o.plan.input].size}")
        self.values[k + 1].size, self.values[k + 1].channels = o.out_size, o.out_channels
        if o.loss.is_loss and o.loss.n_target == 0:
            o.loss.n_labels, o.loss.classes = 1, o.in_size
        o.memory.scratch = (o.memory.scratch + 63) // 64 * 64 + target_bytes(o)     # a tile of a loss's targets comes last
        for i in (k, k + 1):
            self.values[i].bytes = self.values[i].size * LANES * o.real_bytes
        if flat_elements(o):
            self.costs.n_flat = max(self.costs.n_flat, offset + flat_elements(o))
        self.costs.work += o.work
        self.costs.barriers += o.reduce.barrier != 0
        return 0

    cdef int check_offsets(self) except -1:
        """Raises ValueError if the parameters or the state of two ops overlap in the flat buffer."""
        cdef int k
        ranges = sorted([(self.ops[k].plan.param, self.ops[k].plan.param + flat_elements(&self.ops[k]), k)
                         for k in range(self.n_ops) if flat_elements(&self.ops[k])])
        for (_, end, first), (start, stop, second) in zip(ranges, ranges[1:]):
            if start < end:
                raise ValueError(f"op {second}, {type(self.sources[second]).__name__}: its parameters, {start} to {stop - 1}, "
                                 f"overlap those of op {first}")
        return 0

    cdef void place_sums(self) noexcept:
        """Sets the offsets of all sums. Sums that are added up lane by lane come first, since only they need an array of lanes.

        Sums that do not exist in the blocked layout come last.
        """
        cdef Py_ssize_t offset = 0
        cdef int k, group
        for group in range(3):
            for k in range(self.n_ops):
                if group == (0 if not self.ops[k].reduce.sums_lanes else 1 if adds_sums(&self.ops[k]) else 2):
                    self.ops[k].plan.sums = offset
                    offset += self.ops[k].reduce.n_sums

    cdef int check_branches(self) except -1:
        """Raises ValueError for a skip, dskip or factor of another size than the op says, or a gradient that does not exist yet."""
        cdef const op *o
        cdef int k
        for k in range(self.n_ops):
            o = &self.ops[k]
            name = f"op {k}, {type(self.sources[k]).__name__}"
            if o.branch.dskip > self.n_ops or 0 <= o.branch.dskip <= k:
                raise ValueError(f"{name}: dskip: expected a value from {k + 1} to {self.n_ops}, got {o.branch.dskip}")
            if o.branch.factor > self.n_ops:
                raise ValueError(f"{name}: factor: expected a value up to {self.n_ops}, got {o.branch.factor}")
            for what, v, size in (("skip", o.branch.skip, o.branch.skip_size), ("dskip", o.branch.dskip, o.branch.dskip_size),
                                  ("factor", o.branch.factor, o.branch.factor_size)):
                if v >= 0 and self.values[v].size != (size or o.in_size):
                    raise ValueError(f"{name}: {what}: expected {size or o.in_size} elements per example, value {v} has "
                                     f"{self.values[v].size}")
        return 0

    cdef void flatten_input(self) noexcept:
        """Gives the input the shape of the first Flatten (or Reshape) if nothing before it depends on the shape.

        In the blocked layout an image of one channel would fill one lane of 16. The input is flat if nothing at all depends on its
        shape, or only an op that takes a flat one: to gather it is then to copy it.
        """
        cdef int k = 0, j
        cdef Py_ssize_t channels = self.values[0].size, rows = 1
        cdef bint repacked, flat
        cdef op *o
        while k < self.n_ops and is_shapeless(&self.ops[k]) and self.ops[k].plan.input == k:
            k += 1
        repacked = k < self.n_ops and is_repacked(&self.ops[k])
        flat = k == self.n_ops or self.ops[k].blocked.takes_flat
        if k < self.n_ops and self.ops[k].plan.input != k or not (repacked or flat):
            return
        if repacked:
            channels, rows = self.values[k + 1].channels, self.ops[k].out_rows
        for j in range(min(k + 1, self.n_ops)):
            o = &self.ops[j]
            o.in_channels, o.in_rows, self.values[j].channels = channels, rows, channels
            if j < k or repacked:
                o.out_channels, o.out_rows = channels, rows
        if k == self.n_ops:
            self.values[k].channels = channels

    cdef int find_blocked_values(self) except -1:
        """Sets the values and the costs of the blocked layout if all ops fit it.

        An op does not fit if it takes another number of channels than its input or skip has. In a plan that trains, it also has to be
        one that can be trained in that layout.
        """
        cdef bint training = self.has_loss
        cdef const op *o = &self.ops[self.n_ops - 1]
        cdef value *v
        cdef int k
        if training and not (is_converted(o, True) and o.reduce.n_items == 0):
            return 0
        for k in range(self.n_ops - training):
            o = &self.ops[k]
            if training and not can_train(o) or self.values[o.plan.input].channels != o.in_channels or not keeps_layout(o, training):
                return 0
            if o.branch.skip >= 0 and (o.memory.y_alias == ALIAS_SKIP or o.blocked.elements != NULL) and (
                    self.values[o.branch.skip].channels != o.out_channels):
                return 0
        self.blocked_values = <value *> calloc(self.n_ops + 1, sizeof(value))
        if self.blocked_values == NULL:
            raise MemoryError()
        for k in range(self.n_ops + 1):
            v = &self.blocked_values[k]
            v[0] = self.values[k]
            if training and k == self.n_ops and v.size == self.values[self.ops[k - 1].plan.input].size:     # of a loss, in place
                v.channels = self.values[self.ops[k - 1].plan.input].channels
            v.bytes = blocks_of(v.channels) * LANES * (v.size // v.channels) * self.ops[0].real_bytes
        optimize_blocked(self.ops, self.n_ops, self.blocked_values, training)
        measure_blocked(&self.costs, self.ops, self.n_ops)
        return 0

    cdef int set_training(self, tuple frozen) except -1:
        """Sets which ops are trained. Raises ValueError."""
        cdef int k
        if frozen and len(frozen) != self.n_ops:
            raise ValueError(f"frozen: expected one for each of {self.n_ops} ops, got {len(frozen)}")
        for k in range(self.n_ops):
            self.ops[k].plan.frozen = bool(frozen[k]) if frozen else False
            self.has_state_updates |= self.ops[k].reduce.update_state != NULL and not self.ops[k].plan.frozen
        return 0

    cdef int check_flat_size(self, Py_ssize_t n) except -1:
        """Raises ValueError if a flat buffer of n elements does not hold the parameters of all ops."""
        if n < self.costs.n_flat:
            raise ValueError(f"param: expected at least {self.costs.n_flat} elements, got {n}")
        return 0

    cdef int check_gradients(self) except -1:
        """Raises ValueError if an op has no gradient."""
        cdef int k
        for k in range(self.n_ops):
            if self.ops[k].no_backward:
                raise ValueError(f"op {k}, {type(self.sources[k]).__name__}: has no gradient")
        return 0
