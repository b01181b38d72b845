"""ReLU: max(x, 0)."""

from __future__ import annotations

import math

from minidl.layers.base import Layer
from minidl.utils.validation import Shape
from minidl_c.kernels.relu import ReLUOp


class ReLU(Layer):
    """Rectified linear unit: `y = max(x, 0)`.

    Any shape, which is unchanged. NaN stays NaN; the gradient at 0 is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import ReLU
    >>> model = Sequential([ReLU()], input_shape=(3,))
    >>> model.forward(np.array([[-2.0, 0.0, 2.0]]), training=True).tolist()
    [[0.0, 0.0, 2.0]]
    >>> model.backward(np.ones((1, 3), "float32")).tolist()
    [[0.0, 0.0, 1.0]]
    """

    active_range = (0.0, math.inf)

    def build(self, in_shape: Shape) -> Shape:
        self.op = ReLUOp(in_shape, self.dtype)
        return in_shape
