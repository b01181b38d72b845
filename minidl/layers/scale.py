"""Scale: a learned factor per channel, or per place along other axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidl.initializers import zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_axes, check_bool, check_real
from minidl_c.kernels.scale import ScaleOp


class Scale(Layer):
    """Multiplies each channel, or each place along other axes, by a learned factor.

    Computes `y = weight[c] * x`, plus `bias[c]` with `use_bias`, for vectors (c,), images (c, h, w) and any other shape
    (c, ...), which is unchanged. At the end of a residual branch and with a small `init`, this is LayerScale: 1e-6 in
    ConvNeXt.

    Parameters
    ----------
    init : float, default 1.0
        Initial value of every weight.
    use_bias : bool, default False
        Whether to learn a bias.
    axis : int or sequence of int, default 0
        Axes of an example, without the batch axis, along which weights differ: 0, the channels; (0, 1, 2), a weight for
        each element of an image; (1, 2), one for each pixel, which all channels share; -1, the last axis.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `init` is a finite number, `use_bias` a bool, and `axis` one or several axes, each once.

    Notes
    -----
    Learned parameters: `weight`, `init`, and `bias`, zero, both of the sizes of the axes: (c,) by default. The layer
    adds a constant, such as the negative of a mean image, if it is frozen with `trainable = False` and its bias is set.

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

    A mean image, which training leaves alone:

    >>> layer = Scale(use_bias=True, axis=(0, 1, 2))
    >>> layer.trainable = False
    >>> model = Sequential([layer], input_shape=(1, 2, 2))
    >>> model.params["0.bias"].value = [[[-1, -2], [-3, -4]]]
    >>> model.predict([[[[5, 5], [5, 5]]]]).tolist()
    [[[[4.0, 3.0], [2.0, 1.0]]]]
    """

    def __init__(self, init: float = 1.0, *, use_bias: bool = False, axis: int | Sequence[int] = 0) -> None:
        self.init = init
        self.use_bias = use_bias
        self.axis = axis

    def build(self, in_shape: Shape) -> Shape:
        first, axes = check_real("init", self.init, self.dtype), check_axes("axis", self.axis, len(in_shape))
        self.op = ScaleOp(in_shape, check_bool("use_bias", self.use_bias), self.dtype, axes)
        shape = tuple(in_shape[axis] for axis in axes)
        self.weight = self.param("weight", shape, lambda rng, shape: np.full(shape, first))
        if self.use_bias:
            self.bias = self.param("bias", shape, zeros)
        return in_shape
