"""Softmax: scores to probabilities; its logarithm; Softmin."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape
from minidl_c.kernels.softmax import SoftmaxOp


class Softmax(Layer):
    """y[k] = exp(x[k]) / sum over j of exp(x[j]), over the first axis of an example, for any shape.

    The first axis is the features of a vector, or the channels of each pixel of an image. The result is finite for all
    finite x. As in PyTorch, it is NaN for all elements of a sum that contains NaN or inf, or only -inf.

    The loss "softmax_cross_entropy" includes a softmax: a model trained with it needs none, and `predict_proba` applies
    one to the scores.
    """

    def build(self, in_shape: Shape) -> Shape:
        self.op = SoftmaxOp(in_shape, self.dtype)
        return in_shape


class LogSoftmax(Layer):
    """y[k] = log(exp(x[k]) / sum over j of exp(x[j])), over the first axis of an example, for any shape.

    Finite for all finite x, unlike the logarithm of `Softmax`; NaN where that is NaN.

    The loss "softmax_cross_entropy" takes scores: it includes a softmax and its logarithm.
    """

    def build(self, in_shape: Shape) -> Shape:
        self.op = SoftmaxOp(in_shape, self.dtype, "log_softmax")
        return in_shape


class Softmin(Layer):
    """y[k] = exp(-x[k]) / sum over j of exp(-x[j]), over the first axis of an example, for any shape.

    It is the `Softmax` of -x.
    """

    def build(self, in_shape: Shape) -> Shape:
        self.op = SoftmaxOp(in_shape, self.dtype, "softmin")
        return in_shape
