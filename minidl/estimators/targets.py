"""Encoding of an estimator's targets: classes, multilabel indicators, or regression targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from minidl import losses
from minidl.layers import Normalize, Rescale
from minidl.layers.base import Layer
from minidl.losses import BinaryCrossEntropy, Loss, Pinball
from minidl.sequential import Sequential
from minidl.utils.arrays import Array, as_array
from minidl.utils.weights import Weights

Used = NDArray[np.bool_]  # rows of weight above 0
REGRESSION_LOSSES = (losses.MeanSquaredError, losses.MeanAbsoluteError, losses.Huber, losses.Poisson, Pinball)


def check_one_type(y: Array) -> None:
    """Raises ValueError for labels that cannot be ordered, such as strings among numbers."""
    if y.dtype == object:
        try:
            np.unique(y)
        except TypeError as error:
            types = ", ".join(sorted({type(label).__name__ for label in y.flat}))
            expected = "expected labels of one type, all numbers or all strings"
            raise ValueError(f"y: unknown label type: {expected}, got {types}") from error


@dataclass(frozen=True)
class MulticlassTargets:
    """One of `classes` for each row."""

    classes: Array
    description, unit, invalid_losses = "one label per row", "class", REGRESSION_LOSSES
    invalid_links = ()

    @classmethod
    def of(cls, y: Array, name: str = "y") -> Self:
        """Returns the Targets of y's classes; raises ValueError, naming the class, if there is only one."""
        classes = np.unique(y)
        if len(classes) < 2:
            raise ValueError(f"{name}: expected at least two classes, got one class, {classes.tolist()}")
        return cls(classes)

    @property
    def outputs(self) -> int:
        """The number of scores of a model, one per class."""
        return len(self.classes)

    def default_loss(self, outputs: tuple[int, ...]) -> str | None:
        """Returns the loss for a model with these outputs; None: they do not fit these targets."""
        if outputs == (1,) and len(self.classes) == 2:
            return "binary_cross_entropy"
        return "softmax_cross_entropy" if outputs == (len(self.classes),) else None

    def encode(self, y: Array, used: Used) -> NDArray[np.int64]:
        """Returns the class index of each row, 0 for rows not used; raises ValueError for unknown labels."""
        unknown = np.setdiff1d(y[used], self.classes)
        if len(unknown):
            raise ValueError(f"y: expected classes {self.classes.tolist()}, got {unknown.tolist()} as well")
        indices = np.searchsorted(self.classes, y)
        return np.where(used, indices, 0)

    def decode(self, scores: Array) -> Array:
        """Returns the label of the highest score; for a single score, the second label if it is above 0."""
        return self.classes[(scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)]


@dataclass(frozen=True)
class MultilabelTargets:
    """Any subset of the labels for each row: an indicator matrix."""

    outputs: int
    description, unit, invalid_losses = "an indicator matrix (n, labels)", "label", REGRESSION_LOSSES
    invalid_links = ("Softmax",)  # scores are compared with 0, one by one

    @classmethod
    def of(cls, y: Array) -> Self:
        """Returns the Targets of an indicator matrix, one label per column."""
        return cls(y.shape[1])

    @property
    def classes(self) -> Array:
        """The column indices."""
        return np.arange(self.outputs)

    def default_loss(self, outputs: tuple[int, ...]) -> str | None:
        """Returns the loss for a model with these outputs; None: they do not fit these targets."""
        return "binary_cross_entropy" if outputs == (self.outputs,) else None

    def encode(self, y: Array, used: Used) -> Array:
        """Returns the matrix as bools; raises ValueError for another number of columns, or values except 0 and 1."""
        if y.shape[1] != self.outputs:
            raise ValueError(f"y: expected {self.outputs} labels, got {y.shape[1]}")
        if not np.isin(y, (0, 1)).all():
            raise ValueError("y: expected an indicator matrix of 0 and 1, got other values")
        return y.astype(bool)

    def decode(self, scores: Array) -> Array:
        """Returns an indicator matrix, with 1 where the score is above 0."""
        return (scores > 0).astype(int)


@dataclass(frozen=True)
class RegressionTargets:
    """One number for each output; a model learns `(y - mean) / scale` of each column, or y itself if there are none."""

    outputs: int
    flat: bool  # whether predictions are (n,)
    mean: tuple[float, ...] = ()  # these defaults are those of pickles from before targets were scaled
    scale: tuple[float, ...] = ()
    shared: bool = False  # whether y has one column, the target of all outputs: those of quantiles
    description, invalid_losses = "numbers", ()
    invalid_links = ("Softmax", "Sigmoid")

    @property
    def unit(self) -> str:
        """What each output is of."""
        return "quantile" if self.shared else "column"

    @classmethod
    def of(cls, y: Array, loss: Any = None) -> Self:
        """Returns the Targets of y, (n,) or (n, outputs); raises ValueError for several columns with a Pinball loss."""
        if isinstance(loss, Pinball):
            if y.ndim > 1:
                raise ValueError(f"y: expected one number for each row with {loss!r}, got shape {y.shape}")
            if isinstance(loss.quantiles, tuple):
                return cls(len(loss.quantiles), False, shared=True)
        return cls(1 if y.ndim == 1 else y.shape[1], y.ndim == 1)

    def default_loss(self, outputs: tuple[int, ...]) -> str | None:
        """Returns the loss for a model with these outputs; None: they do not fit these targets."""
        return "mean_squared_error" if outputs == (self.outputs,) else None

    def encode(self, y: Array, used: Used) -> Array:
        """Returns y as (n, columns); raises ValueError for another number of columns than before."""
        columns = 1 if self.shared else self.outputs
        if y.shape[1:] != (() if self.flat or self.shared else (columns,)):
            raise ValueError(f"y: expected {columns} targets per row, as before, got shape {y.shape}")
        return y.reshape(-1, columns)

    def scaled_by(self, y: Array, weights: Weights | None, dtype: str) -> Self:
        """Returns the Targets with mean and standard deviation of y (n, outputs), of its rows of weight above 0.

        The scale of a column is 1 if it is constant, up to rounding, or if its deviation is below what `dtype` has as a
        normal number.
        """
        y, own = as_array(y, "y").astype(np.float64), np.ones(len(y)) if weights is None else weights
        y, own, limits = y[own > 0], own[own > 0] / own.max(), np.finfo(dtype)
        size = np.abs(y).max(axis=0)
        if (size > limits.max).any():
            raise ValueError(f"y: expected values that {dtype} can hold, got larger ones")
        with np.errstate(invalid="ignore"):  # of NaN, which the trainer refuses
            y = np.divide(y, size, where=size > 0, out=y)  # so that no square overflows or underflows
            first = y[0].copy()  # a sum of deviations from one of equal numbers is exact
            y -= first
            mean = np.average(y, axis=0, weights=own)
            std = np.sqrt(np.average(np.square(y - mean), axis=0, weights=own))
        varies = (std > 10 * np.finfo(np.float64).eps) & (std * size >= limits.tiny)
        scale = np.where(varies, np.minimum(std * size, 1 / limits.tiny), 1.0)  # whose inverse is a normal number, too
        return replace(self, mean=tuple(((first + mean) * size).tolist()), scale=tuple(scale.tolist()))

    def scaled(self, y: Array) -> Array:
        """Returns what a model learns of y (n, outputs)."""
        with np.errstate(over="ignore"):  # the trainer refuses infinity
            return (as_array(y, "y").astype(np.float64) - self.mean) / self.scale if self.scale else y

    def scaling_back(self) -> Layer:
        """Returns the layer that makes predictions of what a model has learned."""
        mean, scale = np.array(self.mean), np.array(self.scale)
        return Rescale(self.scale[0], self.mean[0]) if len(scale) == 1 else Normalize(-mean / scale, 1 / scale)

    def decode(self, scores: Array) -> Array:
        """Returns the scores, as (n,) if predictions have that shape."""
        return scores[:, 0] if self.flat else scores


Targets = MulticlassTargets | MultilabelTargets | RegressionTargets


def loss_of(given: Any, model: Sequential, targets: Targets) -> Loss:
    """Returns the loss of an estimator; "auto" is the default for these targets.

    Raises ValueError for a model with other outputs, and for a loss whose outputs would have another meaning.
    """
    default = targets.default_loss(model.output_shape)
    if default is None:
        expected = f"outputs of shape ({targets.outputs},), one for each {targets.unit} of y"
        raise ValueError(f"model: expected {expected}, got {model.output_shape}")
    loss = losses.get(default if isinstance(given, str) and given == "auto" else given)
    if isinstance(loss, targets.invalid_losses) or getattr(loss, "applies", None) in targets.invalid_links:
        hint = "; for one label per row, y.argmax(axis=1)" if isinstance(targets, MultilabelTargets) else ""
        raise ValueError(f"loss: expected one for {targets.description}, got {loss!r}{hint}")
    return loss


def outputs_of(loss: Any, targets: Targets) -> int:
    """Returns the default number of a model's scores: one for two classes if the loss is binary_cross_entropy."""
    single = isinstance(loss, BinaryCrossEntropy) or (isinstance(loss, str) and loss == "binary_cross_entropy")
    return 1 if single and isinstance(targets, MulticlassTargets) and targets.outputs == 2 else targets.outputs
