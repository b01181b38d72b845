"""Softmax: scores to probabilities; its logarithm; Softmin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_axes
from minidl_c.kernels.softmax import SoftmaxOp


class _Softmax(Layer):
    """A function of the kernel's table, over an axis or several neighbours."""

    function: ClassVar[str]  # its name in the table

    def __init__(self, axis: int | Sequence[int] = 0) -> None:
        self.axis = axis

    def build(self, in_shape: Shape) -> Shape:
        first, *others = check_axes("axis", self.axis, len(in_shape))
        end = first + len(others) + 1
        if others and others[-1] != end - 1:
            raise ValueError(f"axis: expected one axis, or neighbours, got {self.axis!r}")
        self.op = SoftmaxOp(in_shape, self.dtype, self.function, first, end)
        return in_shape


class Softmax(_Softmax):
    """Softmax: turns scores into probabilities, over the first axis of an example or others.

    Computes `y[k] = exp(x[k]) / sum over j of exp(x[j])`. Any shape, which is unchanged.

    Parameters
    ----------
    axis : int or sequence of int, default 0
        Axis of an example, without the batch axis, or several neighbours, over which the sums are: 0, the features of a
        vector or the channels of each pixel; -1, the last axis, as by default in Keras.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `axis` is an axis, or neighbouring ones, each once.

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

    Over the last of two axes:

    >>> Sequential([Softmax(-1)], input_shape=(2, 2)).predict([[[0, 0], [5, 5]]]).tolist()
    [[[0.5, 0.5], [0.5, 0.5]]]
    """

    function = "softmax"
    output_kind = "probabilities"

    def build(self, in_shape: Shape) -> Shape:
        if check_axes("axis", self.axis, len(in_shape)) != (0,):
            self.output_kind = "other"  # the classes of a loss are along axis 0
        return super().build(in_shape)


class LogSoftmax(_Softmax):
    """Logarithm of the softmax, over the first axis of an example or others.

    Computes `y[k] = log(exp(x[k]) / sum over j of exp(x[j]))`. Any shape, which is unchanged.

    Parameters
    ----------
    axis : int or sequence of int, default 0
        Axis of an example, without the batch axis, or several neighbours, over which the sums are: 0, the features of a
        vector or the channels of each pixel; -1, the last axis, as by default in Keras.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `axis` is an axis, or neighbouring ones, each once.

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

    function = "log_softmax"
    output_kind = "other"


class Softmin(_Softmax):
    """Softmax of -x: the lowest score gets the highest probability.

    Computes `y[k] = exp(-x[k]) / sum over j of exp(-x[j])`. Any shape, which is unchanged.

    Parameters
    ----------
    axis : int or sequence of int, default 0
        Axis of an example, without the batch axis, or several neighbours, over which the sums are: 0, the features of a
        vector or the channels of each pixel; -1, the last axis, as by default in Keras.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `axis` is an axis, or neighbouring ones, each once.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Softmin
    >>> Sequential([Softmin()], input_shape=(2,)).predict(np.log([[1, 3]])).round(3).tolist()
    [[0.75, 0.25]]
    """

    function = "softmin"
    output_kind = "other"
