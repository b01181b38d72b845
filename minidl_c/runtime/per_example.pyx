"""Per-example gradients: the gradients that a training step sums, written out before the sum.

After backward_tile of an op, lane i of its sums [n_param][16] is the gradient of the tile's example i: it is copied out, or its
sum of squares is. The weights of a dense layer have no sums. Their gradient for an example is x dy^T, whose norm does not need
the gradient itself:

    |x dy^T|^2 = |x|^2 |dy|^2          (Goodfellow: "Efficient per-example gradient computations", arXiv:1510.01799)
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from numpy import empty

from minidl_c.array_args cimport check_arrays
from minidl_c.op cimport LANES, aligned, dtype_of, has_per_example_grad, real
from minidl_c.op import check_ints
from minidl_c.runtime.schedule cimport find_slots

cdef extern from "minidl_c/simd/squares.h" nogil:
    void squares_of_lanes_by_bytes(int real_bytes, const void *, Py_ssize_t, double *)

cdef extern from "minidl_c/simd/reduction.h" nogil:
    void sum_examples_f32(const float *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, float *, Py_ssize_t)
    void sum_examples_f64(const double *, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, Py_ssize_t, Py_ssize_t, double *, Py_ssize_t)

cdef extern from "minidl_c/simd/lanes.h" nogil:
    unsigned flush_subnormals()
    void restore_subnormals(unsigned before)


# ---- one tile: no checks, no allocation, no GIL --------------------------------------------------------------------------

cdef char *cleared_lanes(const run_state *run, const op *o, int thread) noexcept nogil:
    """Returns the thread's array for the sums of an op over one tile, [n_sums][16], set to zero."""
    cdef char *lanes = run.per_example.lanes + thread * run.per_example.lanes_bytes
    memset(lanes, 0, o.reduce.n_sums * LANES * run.program.real_bytes)
    return lanes


cdef void write_gradient(const run_state *run, const example_output *out, const op *o, const tile *t) noexcept nogil:
    """Writes an op's gradient of each example of a tile: by per_example.gradient, or if it has none, from the lanes of its sums."""
    cdef Py_ssize_t width = o.n_param // o.reduce.n_items, row_bytes = out.size * o.real_bytes, lane
    cdef char *grads = out.grads + t.index * LANES * row_bytes
    if o.per_example.gradient == NULL:
        run.program.copies.unpack(<const char *> t.sums + out.start * LANES * o.real_bytes, out.size, t.examples, grads)
        return
    for lane in range(t.examples):
        o.per_example.gradient(o, t, lane, out.start // width, (out.start + out.size) // width, grads + lane * row_bytes)


cdef void write_squares(const example_output *out, const op *o, const tile *t) noexcept nogil:
    """Writes the sums of squares of an op's gradients of a tile's examples."""
    cdef Py_ssize_t width = o.n_param // o.reduce.n_items, lane
    cdef double squares[16]
    if o.per_example.squares != NULL:
        o.per_example.squares(o, t, out.start // width, (out.start + out.size) // width, squares)
    else:
        squares_of_lanes_by_bytes(o.real_bytes, <const char *> t.sums + out.start * LANES * o.real_bytes, out.size, squares)
    for lane in range(t.examples):
        out.squares[t.index * LANES + lane] = squares[lane]


cdef void write_example_grads(const run_state *run, const op *o, const tile *t) noexcept nogil:
    """Writes the requested gradients of an op, right after its backward of a tile."""
    cdef const example_output *out
    cdef int i
    for i in range(run.per_example.n_outputs):
        out = &run.per_example.outputs[i]
        if out.op != <int> (o - run.program.ops):
            continue
        if out.squares != NULL:
            write_squares(out, o, t)
        if out.grads != NULL:
            write_gradient(run, out, o, t)


# ---- a call --------------------------------------------------------------------------------------------------------------

cdef class PerExampleOutputs:
    """The requested parameters and the arrays of their gradients: (offset, size, grads, squares) for each parameter."""

    def __cinit__(self, requests):
        self.requests, self.arguments = tuple(requests), []
        self.outputs = <example_output *> calloc(len(self.requests) + 1, sizeof(example_output))
        if self.outputs == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.outputs)

    cdef int bind(self, const op *ops, int n_ops, run_state *run) except -1:
        """Checks the requests against the ops of a plan, and binds their arrays to a call. Raises TypeError or ValueError."""
        cdef str dtype = dtype_of(run.program.real_bytes)
        cdef example_output *out
        cdef Py_ssize_t max_sums = 0
        cdef int k
        for i, (offset, size, grads, squares) in enumerate(self.requests):
            out = &self.outputs[i]
            offset, size = check_ints("outputs: offset and size", (offset, size), 2, 0)
            find_op(out, ops, n_ops, offset, size)
            if grads is not None:
                out.grads = self.acquire(grads, dtype, run.batch.examples, out.size, "grads")
            if squares is not None:
                out.squares = <double *> self.acquire(squares, "float64", run.batch.examples, 1, "squares")
        for k in range(n_ops):
            max_sums = max(max_sums, ops[k].reduce.n_sums)
        run.per_example.lanes_bytes = (max_sums * LANES * run.program.real_bytes + 63) // 64 * 64
        lanes = empty(run.per_example.lanes_bytes * run.schedule.threads + 64, "uint8")
        run.per_example.lanes = aligned(self.acquire(lanes, "uint8", -1, 1, "lanes"))
        run.per_example.outputs, run.per_example.n_outputs = self.outputs, <int> len(self.requests)
        return 0

    cdef int check_no_overlap(self, ArrayArgs others) except -1:
        """Raises ValueError if an array shares memory with another one, or with one of the other arguments."""
        cdef ArrayArgs one, other
        for i, one in enumerate(self.arguments):
            one.check_no_overlap_with(others)
            for other in self.arguments[:i]:
                one.check_no_overlap_with(other)
        return 0

    cdef char *acquire(self, object array, str kind, Py_ssize_t rows, Py_ssize_t width, str name) except? NULL:
        cdef ArrayArgs one = ArrayArgs()                      # one for each array, since their number has no limit
        self.arguments.append(one)
        return one.acquire(array, kind, rows, width, True, name)


cdef int find_op(example_output *out, const op *ops, int n_ops, Py_ssize_t offset, Py_ssize_t size) except -1:
    """Finds the op that has this range of the flat buffer. Raises ValueError."""
    cdef const op *o
    cdef Py_ssize_t width
    for k in range(n_ops):
        o = &ops[k]
        if (o.plan.param <= offset and 0 < size <= o.plan.param + o.n_param - offset
                and has_per_example_grad(o) and not o.plan.frozen):
            out.op, out.start, out.size, width = k, offset - o.plan.param, size, o.n_param // o.reduce.n_items
            if o.per_example.gradient == NULL or out.start % width == size % width == 0:
                return 0
    raise ValueError(f"outputs: expected parameters of a trained op with per-example gradients, got {size} at offset {offset}")


def batch_sum(
    const real[:, ::1] x not None,             # IN  (n, size)
    real[::1] total not None,                  # OUT (size,)
):
    """Sums the rows of x, the examples of a batch, in the order in which training adds them up (see reduction.h).

    Raises ValueError for a `total` of another size, or one that shares memory with x.
    """
    cdef unsigned before
    cdef Py_ssize_t starts[17]
    cdef Py_ssize_t slots = find_slots((x.shape[0] + LANES - 1) // LANES, starts), row = x.shape[1]
    check_arrays({"x": x}, {"total": total})
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
