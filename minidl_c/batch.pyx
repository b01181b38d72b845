"""One op over a batch of NCHW arrays: what every Python-callable kernel does, once it has checked its arguments.

A plan of a single op, so the result has the bits of the same op inside a model.
"""
from numpy import concatenate, empty

from minidl_c.op cimport Op, dtype_of
from minidl_c.plan cimport Plan


def _flat(params, dtype):
    """The parameters as they lie in a model's flat buffer."""
    return concatenate([p.reshape(-1) for p in params]) if params else empty(0, dtype)


def _check(name, array, batch, shape):
    if array.shape != (batch, *shape):
        raise ValueError(f"{name}: expected shape {(batch, *shape)}, got {array.shape}")


cdef int forward_batch(Op op, object x, object y, tuple params, object num_threads) except -1:
    """y (n, ...) OUT = the op on every example of x (n, ...)."""
    n = x.shape[0]
    param = _flat(params, dtype_of(op.c.real_bytes))
    Plan([op], [0]).predict(x.reshape(n, op.c.in_size), None, param, y.reshape(n, op.c.out_size), num_threads)
    return 0


cdef int backward_batch(Op op, object dy, object x, object dx, tuple params, tuple grads, object num_threads) except -1:
    """dx (n, ...) OUT or None, grads OUT (plain sums over the batch), from the gradient dy of the op's output."""
    n = x.shape[0]
    if dx is not None:
        _check("dx", dx, *x.shape[:1], x.shape[1:])
        dx = dx.reshape(n, op.c.in_size)
    plan, param = Plan([op], [0]), _flat(params, dtype_of(op.c.real_bytes))
    grad = empty(param.size, dtype_of(op.c.real_bytes))
    kept = plan.forward(x.reshape(n, op.c.in_size), param, empty((n, op.c.out_size), dtype_of(op.c.real_bytes)), num_threads)
    plan.backward(kept, dy.reshape(n, op.c.out_size), dx, param, grad)
    start = 0
    for array in grads:
        array[...] = grad[start:start + array.size].reshape(array.shape)
        start += array.size
    return 0
