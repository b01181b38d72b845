"""Columns: a range of the columns of a table, of the channels of an image, or of another axis."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import MAX_INT64, Shape, check_int
from minidl_c.kernels.columns import ColumnsOp


class Columns(Layer):
    """Passes on a range of the columns of a table, or of the channels of an image; also of its rows.

    Maps (n, ...) to (len(range(start, stop, step)), ...), as `x[:, start:stop:step]`; another axis likewise. As the
    first layer of each branch of a Parallel, it gives the branch its part of the input.

    Parameters
    ----------
    start : int or None, default None
        First column; a negative number counts from the end, as in a slice. None: the first one, or the last one if
        `step` is negative.
    stop : int or None, default None
        Column after the last; a negative number counts from the end. None: to the end, or to the beginning.
    step : int, default 1
        From one column to the next: 2 for every other one, -1 for the reverse order.
    axis : int, default 0
        The axis, without the batch axis, as in `Permute`: 0 is that of columns or channels, 1 that of an image's rows.
        A negative number counts from the end.

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
    >>> print(Sequential([Columns(step=-1)], input_shape=(4,)).predict([[10, 11, 12, 13]]))
    [[13. 12. 11. 10.]]

    A table with a category in its first column, and eight numbers in the others:

    >>> mixed = Parallel([Columns(0, 1), Embedding(7, 3), Flatten()], [Columns(1, 9), Dense(16)])
    >>> Sequential([mixed], input_shape=(9,)).output_shape
    (19,)

    Every other row and column of an image:

    >>> Sequential([Columns(step=2, axis=1), Columns(step=2, axis=2)], input_shape=(3, 32, 32)).output_shape
    (3, 16, 16)
    """

    def __init__(self, start: int | None = None, stop: int | None = None, step: int = 1, axis: int = 0) -> None:
        self.start, self.stop, self.step, self.axis = start, stop, step, axis

    def build(self, in_shape: Shape) -> Shape:
        axis = check_int("axis", self.axis, minimum=-len(in_shape), maximum=len(in_shape) - 1) % len(in_shape)
        n, step = in_shape[axis], check_int("step", self.step, minimum=-MAX_INT64)
        start = None if self.start is None else check_int("start", self.start, minimum=-n, maximum=n - 1)
        stop = None if self.stop is None else check_int("stop", self.stop, minimum=-n, maximum=n)
        columns = range(*slice(start, stop, step).indices(n)) if step else range(0)
        if not columns:
            of = f"{n} columns, got {start} to {stop} in steps of {step}"
            raise ValueError(f"start, stop, step: expected a range of at least one of {of}")
        self.op = ColumnsOp(in_shape, columns.start, columns.stop, self.dtype, step=columns.step, axis=axis)
        return self.op.out_shape
