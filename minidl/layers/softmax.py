"""Softmax: scores to probabilities; its logarithm; Softmin."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape
from minidl_c.kernels.softmax import SoftmaxOp


class Softmax(Layer):
    """Softmax: turns scores into probabilities, over the first axis of an example.

    Computes `y[k] = exp(x[k]) / sum over j of exp(x[j])`. Any shape, which is unchanged. The first axis is the features
    of a vector, or the channels of each pixel of an image.

    Notes
    -----
    The result is finite for all finite x. As in PyTorch, it is NaN for all elements of a sum that contains NaN or inf,
    or only -inf.

    The loss "softmax_cross_entropy" includes a softmax: a model trained with it needs none, and `predict_proba` applies
    one to the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Softmax
    >>> model = Sequential([Softmax()], input_shape=(3,))
    >>> model.predict(np.log([[1, 2, 5]])).round(3).tolist()
    [[0.125, 0.25, 0.625]]
    """

    output_kind = "probabilities"

    def build(self, in_shape: Shape) -> Shape:
        self.op = SoftmaxOp(in_shape, self.dtype)
        return in_shape


class LogSoftmax(Layer):
    """Logarithm of the softmax, over the first axis of an example.

    Computes `y[k] = log(exp(x[k]) / sum over j of exp(x[j]))`. Any shape, which is unchanged.

    Notes
    -----
    Finite for all finite x, unlike the logarithm of `Softmax`; NaN where that is NaN.

    The loss "softmax_cross_entropy" takes scores: it includes a softmax and its logarithm.

    Examples
    --------
    The probability of the second class is too small for a float, but not its logarithm:

    >>> from minidl import Sequential
    >>> from minidl.layers import LogSoftmax, Softmax
    >>> [Sequential([layer], input_shape=(2,)).predict([[1000, 0]]).tolist() for layer in (Softmax(), LogSoftmax())]
    [[[1.0, 0.0]], [[0.0, -1000.0]]]
    """

    output_kind = "other"

    def build(self, in_shape: Shape) -> Shape:
        self.op = SoftmaxOp(in_shape, self.dtype, "log_softmax")
        return in_shape


class Softmin(Layer):
    """Softmax of -x: the lowest score gets the highest probability.

    Computes `y[k] = exp(-x[k]) / sum over j of exp(-x[j])`, over the first axis of an example. Any shape, which is
    unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Softmin
    >>> Sequential([Softmin()], input_shape=(2,)).predict(np.log([[1, 3]])).round(3).tolist()
    [[0.75, 0.25]]
    """

    output_kind = "other"

    def build(self, in_shape: Shape) -> Shape:
        self.op = SoftmaxOp(in_shape, self.dtype, "softmin")
        return in_shape
