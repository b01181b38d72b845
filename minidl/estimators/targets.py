"""What the numbers that a model puts out stand for: classes, many labels, or quantities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from minidl import losses
from minidl.losses import BinaryCrossEntropy, Loss, SoftmaxCrossEntropy
from minidl.sequential import Sequential
from minidl.utils.arrays import Array

Used = NDArray[np.bool_]  # rows of weight above 0
CROSS_ENTROPIES = (SoftmaxCrossEntropy, BinaryCrossEntropy)
OF_QUANTITIES = (losses.MeanSquaredError, losses.MeanAbsoluteError, losses.Huber, losses.Poisson)


def check_one_type(y: Array) -> None:
    """Raises ValueError for labels that have no order, strings among numbers."""
    if y.dtype == object:
        try:
            np.unique(y)
        except TypeError as error:
            types = ", ".join(sorted({type(one).__name__ for one in y.flat}))
            expected = "expected labels of one type, all numbers or all strings"
            raise ValueError(f"y: unknown label type: {expected}, got {types}") from error


@dataclass(frozen=True)
class MulticlassTargets:
    """One of `classes` for each row."""

    classes: Array
    told, each, senseless = "one label a row", "class", OF_QUANTITIES

    @classmethod
    def of(cls, y: Array, name: str = "y") -> Self:
        """The classes of these targets; raises ValueError, naming them, if there is one alone."""
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"{name}: expected at least two classes, got one class, {classes.tolist()}")
        return cls(classes)

    @property
    def outputs(self) -> int:
        """How many scores a model gives, one for each."""
        return len(self.classes)

    def default_loss(self, outputs: tuple[int, ...]) -> str | None:
        """The loss for a model of these outputs; None: it cannot be one for these targets."""
        if outputs == (1,) and len(self.classes) == 2:
            return "binary_cross_entropy"
        return "softmax_cross_entropy" if outputs == (len(self.classes),) else None

    def encoded(self, y: Array, used: Used) -> NDArray[np.int64]:
        """Each row's place among the classes, 0 for rows that are not used; raises ValueError for other labels."""
        unknown = np.setdiff1d(y[used], self.classes)
        if len(unknown):
            raise ValueError(f"y: expected classes {self.classes.tolist()}, got {unknown.tolist()} as well")
        places = np.searchsorted(self.classes, y)
        return np.where(used, places, 0)

    def decoded(self, scores: Array) -> Array:
        """The label of the highest score; of a single score, whether it is above 0."""
        return self.classes[(scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)]


@dataclass(frozen=True)
class MultilabelTargets:
    """Each of some labels is there or not: an indicator matrix."""

    outputs: int
    told, each, senseless = "an indicator matrix (n, labels)", "label", OF_QUANTITIES

    @classmethod
    def of(cls, y: Array) -> Self:
        """As many labels as there are columns."""
        return cls(y.shape[1])

    @property
    def classes(self) -> Array:
        """The numbers of the columns."""
        return np.arange(self.outputs)

    def default_loss(self, outputs: tuple[int, ...]) -> str | None:
        """The loss for a model of these outputs; None: it cannot be one for these targets."""
        return "binary_cross_entropy" if outputs == (self.outputs,) else None

    def encoded(self, y: Array, used: Used) -> Array:
        """The indicator matrix itself; raises ValueError for another number of columns, other numbers than 0 and 1."""
        if y.shape[1] != self.outputs:
            raise ValueError(f"y: expected {self.outputs} labels, got {y.shape[1]}")
        if not np.isin(y, (0, 1)).all():
            raise ValueError("y: expected an indicator matrix of 0 and 1, got other numbers")
        return y.astype(bool)

    def decoded(self, scores: Array) -> Array:
        """Labels are there whose score is above 0: an indicator matrix."""
        return (scores > 0).astype(int)


@dataclass(frozen=True)
class RegressionTargets:
    """Numbers, one for each output."""

    outputs: int
    flat: bool  # whether y is (n,)
    told, each, senseless = "numbers", "column", CROSS_ENTROPIES

    @classmethod
    def of(cls, y: Array) -> Self:
        """As many as a row of y has."""
        return cls(1 if y.ndim == 1 else y.shape[1], y.ndim == 1)

    def default_loss(self, outputs: tuple[int, ...]) -> str | None:
        """The loss for a model of these outputs; None: it cannot be one for these targets."""
        return "mean_squared_error" if outputs == (self.outputs,) else None

    def encoded(self, y: Array, used: Used) -> Array:
        """y (n, outputs); raises ValueError for another number of columns than before."""
        if type(self).of(y) != self:
            raise ValueError(f"y: expected {self.outputs} targets a row, as before, got shape {y.shape}")
        return y.reshape(-1, self.outputs)

    def decoded(self, scores: Array) -> Array:
        """The scores themselves, (n,) where y was that."""
        return scores[:, 0] if self.flat else scores


Targets = MulticlassTargets | MultilabelTargets | RegressionTargets


def loss_of(given: Any, model: Sequential, targets: Targets) -> Loss:
    """The loss that an estimator was given; "auto" is that of these targets.

    Raises ValueError for a model of other outputs, and for a loss whose outputs would mean something else.
    """
    default = targets.default_loss(model.output_shape)
    if default is None:
        expected = f"outputs of shape ({targets.outputs},), one for each {targets.each} of y"
        raise ValueError(f"model: expected {expected}, got {model.output_shape}")
    loss = losses.get(default if isinstance(given, str) and given == "auto" else given)
    if isinstance(loss, targets.senseless):
        raise ValueError(f"loss: expected one for {targets.told}, got {loss!r}")
    return loss


def outputs_of(loss: Any, targets: Targets) -> int:
    """How many scores a model gives, if nobody says otherwise: of two classes one, if the loss is for that."""
    single = isinstance(loss, BinaryCrossEntropy) or (isinstance(loss, str) and loss == "binary_cross_entropy")
    return 1 if single and isinstance(targets, MulticlassTargets) and targets.outputs == 2 else targets.outputs
