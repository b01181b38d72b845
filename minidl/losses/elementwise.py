"""Element-wise losses of outputs and targets. The loss of an example is the mean over all of its outputs.

Outputs have any shape: (1,), (k,), or (c, h, w) of an autoencoder. Targets y are finite real numbers of that shape and
any dtype; for outputs (1,) also of shape (n,). The mean over a batch is PyTorch's loss of that name, up to rounding.
Pinball, which PyTorch lacks, has outputs (k,) and one target for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.losses.class_weights import Weights, as_weights, by_channel
from minidl.losses.label_loss import check_ignored
from minidl.losses.native import NativeLoss, as_float_targets
from minidl.utils.arrays import Array, as_array
from minidl.utils.constructors import readonly_argument
from minidl.utils.hints import answers
from minidl.utils.validation import Shape, check_normal_float, check_real
from minidl_c.losses.elementwise_losses import ElementwiseLossOp


class MeanSquaredError(NativeLoss):
    """Mean squared error: `(x - y)^2`, averaged over an example's outputs x.

    Outputs have any shape; targets are finite numbers of that shape, and for outputs (1,) also of shape (n,). The mean
    over a batch is that of `torch.nn.MSELoss`.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.losses import MeanSquaredError
    >>> losses, dscores = MeanSquaredError()(np.array([[1.0, 2.0]]), np.array([[0, 0]]))
    >>> losses.tolist(), dscores.tolist()
    ([2.5], [[1.0, 2.0]])
    """

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "mean_squared_error", dtype=dtype)


class MeanAbsoluteError(NativeLoss):
    """Mean absolute error: `|x - y|`, averaged over an example's outputs x.

    The derivative is 0 where x equals y. Outputs have any shape; targets are finite numbers of that shape, and for
    outputs (1,) also of shape (n,). The mean over a batch is that of `torch.nn.L1Loss`.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.losses import MeanAbsoluteError
    >>> losses, dscores = MeanAbsoluteError()(np.array([[1.0, 2.0]]), np.array([[4, 2]]))
    >>> losses.tolist(), dscores.tolist()
    ([1.5], [[-0.5, 0.0]])
    """

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "mean_absolute_error", dtype=dtype)


@answers({})
class Huber(NativeLoss):
    """Huber loss: squared for small errors, linear for outliers.

    Computes `d^2 / 2` for errors `|d| = |x - y|` up to `delta`, and `delta (|d| - delta / 2)` beyond, averaged over an
    example's outputs x. The gradient of an outlier is no larger than that of an error of `delta`.

    Outputs have any shape; targets are finite numbers of that shape, and for outputs (1,) also of shape (n,). The mean
    over a batch is that of `torch.nn.HuberLoss`.

    Parameters
    ----------
    delta : float, default 1.0
        Error at which the loss becomes linear.

    Raises
    ------
    TypeError, ValueError
        Unless `delta` is a number above 0, large enough for float32: at least 1.2e-38.

    References
    ----------
    Huber, "Robust Estimation of a Location Parameter", Annals of Mathematical Statistics 35 (1964).

    Examples
    --------
    Errors of 0.5 and 100, and their gradients:

    >>> import numpy as np
    >>> from minidl.losses import Huber
    >>> losses, dscores = Huber(delta=1.0)(np.array([[0.5], [100.0]]), np.array([0, 0]))
    >>> losses.tolist(), dscores.tolist()
    ([0.125, 99.5], [[0.5], [1.0]])
    """

    def __init__(self, delta: float = 1.0) -> None:
        self._delta = check_normal_float("delta", delta, "float64")

    delta = readonly_argument("delta")

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "huber", self.delta, dtype)


@answers({})
class Pinball(NativeLoss):
    """Pinball loss, or quantile loss: its minimum is at quantiles of the targets.

    Computes `max(q (y - x), (q - 1) (y - x))` for the output x of quantile q, averaged over the quantiles. The
    derivative is -q for x below y, 1 - q for x above it, and 0 where they are equal. With q = 0.5 it is half of the
    absolute error.

    For k quantiles, outputs have shape (k,), one for each. Targets are finite numbers of shape (n,) or (n, 1): the one
    number of an example is that of all quantiles. The mean over a batch is the mean over the quantiles of
    `sklearn.metrics.mean_pinball_loss`.

    Parameters
    ----------
    quantiles : sequence of float, or float
        Numbers between 0 and 1, in increasing order.

    Raises
    ------
    TypeError, ValueError
        Unless `quantiles` are such numbers, and with a model that has another number of outputs.

    References
    ----------
    Koenker, Bassett, "Regression Quantiles", Econometrica 46 (1978).

    Examples
    --------
    Two quantiles of targets 10 and 0. An output below the target costs little at 0.1, and much at 0.9:

    >>> import numpy as np
    >>> from minidl.losses import Pinball
    >>> losses, dscores = Pinball([0.25, 0.75])(np.array([[8.0, 8.0], [8.0, 8.0]]), np.array([10, 0]))
    >>> losses.tolist(), dscores.tolist()
    ([1.0, 4.0], [[-0.125, -0.375], [0.375, 0.125]])
    """

    def __init__(self, quantiles: float | Sequence[float]) -> None:
        self._quantiles = _as_quantiles(quantiles)

    quantiles = readonly_argument("quantiles")

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        self._check(shape)
        return ElementwiseLossOp(shape, "pinball", dtype=dtype, quantiles=np.atleast_1d(self.quantiles))

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        self._check(shape)
        array = as_array(y, "y")
        if array.shape[1:] == shape and (array == array[:, :1]).all():
            return as_float_targets(array, shape, dtype)
        if array.ndim != 1 and array.shape[1:] != (1,):
            raise ValueError(f"y: expected one number for each example, shape (n,) or (n, 1), got {array.shape}")
        return np.repeat(as_float_targets(array, (1,), dtype), shape[0], axis=1)

    def _check(self, shape: Shape) -> None:
        """Raises ValueError unless there is an output for each quantile."""
        if shape != (np.size(self.quantiles),):
            expected = f"expected one for each output of a model with outputs {shape}"
            raise ValueError(f"quantiles: {expected}, got {self.quantiles}")


@answers({})
class BinaryCrossEntropy(NativeLoss):
    """Cross-entropy of independent labels 0 and 1, which includes a sigmoid.

    Computes `-y log(p) - (1 - y) log(1 - p)` with `p = sigmoid(x)`, averaged over an example's logits x; finite for all
    of them. The mean over a batch is that of `torch.nn.BCEWithLogitsLoss`.

    Outputs have any shape. Targets of that shape are labels 0 and 1 (or False and True), or probabilities; for outputs
    (1,) also of shape (n,), for (1, h, w) of (n, h, w). For outputs (k,), they are k independent labels: (n, k).

    Parameters
    ----------
    pos_weight : float, sequence of float or None, default None
        Multiplies the first term, for rare labels 1; above 1 it raises recall. One number for all outputs, or one for
        each: for outputs (c, h, w), one for each channel. None: 1.
    output_weight : float, sequence of float or None, default None
        Likewise multiplies the losses of an output; the divisor of the mean remains the number of outputs.
    ignore_index : int or None, default None
        Target of outputs that are left out: pixels without a label, or missing labels of several. The divisor is then
        the number of the others. The loss and the gradient of an example without any other target are 0, and it does
        not count as an example: neither in a step nor in a mean of losses.

    Raises
    ------
    TypeError, ValueError
        For weights that are not finite numbers of at least 0 (float32), for an `ignore_index` that is not an int64, and
        with a model whose outputs have another number of channels.

    Examples
    --------
    A score of 0 is a probability of 1/2. With a `pos_weight` of 3, a label 1 counts three times:

    >>> import numpy as np
    >>> from minidl.losses import BinaryCrossEntropy
    >>> losses, dscores = BinaryCrossEntropy(pos_weight=3)(np.zeros((2, 1)), np.array([0, 1]))
    >>> losses.round(4).tolist(), dscores.tolist()
    ([0.6931, 2.0794], [[0.5], [-1.5]])
    """

    classes = True
    applies = "Sigmoid"

    def __init__(
        self, pos_weight: Weights = None, output_weight: Weights = None, ignore_index: int | None = None
    ) -> None:
        self._pos_weight = as_weights("pos_weight", pos_weight)
        self._output_weight = as_weights("output_weight", output_weight)
        self._ignore_index = check_ignored(ignore_index)

    pos_weight = readonly_argument("pos_weight")
    output_weight = readonly_argument("output_weight")
    ignore_index = readonly_argument("ignore_index")

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        positive, weight = self.by_channel("pos_weight", shape), self.by_channel("output_weight", shape)
        ignored = self.ignore_index
        return ElementwiseLossOp(
            shape, "binary_cross_entropy", 1.0, dtype, pos_weight=positive, weight=weight, ignored_target=ignored
        )

    def by_channel(self, name: str, shape: Shape) -> tuple[float, ...] | None:
        """Returns `pos_weight` or `output_weight` with a number for each channel of the outputs.

        Parameters
        ----------
        name : "pos_weight" or "output_weight"
            The argument.
        shape : tuple of int
            Shape of the model's output, without the batch axis.

        Returns
        -------
        tuple of float, or None
            A number for each channel; None: ones.

        Raises
        ------
        ValueError
            For another number of weights than of channels.
        """
        return by_channel(name, getattr(self, name), shape)

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        for name in ("pos_weight", "output_weight"):
            self.by_channel(name, shape)
        targets = as_float_targets(y, shape, dtype)
        minimum, maximum = _min_max(targets)
        if minimum >= 0 and maximum <= 1:
            return targets
        ignored, used = self.ignore_index, targets
        if ignored is not None:
            used = targets[targets != ignored]
            minimum, maximum = _min_max(used)
        if minimum < 0 or maximum > 1:
            hints = {(-1.0, 1.0): ": (y + 1) / 2", (1.0, 2.0): ": y - 1", (0.0, 255.0): ": y / 255"}
            if np.isin(used, (0, 255)).all():
                hints[0.0, 255.0] = ": a mask of 0 and 255? perhaps y // 255"
            elif targets.ndim > 2 and ignored is None and np.isin(used, (0, 1, maximum)).all():
                hints[0.0, maximum] = f": BinaryCrossEntropy(ignore_index={maximum:g}) leaves out these positions"
            got = f"got values from {minimum:g} to {maximum:g}{hints.get((minimum, maximum), '')}"
            others = "" if ignored is None else f", or {ignored}"
            raise ValueError(f"y: expected labels 0 and 1, or probabilities from 0 to 1{others}, {got}")
        return targets


class Poisson(NativeLoss):
    """Negative log-likelihood of counts, which are Poisson-distributed.

    Computes `exp(x) - y x`, averaged over an example's outputs x, which are logarithms of rates. The term log(y!),
    which does not depend on x, is left out. Outputs have any shape; targets are finite numbers of that shape, and for
    outputs (1,) also of shape (n,). They are at least 0. The mean over a batch is that of `torch.nn.PoissonNLLLoss`.

    Examples
    --------
    A score of 0 is a rate of 1; the gradient is the rate minus the count:

    >>> import numpy as np
    >>> from minidl.losses import Poisson
    >>> losses, dscores = Poisson()(np.zeros((2, 1)), np.array([1, 4]))
    >>> losses.tolist(), dscores.tolist()
    ([1.0, 1.0], [[0.0], [-3.0]])
    """

    def op(self, shape: Shape, dtype: str) -> ElementwiseLossOp:
        return ElementwiseLossOp(shape, "poisson", dtype=dtype)

    def targets(self, y: Any, shape: Shape, dtype: str) -> NDArray[Any]:
        targets = as_float_targets(y, shape, dtype)
        minimum, _ = _min_max(targets)
        if minimum < 0:
            raise ValueError(f"y: expected counts of at least 0, got {minimum:g}")
        return targets


def _as_quantiles(given: Any) -> float | tuple[float, ...]:
    """Returns a number, or several as a tuple; raises TypeError or ValueError unless they rise between 0 and 1."""
    if isinstance(given, np.ndarray) and given.ndim == 1:
        given = given.tolist()
    if isinstance(given, (Mapping, str)):
        raise TypeError(f"quantiles: expected a number, or a list of numbers, got {given!r}")
    several = isinstance(given, (tuple, list))
    numbers = tuple(check_real("quantiles", one) for one in (given if several else [given]))
    if not numbers or not all(low < high for low, high in pairwise((0.0, *numbers, 1.0))):
        raise ValueError(f"quantiles: expected numbers between 0 and 1, in increasing order, got {given!r}")
    return numbers if several else numbers[0]


def _min_max(values: Array) -> tuple[float, float]:
    """Returns the smallest and the largest value; 0 and 0 if there are none."""
    return (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
