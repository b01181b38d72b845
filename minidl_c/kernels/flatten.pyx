"""Flatten: (c, h, w) as (c * h * w,). No operation on a tile: [c][h][w][16] is already in that order. (In the blocked layout, the
plan moves the elements.)"""
from math import prod

from minidl_c.op cimport Op, init_op


cdef class FlattenOp(Op):
    """Any shape as a vector, or as another shape of as many elements. The op has no functions: its output is its input."""

    def __cinit__(self, in_shape, dtype="float32", *, out_shape=None):
        init_op(self, tuple(in_shape), (prod(in_shape),) if out_shape is None else tuple(out_shape), dtype)
