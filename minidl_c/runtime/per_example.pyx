"""The gradients of single examples, which a training step sums.

After backward_tile of an op, lane i of its sums [n_param][16] is the gradient of the tile's example i: it is copied out, or its
square is. A dense layer's weights have no sums. The gradient of an example is x dy^T there, and its norm needs no gradient:

    |x dy^T|^2 = |x|^2 |dy|^2          (Goodfellow: "Efficient per-example gradient computations", arXiv:1510.01799)
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from numpy import empty

from minidl_c.array_args cimport arrays
from minidl_c.op cimport LANES, aligned, dtype_of, has_per_example_grad, real
from minidl_c.op import whole_numbers
from minidl_c.runtime.gather cimport unpack_tile

cdef extern from "minidl_c/simd/squares.h" nogil:
    void squares_of_lanes_f32(const float *, Py_ssize_t, double *)
    void squares_of_lanes_f64(const double *, Py_ssize_t, double *)

cdef extern from "minidl_c/simd/reduction.h" nogil:
    Py_ssize_t find_slots(Py_ssize_t tiles, Py_ssize_t *starts)
    void sum_examples_f32(const float *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, float *, Py_ssize_t)
    void sum_examples_f64(const double *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, double *, Py_ssize_t)

cdef extern from "minidl_c/simd/lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef char *fresh_lanes(const run_state *run, const op *o, int thread) noexcept nogil:
    """A thread's room for the sums of an op on one tile, example by example."""
    cdef char *lanes = run.per_example.lanes + thread * run.per_example.lanes_bytes
    memset(lanes, 0, o.reduce.n_sums * LANES * run.program.real_bytes)
    return lanes


cdef void take_gradient(
    const example_output *out, const op *o, const tile *t,
    const real *lanes,                  # IN  [n_param][16], but of ops that say it themselves
    real *grads,                        # OUT [examples][size]
) noexcept nogil:
    cdef Py_ssize_t width = o.n_param // o.reduce.n_items, lane
    if o.per_example.gradient == NULL:
        unpack_tile(lanes + out.start * LANES, out.size, t.examples, grads)
        return
    for lane in range(t.examples):
        o.per_example.gradient(o, t, lane, out.start // width, (out.start + out.size) // width, grads + lane * out.size)


cdef void take_squares(const example_output *out, const op *o, const tile *t, const real *lanes, double *found) noexcept nogil:
    cdef Py_ssize_t width = o.n_param // o.reduce.n_items, lane
    cdef double squares[16]
    if o.per_example.squares != NULL:
        o.per_example.squares(o, t, out.start // width, (out.start + out.size) // width, squares)
    elif real is float:
        squares_of_lanes_f32(lanes + out.start * LANES, out.size, squares)
    else:
        squares_of_lanes_f64(lanes + out.start * LANES, out.size, squares)
    for lane in range(t.examples):
        found[lane] = squares[lane]


cdef void take_examples(const run_state *run, const op *o, const tile *t) noexcept nogil:
    """Takes what is wanted of an op's gradients, right behind its backward of a tile."""
    cdef Py_ssize_t first = t.index * LANES
    cdef const example_output *out
    cdef int i
    for i in range(run.per_example.n_outputs):
        out = &run.per_example.outputs[i]
        if out.op != <int> (o - run.program.ops):
            continue
        if out.squares != NULL and run.program.real_bytes == 4:
            take_squares(out, o, t, <const float *> t.sums, out.squares + first)
        elif out.squares != NULL:
            take_squares(out, o, t, <const double *> t.sums, out.squares + first)
        if out.grads != NULL and run.program.real_bytes == 4:
            take_gradient(out, o, t, <const float *> t.sums, <float *> out.grads + first * out.size)
        elif out.grads != NULL:
            take_gradient(out, o, t, <const double *> t.sums, <double *> out.grads + first * out.size)


# ---- a call --------------------------------------------------------------------------------------------------------------

cdef class PerExampleOutputs:
    """Which parameters' gradients are wanted, and where they go: (place, size, grads, squares) for each of them."""

    def __cinit__(self, wanted):
        self.wanted, self.taken = tuple(wanted), []
        self.outputs = <example_output *> calloc(len(self.wanted) + 1, sizeof(example_output))
        if self.outputs == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.outputs)

    cdef int bind(self, const op *ops, int n_ops, run_state *run) except -1:
        """Checks all of it against the ops of a plan, and gives it to a job. Raises TypeError or ValueError."""
        cdef str dtype = dtype_of(run.program.real_bytes)
        cdef example_output *out
        cdef Py_ssize_t most = 0
        cdef int k
        for i, (place, size, grads, squares) in enumerate(self.wanted):
            out = &self.outputs[i]
            place, size = whole_numbers("outputs: place and size", (place, size), 2, 0)
            find(out, ops, n_ops, place, size)
            if grads is not None:
                out.grads = self.take(grads, dtype, run.batch.examples, out.size, "grads")
            if squares is not None:
                out.squares = <double *> self.take(squares, "float64", run.batch.examples, 1, "squares")
        for k in range(n_ops):
            most = max(most, ops[k].reduce.n_sums)
        run.per_example.lanes_bytes = (most * LANES * run.program.real_bytes + 63) // 64 * 64
        run.per_example.lanes = aligned(self.take(empty(run.per_example.lanes_bytes * run.threads + 64, "uint8"), "uint8", -1, 1, "lanes"))
        run.per_example.outputs, run.per_example.n_outputs = self.outputs, <int> len(self.wanted)
        return 0

    cdef int check_no_overlap(self, ArrayArgs others) except -1:
        """Raises ValueError if an array shares memory with another one, or with one of the other arguments."""
        cdef ArrayArgs one, other
        for i, one in enumerate(self.taken):
            one.apart_from(others)
            for other in self.taken[:i]:
                one.apart_from(other)
        return 0

    cdef char *take(self, object array, str kind, Py_ssize_t rows, Py_ssize_t width, str name) except? NULL:
        cdef ArrayArgs one = ArrayArgs()                      # of any number of arrays
        self.taken.append(one)
        return one.acquire(array, kind, rows, width, True, name)


cdef int find(example_output *out, const op *ops, int n_ops, Py_ssize_t place, Py_ssize_t size) except -1:
    """The op whose parameters these numbers of the flat buffer are, and where they begin in it."""
    cdef const op *o
    cdef Py_ssize_t width
    for k in range(n_ops):
        o = &ops[k]
        if o.plan.param <= place and 0 < size <= o.plan.param + o.n_param - place and has_per_example_grad(o) and not o.plan.frozen:
            out.op, out.start, out.size, width = k, place - o.plan.param, size, o.n_param // o.reduce.n_items
            if o.per_example.gradient == NULL or out.start % width == size % width == 0:
                return 0
    raise ValueError(f"outputs: expected parameters of a trained op with per-example gradients, got {size} from place {place} on")


def batch_sum(
    const real[:, ::1] x not None,             # IN  (n, size)
    real[::1] total not None,                  # OUT (size,)
):
    """total = the sum of the rows of x, examples of a batch, in the order in which training adds them up (see reduction.h).

    Raises ValueError for a total of another size, or one that shares memory with x.
    """
    cdef unsigned before
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t slots = find_slots((x.shape[0] + LANES - 1) // LANES, starts), row = x.shape[1]
    arrays({"x": x}, {"total": total})
    if total.shape[0] != x.shape[1]:
        raise ValueError(f"batch_sum: total: expected shape {(x.shape[1],)}, got {(total.shape[0],)}")
    if x.shape[1] == 0:
        return
    if x.shape[0] == 0:
        total[:] = 0
        return
    with nogil:
        before = flush_subnormals()
        if real is float:
            sum_examples_f32(&x[0, 0], x.shape[0], starts, slots, row, LANES * row, &total[0], row)
        else:
            sum_examples_f64(&x[0, 0], x.shape[0], starts, slots, row, LANES * row, &total[0], row)
        restore_subnormals(before)
