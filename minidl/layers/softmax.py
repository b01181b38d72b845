"""Softmax: scores as probabilities."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape
from minidl_c.kernels.softmax import SoftmaxOp


class Softmax(Layer):
    """y[k] = exp(x[k]) / sum over j of exp(x[j]), over the first axis of an example: any shape.

    Of a vector these are the features, of an image the channels of each pixel. Finite for numbers of any size; a NaN or
    inf, or nothing but -inf, makes NaN of all that are summed, as in PyTorch.

    The loss "softmax_cross_entropy" has a softmax of its own: a model that is trained with it needs none, and
    `predict_proba` puts one behind the scores.
    """

    def build(self, in_shape: Shape) -> Shape:
        self.op = SoftmaxOp(in_shape, self.dtype)
        return in_shape
