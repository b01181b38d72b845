"""Dropout: in training, drops some of the numbers at random."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_real
from minidl_c.kernels.dropout import DropoutOp


class Dropout(Layer):
    """In training each number becomes 0 with probability `rate`, else x / (1 - rate); in inference y = x. Any shape.

    What is dropped is a function of the run's seed, the layer's place in the model, the step, the example's row in the
    data and the number's place in the example: neither threads, batch size, dtype nor processor change it.

    Raises TypeError or ValueError in build unless 0 <= rate < 1 (by at least 2**-32).

    Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov: "Dropout: A Simple Way to Prevent Neural Networks from
    Overfitting", JMLR 15 (2014); scaled in training, so that inference has nothing to do.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def build(self, in_shape: Shape) -> Shape:
        self.op = DropoutOp(in_shape, check_real("rate", self.rate), self._path, self.dtype)
        return in_shape
