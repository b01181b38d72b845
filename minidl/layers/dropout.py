"""Dropout, Dropout2D and StochasticDepth: set random elements, channels or examples to 0 in training.

A mask depends only on the run's seed, the layer's path in the model, the step, the example's row in the data and the
index of the element or channel in the example. Threads, batch size, dtype and processor do not change it.
"""

from __future__ import annotations

import math

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_real
from minidl_c.kernels.dropout import DropoutOp


class Dropout(Layer):
    """In training y = 0 with probability `rate`, else x / (1 - rate), for each element; y = x in inference. Any shape.

    Raises TypeError or ValueError in build unless 0 <= rate < 1 (by at least 2**-32).

    Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov: "Dropout: A Simple Way to Prevent Neural Networks from
    Overfitting", JMLR 15 (2014); scaled in training ("inverted dropout"), so that inference is the identity.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def build(self, in_shape: Shape) -> Shape:
        self.op = DropoutOp(in_shape, check_real("rate", self.rate), self._path, self.dtype)
        return in_shape


class Dropout2D(Layer):
    """Dropout of whole channels: in training y = 0 with probability `rate`, else x / (1 - rate); y = x in inference.

    Any shape, channels first. Keras: SpatialDropout2D. Neighbouring pixels of a feature map are alike, so that a pixel
    alone, dropped by Dropout, is hardly missed.

    Raises TypeError or ValueError in build unless 0 <= rate < 1 (by at least 2**-32).

    Tompson, Goroshin, Jain, LeCun, Bregler: "Efficient Object Localization Using Convolutional Networks", CVPR 2015.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def build(self, in_shape: Shape) -> Shape:
        rate = check_real("rate", self.rate)
        self.op = DropoutOp(in_shape, rate, self._path, self.dtype, group=math.prod(in_shape[1:]))
        return in_shape


class StochasticDepth(Layer):
    """Dropout of whole examples: in training y = 0 with probability `rate`, else x / (1 - rate); y = x in inference.

    The last layer of a Residual's body: the example then skips the block. Any shape. Also known as DropPath;
    torchvision: stochastic_depth(mode="row").

    Raises TypeError or ValueError in build unless 0 <= rate < 1 (by at least 2**-32).

    Huang, Sun, Liu, Sedra, Weinberger: "Deep Networks with Stochastic Depth", ECCV 2016; scaled in training, so that
    inference is the identity.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def build(self, in_shape: Shape) -> Shape:
        rate = check_real("rate", self.rate)
        self.op = DropoutOp(in_shape, rate, self._path, self.dtype, group=math.prod(in_shape))
        return in_shape
