"""One op over a batch of NCHW arrays: what every Python-callable kernel does, and how any op can be called by itself.

A plan of a single op, so the result has the bits of the same op inside a model.
"""
from numpy import concatenate, empty

from minidl_c.array_args cimport ArrayArgs
from minidl_c.op cimport Op, dtype_of
from minidl_c.op import whole_numbers
from minidl_c.runtime.execution_context cimport ExecutionContext
from minidl_c.runtime.executor cimport execute
from minidl_c.runtime.plan cimport Plan
from minidl_c.runtime.run_state cimport SCATTER_DX, run_state


cdef class Batch:
    """The arrays of a call, checked: each has the dtype of the op and a shape that is said beforehand."""

    cdef ArrayArgs arguments
    cdef Py_ssize_t n                   # examples, -1: not known yet
    cdef str dtype

    def __cinit__(self, Op op):
        self.arguments, self.n, self.dtype = ArrayArgs(), -1, dtype_of(op.c.real_bytes)

    cdef object rows(self, str name, object array, tuple shape, Py_ssize_t size, bint write):
        """An array (n, *shape) as (n, size)."""
        self.arguments.acquire(array, self.dtype, self.n, size, write, name)
        self.n = self.arguments.rows
        if array.shape[1:] != shape:
            raise ValueError(f"{name}: expected shape {(self.n, *shape)}, got {array.shape}")
        return array.reshape(self.n, size)

    cdef int flat(self, str name, object arrays, Py_ssize_t size, bint write) except -1:
        """Raises TypeError or ValueError unless arrays of any shapes have so many numbers together."""
        for i, array in enumerate(arrays):
            self.arguments.acquire(array, self.dtype, -1, -1, write, f"{name}[{i}]")
        numbers = sum([array.size for array in arrays])
        if numbers != size:
            raise ValueError(f"{name}: expected {size} numbers, got {numbers}")
        return 0


cdef object flattened(object params, str dtype):
    """The parameters as they lie in a model's flat buffer."""
    return concatenate([p.reshape(-1) for p in params]) if params else empty(0, dtype)


def forward_batch(
    Op op not None,
    x,                                  # IN  (n, *op.in_shape)
    y,                                  # OUT (n, *op.out_shape)
    params=(),                          # IN  arrays, in the order in which the layer made them
    num_threads=1, training=False, seed=0, step=0,
    numbers=None,                       # IN  (n,) int64: those of the examples in the data; None: 0 to n - 1
):
    """y = the op on every example of x, in parallel over the batch.

    Random numbers (in training) depend on seed, step and `numbers`. Raises TypeError or ValueError, naming the argument,
    for arrays of another dtype than the op's or of other shapes, and for an output that shares memory with another array.
    """
    cdef Batch b = Batch(op)
    params, (seed, step) = tuple(params), whole_numbers("seed, step", (seed, step), 2, 0)
    rows, out = b.rows("x", x, op.in_shape, op.c.in_size, False), b.rows("y", y, op.out_shape, op.c.out_size, True)
    b.flat("params", params, op.c.n_param, False)
    b.arguments.check_no_overlap()
    plan, param = Plan([op], [0]), flattened(params, b.dtype)
    if training:
        plan.forward(rows, param, out, num_threads, seed, step, numbers)
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
    numbers=None,                       # IN  (n,) int64
):
    """dx and grads = the gradients, for the gradient dy of what a training forward makes of x. Raises as `forward_batch`."""
    cdef Batch b = Batch(op)
    params, grads = tuple(params), tuple(grads)
    seed, step = whole_numbers("seed, step", (seed, step), 2, 0)
    rows, dout = b.rows("x", x, op.in_shape, op.c.in_size, False), b.rows("dy", dy, op.out_shape, op.c.out_size, False)
    din = None if dx is None else b.rows("dx", dx, op.in_shape, op.c.in_size, True)
    b.flat("params", params, op.c.n_param, False)
    b.flat("grads", grads, op.c.n_param, True)
    b.arguments.check_no_overlap()
    plan, param = Plan([op], [0]), flattened(params, b.dtype)
    grad = empty(param.size, b.dtype)
    kept = plan.forward(rows, param, empty((b.n, op.c.out_size), b.dtype), num_threads, seed, step, numbers)
    plan.backward(kept, dout, din, param, grad)
    start = 0
    for array in grads:
        array[...] = grad[start:start + array.size].reshape(array.shape)
        start += array.size


def loss_batch(
    Op op not None,
    scores,                             # IN  (n, *op.in_shape)
    targets,                            # IN  (n,) int64 labels; or numbers, n rows of those of the op's targets
    losses,                             # OUT (n,)
    dscores=None,                       # OUT (n, *op.in_shape): row i the gradient of weights[i] * losses[i]; None: unwanted
    weights=None,                       # IN  (n,); None: ones
    num_threads=1,
):
    """losses = the loss of every example, dscores its gradient. Raises as `forward_batch`, and for an op that is no loss."""
    cdef Batch b = Batch(op)
    cdef Plan plan = Plan([op], [0], has_loss=True)
    cdef ExecutionContext p = plan.acquire_context(True)
    cdef run_state *run = &p.run
    cdef bint back = dscores is not None
    rows, param = b.rows("scores", scores, op.in_shape, op.c.in_size, False), empty(0, b.dtype)
    out = b.rows("dscores", dscores, op.in_shape, op.c.in_size, True) if back else None
    plan.check_size(0)
    p.read(rows, None, param, b.dtype, False)
    p.read_targets(targets, b.n)
    run.batch.losses = p.arguments.acquire(losses, b.dtype, b.n, 1, True, "losses")
    if weights is not None:
        run.batch.weights = p.arguments.acquire(weights, b.dtype, b.n, 1, False, "weights")
    if back:
        run.batch.dx = p.arguments.acquire(out, b.dtype, b.n, op.c.in_size, True, "dscores")
    p.arguments.check_no_overlap()
    if b.n:
        p.begin(b.n, plan.threads(num_threads, b.n, 2, 1), False, back)
        p.want(back)
        p.add_forward(True)
        if back:
            p.add_backward()
            p.add_instr(SCATTER_DX, 0)
        p.stages()
        with nogil:
            execute(run, 1)
    plan.release_context(p)
