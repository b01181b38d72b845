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
    """Sets random elements to 0 in training, and scales the others; the identity in inference.

    Computes in training `y = 0` with probability `rate`, else `x / (1 - rate)`, for each element. Any shape.

    Parameters
    ----------
    rate : float
        Probability that an element is dropped.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `0 <= rate < 1` (by at least 2**-32).

    See Also
    --------
    Dropout2D : Drops whole channels.
    StochasticDepth : Drops whole examples.

    Notes
    -----
    Scaling in training ("inverted dropout") makes inference the identity. A mask depends only on the run's seed, the
    layer's path in the model, the step, the example's row in the data and the index of the element in the example.
    Threads, batch size, dtype and processor do not change it.

    References
    ----------
    Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, "Dropout: A Simple Way to Prevent Neural Networks from
    Overfitting", JMLR 15 (2014).

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Dropout
    >>> model = Sequential([Dropout(0.5)], input_shape=(8,))
    >>> x = np.ones((2, 8))
    >>> print(model.forward(x, training=True))
    [[2. 2. 2. 2. 0. 0. 2. 2.]
     [0. 2. 2. 2. 2. 0. 2. 2.]]
    >>> bool((model.predict(x) == x).all())
    True
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def build(self, in_shape: Shape) -> Shape:
        self.op = DropoutOp(in_shape, check_real("rate", self.rate), self._path, self.dtype)
        return in_shape


class Dropout2D(Layer):
    """Sets random channels to 0 in training, and scales the others; the identity in inference.

    Computes in training `y = 0` with probability `rate`, else `x / (1 - rate)`, for each channel. Any shape, channels
    first. Neighbouring pixels of a feature map are alike, so that a pixel alone, dropped by Dropout, is hardly missed.

    Parameters
    ----------
    rate : float
        Probability that a channel is dropped.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `0 <= rate < 1` (by at least 2**-32).

    See Also
    --------
    Dropout : Drops elements, and explains scaling and masks.

    Notes
    -----
    Keras calls it SpatialDropout2D.

    References
    ----------
    Tompson, Goroshin, Jain, LeCun, Bregler, "Efficient Object Localization Using Convolutional Networks", CVPR 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Dropout2D
    >>> model = Sequential([Dropout2D(0.5)], input_shape=(6, 1, 3))
    >>> y = model.forward(np.ones((1, 6, 1, 3)), training=True)
    >>> print(y[0, :, 0])  # a row is a channel
    [[2. 2. 2.]
     [2. 2. 2.]
     [2. 2. 2.]
     [2. 2. 2.]
     [0. 0. 0.]
     [0. 0. 0.]]
    """

    takes_images = True

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def build(self, in_shape: Shape) -> Shape:
        rate = check_real("rate", self.rate)
        self.op = DropoutOp(in_shape, rate, self._path, self.dtype, group=math.prod(in_shape[1:]))
        return in_shape


class StochasticDepth(Layer):
    """Sets random examples to 0 in training, and scales the others: the last layer of a Residual's body.

    Computes in training `y = 0` with probability `rate`, else `x / (1 - rate)`, for each example; `y = x` in inference.
    Any shape. At the end of a Residual's body, it makes an example skip the block.

    Parameters
    ----------
    rate : float
        Probability that an example is dropped.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `0 <= rate < 1` (by at least 2**-32).

    See Also
    --------
    Dropout : Drops elements, and explains scaling and masks.

    Notes
    -----
    Also known as DropPath; in torchvision, it is `stochastic_depth(mode="row")`. Scaling in training makes inference
    the identity.

    References
    ----------
    Huang, Sun, Liu, Sedra, Weinberger, "Deep Networks with Stochastic Depth", ECCV 2016.

    Examples
    --------
    For an input of ones the body returns 6, which is doubled or dropped; 1 is added:

    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.initializers import ones
    >>> from minidl.layers import Dense, Residual, StochasticDepth
    >>> block = Residual(Dense(6, kernel_initializer=ones), StochasticDepth(0.5))
    >>> model = Sequential([block], input_shape=(6,))
    >>> print(model.forward(np.ones((4, 6)), training=True)[:, 0])
    [13. 13.  1. 13.]
    >>> print(model.predict(np.ones((4, 6)))[:, 0])
    [7. 7. 7. 7.]
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def build(self, in_shape: Shape) -> Shape:
        rate = check_real("rate", self.rate)
        self.op = DropoutOp(in_shape, rate, self._path, self.dtype, group=math.prod(in_shape))
        return in_shape
