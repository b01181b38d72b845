"""Scale: a learned factor per channel."""

from __future__ import annotations

import numpy as np

from minidl.initializers import zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_bool, check_real
from minidl_c.kernels.scale import ScaleOp


class Scale(Layer):
    """Multiplies each channel by a learned factor.

    Computes `y = weight[c] * x`, plus `bias[c]` with `use_bias`, for vectors (c,), images (c, h, w) and any other shape
    (c, ...), which is unchanged. At the end of a residual branch and with a small `init`, this is LayerScale: 1e-6 in
    ConvNeXt.

    Parameters
    ----------
    init : float, default 1.0
        Initial value of every weight.
    use_bias : bool, default False
        Whether to learn a bias.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `init` is a finite number and `use_bias` a bool.

    Notes
    -----
    Learned parameters: `weight` (c,), `init`; `bias` (c,), zero.

    References
    ----------
    Touvron et al., "Going deeper with Image Transformers" (2021), arXiv:2103.17239.

    Examples
    --------
    With LayerScale, a residual block is almost the identity at first:

    >>> from minidl import Sequential
    >>> from minidl.layers import Dense, Residual, Scale
    >>> model = Sequential([Residual(Dense(3), Scale(1e-6))], input_shape=(3,))
    >>> model.predict([[1, 2, 3]]).round(3).tolist()
    [[1.0, 2.0, 3.0]]
    """

    def __init__(self, init: float = 1.0, *, use_bias: bool = False) -> None:
        self.init = init
        self.use_bias = use_bias

    def build(self, in_shape: Shape) -> Shape:
        first = check_real("init", self.init, self.dtype)
        self.op = ScaleOp(in_shape, check_bool("use_bias", self.use_bias), self.dtype)
        self.weight = self.param("weight", in_shape[:1], lambda rng, shape: np.full(shape, first))
        if self.use_bias:
            self.bias = self.param("bias", in_shape[:1], zeros)
        return in_shape
