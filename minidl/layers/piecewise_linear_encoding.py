"""PiecewiseLinearEncoding: the place of a number in bins, one output for each bin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minidl.layers.base import Layer
from minidl.utils.arrays import as_plain
from minidl.utils.data import as_numbers
from minidl.utils.text import shorten
from minidl.utils.validation import Shape, check_bool, check_int, check_real
from minidl_c.kernels.piecewise_linear_encoding import PiecewiseLinearEncodingOp

ROWS_SHARE = 2  # bins of the rows for each bin of the distinct values


class PiecewiseLinearEncoding(Layer):
    """Numbers of a table as their places in bins: an output for each bin, 0 before it, 1 after it, and linear inside.

    Maps columns (columns,) to (outputs,): the bins of the first column, then those of the second, and so on. A bin from
    a to b computes `min(max((x - a) / (b - a), 0), 1)`, so that a following Dense layer learns a piecewise linear
    function of each column. It is meant as the first layer of a model, which then takes unscaled columns.
    `PiecewiseLinearEncoding.from_data(X)` takes the bins from quantiles.

    Parameters
    ----------
    edges : sequence of array-like of float
        For each column, the increasing edges of its bins: n + 1 of them for n bins. A column without edges, such as a
        constant one, is left out. Arrays are kept as lists.
    missing : bool or array-like of bool, default False
        Whether a column has one more output, after its bins, that is 1 for NaN and 0 for numbers. One for each column,
        or for all.

    Raises
    ------
    TypeError, ValueError
        In `build`, for another number of columns, for a single edge, and for edges that are not finite or do not
        increase in the model's dtype by at least its smallest normal number. In the constructor, for arrays that do not
        hold real numbers.

    Notes
    -----
    NaN is 0 in all bins. A model that begins with this layer, or a branch of which does, takes NaN in X if a column has
    an output for it, and otherwise refuses it. Infinity, which may come from layers, is outside all bins.

    The gradient of a number is that of the bin that it is in, of which the upper edge is a part, and 0 outside all
    bins.

    References
    ----------
    Gorishniy, Rubachev, Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning" (2022),
    arXiv:2203.05556. There, the first and the last bin go on outside; here they end, so that no output is out of range.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import PiecewiseLinearEncoding
    >>> encoding = PiecewiseLinearEncoding([[0, 10, 100]], missing=True)
    >>> print(Sequential([encoding], input_shape=(1,)).predict([[-5], [5], [55], [float("nan")]]))
    [[0.  0.  0. ]
     [0.5 0.  0. ]
     [1.  0.5 0. ]
     [0.  0.  1. ]]
    """

    def __init__(self, edges: Sequence[ArrayLike], missing: ArrayLike = False) -> None:
        edges = as_plain(edges, "edges")
        if isinstance(edges, (list, tuple)):
            edges = [as_plain(of_column, f"edges[{c}]") for c, of_column in enumerate(edges)]
        self.edges, self.missing = edges, as_plain(missing, "missing")

    @classmethod
    def from_data(cls, X: Any, bins: int = 48) -> PiecewiseLinearEncoding:
        """Returns a layer whose bins are between quantiles of each column.

        Two thirds of the edges are quantiles of the rows, one third those of the distinct values, so that a column
        whose rows mostly have one value has bins elsewhere, too. Edges that are equal in float32 count once: a column
        has fewer bins than distinct values. A constant one has none.

        Parameters
        ----------
        X : array of shape (n, columns)
            Numbers, with NaN for missing values. A column in which some are missing has an output for them. An array or
            a memory map is read column by column; a lazy array or a sparse matrix is copied as a whole.
        bins : int, default 48
            The largest number of bins of a column.

        Returns
        -------
        PiecewiseLinearEncoding
            A layer for these columns.

        Raises
        ------
        TypeError, ValueError
            Unless `X` consists of rows of real numbers, finite or NaN, in which a column varies or has missing values.

        Examples
        --------
        >>> from minidl.layers import PiecewiseLinearEncoding
        >>> PiecewiseLinearEncoding.from_data([[0, 7], [1, 7], [2, float("nan")], [50, 7]], bins=2)
        PiecewiseLinearEncoding(edges=[[0.0, 1.5, 50.0], []], missing=[False, True])
        """
        rows, bins = as_numbers(X, "X"), check_int("bins", bins)
        if len(rows.shape) != 2 or 0 in rows.shape:
            raise ValueError(f"X: expected rows (n, columns), at least one, got shape {rows.shape}")
        array = rows if isinstance(rows, np.ndarray) else rows[:]
        edges, missing = [], []
        for c in range(array.shape[1]):
            column = array[:, c].astype(np.float64)
            if np.isinf(column).any():
                raise ValueError(f"X: expected finite numbers, or NaN for missing ones, got infinity in column {c}")
            known = column[~np.isnan(column)]
            edges.append(quantile_edges(known, bins).tolist())
            missing.append(0 < len(known) < len(column))
        if not any(missing) and not any(edges):
            raise ValueError("X: expected a column that is not constant, got none")
        return cls(edges, missing)

    def build(self, in_shape: Shape) -> Shape:
        if len(in_shape) != 1:
            raise ValueError(f"expected (columns,), got {in_shape}: put a Flatten before it")
        edges = [
            [check_real(f"edges[{c}]", edge, self.dtype) for edge in _as_list(f"edges[{c}]", of_column)]
            for c, of_column in enumerate(_as_list("edges", self.edges))
        ]
        given: Any = self.missing
        missing = list(given) if isinstance(given, (list, tuple)) else [given] * in_shape[0]
        missing = [check_bool("missing", has) for has in missing]
        for name, numbers in (("edges", edges), ("missing", missing)):
            if len(numbers) != in_shape[0]:
                raise ValueError(f"{name}: expected one for each of {in_shape[0]} columns, got {len(numbers)}")
        self.op, self.takes_missing = PiecewiseLinearEncodingOp(in_shape, edges, missing, self.dtype), any(missing)
        return self.op.out_shape

    def __repr__(self) -> str:
        """The constructor's call, with long lists shortened."""
        return f"{type(self).__name__}(edges={shorten(self.edges)}, missing={shorten(self.missing)})"


def quantile_edges(values: NDArray[np.float64], bins: int, dtype: str = "float32") -> NDArray[np.float64]:
    """Returns the edges of at most `bins` bins, which increase in a dtype; none if there is only one value.

    values: finite. The edges are quantiles of the values and of the distinct ones, or all of these if they are few.
    """
    edges = distinct = np.unique(values)
    if len(distinct) > bins + 1:
        of_distinct = round(bins / (1 + ROWS_SHARE))  # quantiles of both seldom coincide, unless there are ties
        of_rows = np.quantile(values, np.linspace(0, 1, bins - of_distinct + 1))
        edges = np.concatenate([of_rows, np.quantile(distinct, np.linspace(0, 1, of_distinct + 2)[1:-1])])
    with np.errstate(over="ignore"):
        rounded = edges.astype(dtype)
    rounded[np.abs(rounded) < np.finfo(dtype).tiny] = 0
    edges = edges[np.unique(rounded, return_index=True)[1]]
    return edges if len(edges) > 1 else edges[:0]


def _as_list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name}: expected a list, got {value!r:.100}")
    return list(value)
