"""Dropout: sets random elements to 0 in training."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_real
from minidl_c.kernels.dropout import DropoutOp


class Dropout(Layer):
    """In training y = 0 with probability `rate`, else x / (1 - rate), for each element; y = x in inference. Any shape.

    The mask depends only on the run's seed, the layer's path in the model, the step, the example's row in the data and
    the element's index in the example. Threads, batch size, dtype and processor do not change it.

    Raises TypeError or ValueError in build unless 0 <= rate < 1 (by at least 2**-32).

    Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov: "Dropout: A Simple Way to Prevent Neural Networks from
    Overfitting", JMLR 15 (2014); scaled in training ("inverted dropout"), so that inference is the identity.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def build(self, in_shape: Shape) -> Shape:
        self.op = DropoutOp(in_shape, check_real("rate", self.rate), self._path, self.dtype)
        return in_shape
