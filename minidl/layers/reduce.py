"""Reduce: a sum, mean, maximum, minimum or norm over some axes of an example."""

from __future__ import annotations

from collections.abc import Sequence

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_axes, check_bool, check_choice
from minidl_c.kernels.reduce import ReduceOp

FUNCTIONS = ("mean", "sum", "max", "min", "l2")


class Reduce(Layer):
    """Mean, sum, maximum, minimum or Euclidean norm over some axes of an example.

    Maps any shape to the sizes of the other axes, as NumPy's functions with the arguments `axis` and `keepdims` do.

    Parameters
    ----------
    function : "mean", "sum", "max", "min" or "l2"
        What is computed. "l2" is the root of the sum of squares.
    axis : int or sequence of int
        The axes of an example, without the batch axis, over which it is; those below 0 count from the end.
    keepdims : bool, default False
        Whether these axes remain, with size 1. If no other axis is left, the output has shape (1,).

    Raises
    ------
    TypeError, ValueError
        In `build`, for another function, or unless `axis` is one or several axes, each once, and `keepdims` a bool.

    See Also
    --------
    GlobalAvgPool2D, GlobalMaxPool2D : Mean and maximum over the pixels of an image.

    Notes
    -----
    The gradient of a maximum or minimum goes to the first element that has it; that of a norm of 0 is 0.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Reduce
    >>> x = [[[1, 2, 3], [4, 5, 6]]]
    >>> Sequential([Reduce("sum", axis=0)], input_shape=(2, 3)).predict(x).tolist()
    [[5.0, 7.0, 9.0]]
    >>> Sequential([Reduce("max", axis=-1, keepdims=True)], input_shape=(2, 3)).predict(x).tolist()
    [[[3.0], [6.0]]]
    """

    def __init__(self, function: str, axis: int | Sequence[int], *, keepdims: bool = False) -> None:
        self.function = function
        self.axis = axis
        self.keepdims = keepdims

    def build(self, in_shape: Shape) -> Shape:
        function, axes = (
            check_choice("function", self.function, *FUNCTIONS),
            check_axes("axis", self.axis, len(in_shape)),
        )
        if check_bool("keepdims", self.keepdims):
            shape = tuple(1 if k in axes else size for k, size in enumerate(in_shape))
        else:
            shape = tuple(size for k, size in enumerate(in_shape) if k not in axes) or (1,)
        self.op = ReduceOp(in_shape, function, axes, shape, self.dtype)
        return shape
