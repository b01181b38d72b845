"""Flatten: (c, h, w) as (c * h * w,). In a tile it is nothing at all, for [c][h][w][16] already lies in that order."""
from math import prod


from minidl_c.batch cimport backward_batch, forward_batch
from minidl_c.buffers cimport arrays
from minidl_c.op cimport Op, describe, real


cdef class FlattenOp(Op):
    """Any shape as a vector. It brings no functions: to the plan, its output is its input."""

    def __cinit__(self, in_shape, dtype="float32"):
        describe(self, tuple(in_shape), (prod(in_shape),), dtype)


def _op(x, name, y):
    op = FlattenOp(x.shape[1:], x.dtype.name)
    if y.shape != (x.shape[0], *op.out_shape):
        raise ValueError(f"flatten: {name}: expected shape {(x.shape[0], *op.out_shape)} for {x.shape}, got {y.shape}")
    return op


def flatten_forward(
    const real[:, :, :, ::1] x not None,       # IN  (n, c, h, w)
    real[:, ::1] y not None,                   # OUT (n, c * h * w)
    num_threads=1,
):
    """y = the rows of x as vectors. Raises ValueError for any other size of y."""
    x_, y_ = arrays({"x": x}, {"y": y})
    forward_batch(_op(x_, "y", y_), x_, y_, (), num_threads)


def flatten_backward(
    const real[:, ::1] dy not None,            # IN  (n, c * h * w)
    real[:, :, :, ::1] dx not None,            # OUT (n, c, h, w)
    num_threads=1,
):
    """dx = dy in the shape of the input. Raises ValueError for any other size of dy."""
    dy_, dx_ = arrays({"dy": dy}, {"dx": dx})
    backward_batch(_op(dx_, "dy", dy_), dy_, dx_, dx_, (), (), num_threads)
