"""OneHot: an output for each category of integer columns."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from minidl.layers.base import Layer
from minidl.utils.arrays import as_plain
from minidl.utils.text import shorten
from minidl.utils.validation import Shape, check_int
from minidl_c.kernels.one_hot import OneHotOp


class OneHot(Layer):
    """One-hot encoding of integer columns: an output for each category, 1 for that of the example and 0 for the others.

    Maps columns (columns,) to (outputs,): the categories of the first column, then those of the second, and so on. `x`
    holds whole numbers from 0 to categories - 1 in any dtype, such as columns of scikit-learn's OrdinalEncoder. Any
    other number, such as -1 for an unknown category, has 0 in all outputs of its column.

    Parameters
    ----------
    categories : int or array-like of int
        Number of categories of each column, or of all columns if they have the same. An array is kept as a list.

    Raises
    ------
    TypeError, ValueError
        In `build`, for numbers below 1, another number of columns, an input that is no vector, or more categories than
        the dtype has whole numbers in sequence (2**24 in float32). In the constructor, for an array that does not hold
        real numbers.

    See Also
    --------
    Embedding : A learned vector for each category, in place of an output for each of them.

    Notes
    -----
    NaN is no category either, and has 0 in all outputs. X may have it only if another layer takes missing values.

    The gradient with respect to `x` is zero.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import OneHot
    >>> print(Sequential([OneHot([2, 3])], input_shape=(2,)).predict([[1, 0], [0, 2], [1, -1]]))
    [[0. 1. 1. 0. 0.]
     [1. 0. 0. 0. 1.]
     [0. 1. 0. 0. 0.]]
    """

    takes_categories = True

    def __init__(self, categories: ArrayLike) -> None:
        self.categories = as_plain(categories, "categories")

    def build(self, in_shape: Shape) -> Shape:
        if len(in_shape) != 1:
            raise ValueError(f"expected (columns,), got {in_shape}: put a Flatten before it")
        given: Any = self.categories
        counts = list(given) if isinstance(given, (list, tuple)) else [given] * in_shape[0]
        counts = [check_int("categories", count) for count in counts]
        if len(counts) != in_shape[0]:
            raise ValueError(f"categories: expected one for each of {in_shape[0]} columns, got {len(counts)}")
        self.op = OneHotOp(in_shape, counts, self.dtype)
        return self.op.out_shape

    def __repr__(self) -> str:
        """The constructor's call, with a long list shortened."""
        return f"{type(self).__name__}({shorten(self.categories)})"
