"""Flatten: (c, h, w) as (c * h * w,). In a tile it is nothing at all, for [c][h][w][16] already lies in that order."""
from math import prod

from minidl_c.op cimport Op, init_op


cdef class FlattenOp(Op):
    """Any shape as a vector. It brings no functions: to the plan, its output is its input."""

    def __cinit__(self, in_shape, dtype="float32"):
        init_op(self, tuple(in_shape), (prod(in_shape),), dtype)
