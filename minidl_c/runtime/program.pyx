"""Program: the ops of a plan in their order, checked, each with the places of its values, parameters and sums."""
from operator import index

from libc.stdlib cimport calloc, free

from minidl_c.op cimport LANES, Op, dtype_of, op
from minidl_c.runtime.arena cimport value

cdef extern from "minidl_c/runtime/optimize.h" nogil:
    void arrange(op *, int, value *)

cdef object MOST = 2**62


cdef inline Py_ssize_t numbers_of(const op *o) noexcept:
    """Parameters and state."""
    return o.n_param + o.n_state


cdef class Program:
    """The ops of a model in their order, with the places of their parameters in the flat buffer.

    ops: Op objects of one dtype; offsets: for each the place of its first parameter; has_loss: the last op is a loss;
    frozen: for each whether its parameters are left alone; rates: for each a factor of the learning rate;
    late: for each how many steps of the optimizer went by while it was frozen.
    Raises TypeError or ValueError if they do not fit together or an op was compiled against another minidl.
    """

    def __cinit__(self, ops, offsets, has_loss=False, frozen=(), rates=(), late=()):
        cdef int k
        ops, offsets = tuple(ops), tuple([index(offset) for offset in offsets])
        if not ops or len(ops) != len(offsets):
            raise ValueError(f"ops: expected at least one, and an offset for each, got {len(ops)} and {len(offsets)} offsets")
        for source, offset in zip(ops, offsets):
            if not isinstance(source, Op):
                raise TypeError(f"ops: expected Op objects, got {source!r}")
            if not 0 <= offset <= MOST:
                raise ValueError(f"offsets: expected places in the flat buffer, got {offset}")
        self.sources, self.n_ops, self.has_loss = ops, len(ops), has_loss
        self.dtype = dtype_of((<Op> ops[0]).c.real_bytes)
        self.ops = <op *> calloc(self.n_ops, sizeof(op))
        self.values = <value *> calloc(self.n_ops + 1, sizeof(value))
        if self.ops == NULL or self.values == NULL:
            raise MemoryError()
        for k in range(self.n_ops):
            self.add(k, ops[k], offsets[k])
        self.check_places()
        self.place_sums()
        self.set_training(tuple(frozen), tuple(rates), tuple(late))
        self.check_readers()
        arrange(self.ops, self.n_ops, self.values)

    def __dealloc__(self):
        free(self.ops)
        free(self.values)

    cdef int add(self, int k, Op source, Py_ssize_t offset) except -1:
        """Takes op k, if it fits behind those in front."""
        cdef op *o = &self.ops[k]
        cdef int i
        name = f"op {k}, {type(source).__name__}"
        source.check(name, (<Op> self.sources[0]).c.real_bytes)
        if source.c.loss.is_loss != (self.has_loss and k == self.n_ops - 1):
            raise ValueError(f"{name}: expected a loss as the last op of a training plan, and nowhere else")
        o[0] = source.c
        o.plan.input = k if o.plan.input < 0 else o.plan.input
        o.plan.output, o.plan.param = k + 1, offset
        if k == 0:
            self.values[0].size = o.in_size
        if o.plan.input > k or o.branch.skip > k or self.values[o.plan.input].size != o.in_size:
            raise ValueError(f"{name}: takes {o.in_size} numbers an example, the value in front has "
                             f"{self.values[o.plan.input].size}")
        self.values[k + 1].size = o.out_size
        if o.loss.n_target:                  # a tile's targets are gathered behind the scratch that the op asked for
            o.memory.scratch = (o.memory.scratch + 63) // 64 * 64 + o.loss.n_target * LANES * o.real_bytes
        for i in (k, k + 1):
            self.values[i].bytes = self.values[i].size * LANES * o.real_bytes
        self.n_param = max(self.n_param, offset + numbers_of(o)) if numbers_of(o) else self.n_param
        self.work += o.work
        self.cuts |= o.reduce.barrier
        return 0

    cdef int check_places(self) except -1:
        """Raises ValueError if the parameters or the state of two ops overlap in the flat buffer."""
        cdef int k
        places = sorted([(self.ops[k].plan.param, self.ops[k].plan.param + numbers_of(&self.ops[k]), k)
                         for k in range(self.n_ops) if numbers_of(&self.ops[k])])
        for (_, end, first), (start, stop, second) in zip(places, places[1:]):
            if start < end:
                raise ValueError(f"op {second}, {type(self.sources[second]).__name__}: its parameters, {start} to {stop - 1}, "
                                 f"overlap those of op {first}")
        return 0

    cdef void place_sums(self) noexcept:
        """Those that are summed lane by lane come first: only they need room for lanes."""
        cdef Py_ssize_t lane = 0
        cdef int k, sums_lanes
        for sums_lanes in range(2):
            for k in range(self.n_ops):
                if self.ops[k].reduce.sums_lanes == sums_lanes:
                    self.ops[k].plan.sums = lane
                    lane += self.ops[k].reduce.n_sums

    cdef int check_readers(self) except -1:
        """Finds ops that read a second value of another size than they say, or a gradient that is not there yet."""
        cdef int k
        cdef const op *o
        for k in range(self.n_ops):
            o = &self.ops[k]
            name = f"op {k}, {type(self.sources[k]).__name__}"
            if o.branch.dskip > self.n_ops or 0 <= o.branch.dskip <= k:
                raise ValueError(f"{name}: dskip: expected a value from {k + 1} to {self.n_ops}, got {o.branch.dskip}")
            for what, number, size in (("skip", o.branch.skip, o.branch.skip_size), ("dskip", o.branch.dskip, o.branch.dskip_size)):
                size = size or o.in_size
                if number >= 0 and self.values[number].size != size:
                    raise ValueError(f"{name}: {what}: expected {size} numbers an example, value {number} has "
                                     f"{self.values[number].size}")
        return 0

    cdef int set_training(self, tuple frozen, tuple rates, tuple late) except -1:
        """What is trained, and how fast."""
        cdef int k
        for name, values in (("frozen", frozen), ("rates", rates), ("late", late)):
            if values and len(values) != self.n_ops:
                raise ValueError(f"{name}: expected one for each of {self.n_ops} ops, got {len(values)}")
        for k in range(self.n_ops):
            self.ops[k].plan.frozen = bool(frozen[k]) if frozen else False
            self.ops[k].plan.lr_scale = rates[k] if rates else 1.0
            self.ops[k].plan.skipped_steps = late[k] if late else 0
            if not 0 <= self.ops[k].plan.lr_scale < 1e300:
                raise ValueError(f"rates: expected finite numbers of at least 0, got {rates[k]!r}")
            if self.ops[k].plan.skipped_steps < 0:
                raise ValueError(f"late: expected steps, at least 0, got {late[k]!r}")
            if self.ops[k].n_param and not self.ops[k].plan.frozen:
                self.late = max(self.late, self.ops[k].plan.skipped_steps)
            self.ends |= self.ops[k].reduce.update_state != NULL and not self.ops[k].plan.frozen
        return 0

    cdef int check_size(self, Py_ssize_t n) except -1:
        """Raises ValueError if a flat buffer of n numbers does not hold the parameters of all ops."""
        if n < self.n_param:
            raise ValueError(f"param: expected at least {self.n_param} numbers, got {n}")
        return 0
