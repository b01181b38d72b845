"""batch_sum: a sum over examples in the order in which training sums a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from minidl.utils.arrays import Array, as_array
from minidl_c.runtime.per_example import batch_sum as rows_sum


@overload
def batch_sum(g: Mapping[str, ArrayLike]) -> dict[str, Array]: ...
@overload
def batch_sum(g: ArrayLike) -> Array: ...
def batch_sum(g: Mapping[str, ArrayLike] | ArrayLike) -> dict[str, Array] | Array:
    """Sums an array (n, ...), or each array in a dict, over the first axis in the order of training.

    Floating-point sums depend on their order; this one is that of a training step on these examples. So the sum of
    `Trainer.per_example_gradients`, divided by the number of examples with a label, equals each `param.grad` to the
    last bit, with the exceptions below. A step skips rows of weight 0: skip them here as well, `g[weights > 0]`.

    Parameters
    ----------
    g : array-like of shape (n, ...), or dict of str to array-like
        Numbers in float32 or float64.

    Returns
    -------
    array of shape (...), or dict of str to array
        The sums, in the dtype of `g`; zeros if there are no rows.

    Raises
    ------
    TypeError
        For other dtypes.
    ValueError
        For a single number.

    Notes
    -----
    The order is that of simd/reduction.h: tiles of 16 in a fixed tree; at most 16 slots, each adding its tiles; the
    slots in a fixed tree.

    Exceptions from equal bits are weights of dense layers, whose kernel rounds a product and its sum only once; weights
    of convolutions by Winograd's algorithm (see Conv2D); and layers in NumPy.

    Examples
    --------
    >>> import numpy as np
    >>> import minidl
    >>> minidl.batch_sum(np.arange(6.0).reshape(3, 2))
    array([6., 9.])
    """
    if isinstance(g, Mapping):
        return {name: _summed(array, f"g[{name!r}]") for name, array in g.items()}
    return _summed(g, "g")


def _summed(g: ArrayLike, name: str) -> Array:
    array = as_array(g, name)
    native = array.dtype.newbyteorder("=")
    if native not in (np.float32, np.float64):
        raise TypeError(f"{name}: expected float32 or float64, got {array.dtype}")
    if array.ndim == 0:
        raise ValueError(f"{name}: expected examples along the first axis, got a single number")
    axes = sorted(range(1, array.ndim), key=lambda axis: -array.strides[axis])  # as they lie: nothing is copied
    rows = np.require(array.transpose(0, *axes), native, ["C_CONTIGUOUS", "ALIGNED"])
    total = np.empty(rows.shape[1:], rows.dtype)
    rows_sum(rows.reshape(len(rows), total.size), total.reshape(-1))
    summed: Array = total.transpose(np.argsort(axes))[()]
    return summed
