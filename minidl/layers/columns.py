"""Columns: a range of the columns of a table, or of the channels of an image."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_int
from minidl_c.kernels.columns import ColumnsOp


class Columns(Layer):
    """Passes on a range of the columns of a table, or of the channels of an image.

    Maps (n, ...) to (stop - start, ...), as `x[:, start:stop]`. As the first layer of each branch of a Parallel, it
    gives the branch its part of the input.

    Parameters
    ----------
    start : int
        First column; a negative number counts from the end, as in a slice.
    stop : int or None, default None
        Column after the last; a negative number counts from the end. None: to the end.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless they are a range of at least one column.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Columns, Dense, Embedding, Flatten, Parallel
    >>> print(Sequential([Columns(1, 3)], input_shape=(4,)).predict([[10, 11, 12, 13]]))
    [[11. 12.]]

    A table with a category in its first column, and eight numbers in the others:

    >>> mixed = Parallel([Columns(0, 1), Embedding(7, 3), Flatten()], [Columns(1, 9), Dense(16)])
    >>> Sequential([mixed], input_shape=(9,)).output_shape
    (19,)
    """

    def __init__(self, start: int, stop: int | None = None) -> None:
        self.start, self.stop = start, stop

    def build(self, in_shape: Shape) -> Shape:
        n = in_shape[0]
        start = check_int("start", self.start, minimum=-n, maximum=n - 1)
        stop = n if self.stop is None else check_int("stop", self.stop, minimum=-n, maximum=n)
        start, stop = start % n, stop + n if stop < 0 else stop
        if start >= stop:
            raise ValueError(f"start, stop: expected a range of at least one of {n} columns, got {start} to {stop}")
        self.op = ColumnsOp(in_shape, start, stop, self.dtype)
        return self.op.out_shape
