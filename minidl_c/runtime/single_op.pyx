"""One op over a batch of NCHW arrays: what every Python-callable kernel does, and how an op is called on its own.

It runs as a plan of a single op, so the result has the bits of the same op inside a model.
"""
from numpy import concatenate, empty

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport Op, dtype_of
from minidl_c.op import check_ints
from minidl_c.runtime.execution_context cimport ExecutionContext
from minidl_c.runtime.executor cimport execute_unlocked
from minidl_c.runtime.phases cimport add_stages
from minidl_c.runtime.plan cimport Plan
from minidl_c.runtime.run_state cimport SCATTER_DX, run_state
from minidl_c.runtime.schedule cimport in_tiles, schedule, threads_of


cdef class BatchArrays:
    """The arrays of a call: each is checked for the dtype of the op and an expected shape."""

    cdef ArrayArgs arguments
    cdef Py_ssize_t n                   # examples; -1: not known yet
    cdef str dtype

    def __cinit__(self, Op op):
        self.arguments, self.n, self.dtype = ArrayArgs(), -1, dtype_of(op.c.real_bytes)

    cdef object as_rows(self, str name, object array, tuple shape, Py_ssize_t size, bint write):
        """Returns an array (n, *shape) as (n, size)."""
        self.arguments.acquire(array, self.dtype, self.n, size, write, name)
        self.n = self.arguments.rows
        if array.shape[1:] != shape:
            raise ValueError(f"{name}: expected shape {(self.n, *shape)}, got {array.shape}")
        return array.reshape(self.n, size)

    cdef int check_params(self, str name, object arrays, Py_ssize_t size, bint write) except -1:
        """Raises TypeError or ValueError unless the arrays, of any shapes, have `size` elements together."""
        for i, array in enumerate(arrays):
            self.arguments.acquire(array, self.dtype, -1, -1, write, f"{name}[{i}]")
        found = sum([array.size for array in arrays])
        if found != size:
            raise ValueError(f"{name}: expected {size} numbers, got {found}")
        return 0


cdef tuple in_memory_order(Op op, tuple params):
    """Returns the arrays with their axes in the order of memory: a weight (k, c, r, s) as (c, r, s, k), if the op stores it so."""
    if op.weight_order is None or not params or params[0].ndim != len(op.weight_order):
        return params
    return (params[0].transpose(op.weight_order), *params[1:])


cdef object flatten(Op op, tuple params, str dtype):
    """Returns the parameters as they lie in a model's flat buffer."""
    return concatenate([p.reshape(-1) for p in in_memory_order(op, params)]) if params else empty(0, dtype)


def forward_batch(
    Op op not None,
    x,                                  # IN  (n, *op.in_shape)
    y,                                  # OUT (n, *op.out_shape)
    params=(),                          # IN  arrays, in the order in which the layer made them
    num_threads=1, training=False, seed=0, step=0,
    example_ids=None,                   # IN  (n,) int64: indices of the examples in the data; None: 0 to n - 1
):
    """Computes y, the outputs of an op for all examples of x, in parallel over the batch.

    Random numbers (in training) depend on seed, step and example_ids. Raises TypeError or ValueError, naming the argument, for
    arrays of another dtype than the op's or of other shapes, and for an output that shares memory with another array.
    """
    cdef BatchArrays b = BatchArrays(op)
    params, (seed, step) = tuple(params), check_ints("seed, step", (seed, step), 2, 0)
    rows, out = b.as_rows("x", x, op.in_shape, op.c.in_size, False), b.as_rows("y", y, op.out_shape, op.c.out_size, True)
    b.check_params("params", params, op.c.n_param, False)
    b.arguments.check_no_overlap()
    plan, param = Plan([op], [0]), flatten(op, params, b.dtype)
    if training:
        plan.forward(rows, param, out, num_threads, seed, step, example_ids)
    else:
        plan.predict(rows, None, param, out, num_threads)


def backward_batch(
    Op op not None,
    dy,                                 # IN  (n, *op.out_shape)
    x,                                  # IN  (n, *op.in_shape)
    dx,                                 # OUT (n, *op.in_shape), or None
    params=(),                          # IN  arrays, as for `forward_batch`
    grads=(),                           # OUT an array for each parameter: plain sums over the batch
    num_threads=1, seed=0, step=0,
    example_ids=None,                   # IN  (n,) int64
):
    """Computes dx and grads from the gradient dy of the outputs of a training forward of x. Raises as `forward_batch`."""
    cdef BatchArrays b = BatchArrays(op)
    params, grads = tuple(params), tuple(grads)
    seed, step = check_ints("seed, step", (seed, step), 2, 0)
    rows, dout = b.as_rows("x", x, op.in_shape, op.c.in_size, False), b.as_rows("dy", dy, op.out_shape, op.c.out_size, False)
    din = None if dx is None else b.as_rows("dx", dx, op.in_shape, op.c.in_size, True)
    b.check_params("params", params, op.c.n_param, False)
    b.check_params("grads", grads, op.c.n_param, True)
    b.arguments.check_no_overlap()
    plan, param = Plan([op], [0]), flatten(op, params, b.dtype)
    grad = empty(param.size, b.dtype)
    context = plan.forward(rows, param, empty((b.n, op.c.out_size), b.dtype), num_threads, seed, step, example_ids)
    plan.backward(context, dout, din, param, grad)
    start = 0
    for array in in_memory_order(op, grads):
        array[...] = grad[start:start + array.size].reshape(array.shape)
        start += array.size


def loss_batch(
    Op op not None,
    scores,                             # IN  (n, *op.in_shape)
    targets,                            # IN  (n,) int64 labels; or numbers, n rows of n_target elements
    losses,                             # OUT (n,)
    dscores=None,                       # OUT (n, *op.in_shape), or None: row i is the gradient of weights[i] * losses[i]
    weights=None,                       # IN  (n,); None: ones
    num_threads=1,
):
    """Computes the losses of all examples, and their gradients. Raises as `forward_batch`, and for an op that is no loss."""
    cdef BatchArrays b = BatchArrays(op)
    cdef Plan plan = Plan([op], [0], has_loss=True)
    cdef ExecutionContext p = plan.acquire_context(True)
    cdef run_state *run = &p.run
    cdef bint back = dscores is not None
    cdef schedule s
    rows, param = b.as_rows("scores", scores, op.in_shape, op.c.in_size, False), empty(0, b.dtype)
    out = b.as_rows("dscores", dscores, op.in_shape, op.c.in_size, True) if back else None
    plan.check_flat_size(0)
    p.bind_inputs(rows, None, param, b.dtype, False)
    p.bind_targets(targets, b.n)
    run.batch.losses = p.arguments.acquire(losses, b.dtype, b.n, 1, True, "losses")
    if weights is not None:
        run.batch.weights = p.arguments.acquire(weights, b.dtype, b.n, 1, False, "weights")
    if back:
        run.batch.dx = p.arguments.acquire(out, b.dtype, b.n, op.c.in_size, True, "dscores")
    p.arguments.check_no_overlap()
    if b.n:
        s = in_tiles(&plan.costs, b.n, threads_of(&plan.costs, num_threads, b.n, 2, 1), False, back, 0, 1)
        p.prepare(&s)
        p.find_wanted(back)
        p.add_forward(True)
        if back:
            p.add_backward()
            p.add_instr(SCATTER_DX, 0)
        add_stages(run)
        with nogil:
            execute_unlocked(run, 1)
    plan.release_context(p)
