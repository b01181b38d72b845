"""Losses: functions of scores and targets that return the loss of each example and its gradient.

`loss(scores, y) -> (losses (n,), dscores)`, where row i of dscores is the gradient of losses[i]. A loss neither
averages over the batch nor applies sample weights. Any such function is a loss; a NativeLoss also runs inside the
training plan.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np

from minidl.losses.cross_entropy import SoftmaxCrossEntropy
from minidl.losses.dice_loss import Dice
from minidl.losses.elementwise import BinaryCrossEntropy, Huber, MeanAbsoluteError, MeanSquaredError, Pinball, Poisson
from minidl.losses.native import NativeLoss
from minidl.utils import foreign_words, hints
from minidl.utils.arrays import Array, as_array, as_dtype, check_array
from minidl.utils.threadpool import one_blas_thread
from minidl.utils.validation import Shape

__all__ = [
    "BinaryCrossEntropy",
    "Dice",
    "Huber",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "NativeLoss",
    "Pinball",
    "Poisson",
    "SoftmaxCrossEntropy",
]

Loss = Callable[[Array, Array], tuple[Array, Array]]
CLASSES = (SoftmaxCrossEntropy, BinaryCrossEntropy, Dice, MeanSquaredError, MeanAbsoluteError, Huber, Pinball, Poisson)

softmax_cross_entropy = SoftmaxCrossEntropy()
binary_cross_entropy = BinaryCrossEntropy()
dice = Dice()
mean_squared_error = MeanSquaredError()
mean_absolute_error = MeanAbsoluteError()
huber = Huber()
poisson = Poisson()

NAMES: dict[str, Loss] = {
    "softmax_cross_entropy": softmax_cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "dice": dice,
    "mean_squared_error": mean_squared_error,
    "mean_absolute_error": mean_absolute_error,
    "huber": huber,
    "poisson": poisson,
}


if not typing.TYPE_CHECKING:  # for which an unknown name is an error of its own
    __getattr__ = hints.unknown_names(__name__, foreign_words.LOSSES, __all__)


def get(loss: str | Loss) -> Loss:
    """Returns the loss of that name, or the function itself; raises ValueError or TypeError for anything else."""
    if isinstance(loss, str):
        if loss not in NAMES:
            meant = hints.hint(loss, foreign_words.LOSSES, NAMES)
            raise ValueError(f"loss: expected one of {sorted(NAMES)} or a function, got {loss!r}{meant}")
        return NAMES[loss]
    foreign = hints.foreign_hint(loss, foreign_words.LOSSES)
    if not callable(loss) or isinstance(loss, type) or foreign:
        several = "; losses of several outputs are a dict, by name" if isinstance(loss, (list, tuple)) else ""
        meant = foreign or hints.class_hint(loss) or several
        raise TypeError(f"loss: expected a name, a function or an object such as Huber(2.0), got {loss!r}{meant}")
    expected = "loss: expected a function of scores and targets, loss(scores, y)"
    hints.check_order(expected, loss, hints.SCORES, hints.TARGETS)
    return loss


def check_targets(loss: Loss, y: Any, n: int, shape: Shape, dtype: str) -> Array:
    """Returns y as the loss takes it, for n examples with outputs of this shape; raises TypeError or ValueError."""
    targets, own = rows_of(loss, y, n), getattr(loss, "targets", None)
    return targets if own is None else own(targets, shape, dtype)


def rows_of(loss: Loss, y: Any, n: int) -> Any:
    """Returns y as an array, or as a dict of arrays for a loss of several outputs; raises as `check_rows`."""
    return getattr(loss, "rows_by_output", check_rows)(y, n)


def check_rows(y: Any, n: int) -> Array:
    """Returns y as an array; raises TypeError or ValueError unless it has n rows."""
    if type(y) is not np.ndarray and isinstance(y, Mapping):
        raise TypeError(f"y: expected one array, as the model has one output, got a dict of {', '.join(map(str, y))}")
    rows = check_array(y, "y")
    if rows.ndim == 0 or len(rows) != n:
        got = len(rows) if rows.ndim else "a single number"
        raise ValueError(f"y: expected {n} targets, one for each example of X, got {got}")
    return rows


def checked_loss(loss: Loss, scores: Array, targets: Array) -> tuple[Array, Array]:
    """Calls a loss with read-only scores and checks the result; raises TypeError or ValueError for an invalid one."""
    readonly_scores = scores.view()
    readonly_scores.flags.writeable = False
    try:
        with nullcontext() if isinstance(loss, NativeLoss) else one_blas_thread:
            returned = loss(readonly_scores, targets)
    except Exception as error:
        shapes = f"scores of shape {scores.shape} and y of shape {targets.shape}"
        error.add_note(f"loss: called as loss(scores, y), with {shapes}: {loss!r}")
        raise
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise TypeError(f"loss: expected it to return (losses, dscores), got {type(returned).__name__}")
    losses, dscores = as_array(returned[0], "loss: losses"), as_array(returned[1], "loss: dscores")
    if losses.shape != scores.shape[:1] or dscores.shape != scores.shape:
        raise ValueError(
            f"loss: expected losses of shape {scores.shape[:1]} and dscores of shape {scores.shape}, "
            f"got {losses.shape} and {dscores.shape}"
        )
    return losses, as_dtype(dscores, scores.dtype.name, "loss: dscores")
