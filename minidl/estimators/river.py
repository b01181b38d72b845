"""Online learning: networks as river's classifiers and regressors, which learn one example at a time.

It needs the river package: pip install "minidl[river]". Without it, the classes can be imported, but not called.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minidl.estimators.models import optimizer_of
from minidl.layers import Dense, ReLU
from minidl.layers.base import Layer
from minidl.losses import Loss
from minidl.sequential import Sequential
from minidl.trainer import Trainer
from minidl.utils.arrays import Array, as_array

try:
    from river.base import MiniBatchClassifier, MiniBatchRegressor
except ImportError:

    class MiniBatchClassifier:  # type: ignore[no-redef]
        """Stands for a class of river."""

        def __new__(cls, *args: object, **options: object) -> Any:
            """Raises ImportError."""
            raise ImportError(f'{cls.__name__} needs the river package: pip install "minidl[river]"')

    MiniBatchRegressor = MiniBatchClassifier

__all__ = ["OnlineClassifier", "OnlineRegressor"]

SMALLEST = 8, 2  # inputs and outputs of a new model
LARGEST = sys.float_info.max
ABSENT = "leave out what is missing"

Places = dict[Hashable, int]  # of features or labels in a vector, in the order in which they were learned
Features = Mapping[Hashable, Any]


class Online:
    """A network that grows with the features and labels that it meets. The arguments are those of OnlineClassifier."""

    layers: Callable[[int], Sequence[Layer]] | None
    loss: str | Loss = "softmax_cross_entropy"
    optimizer: Any
    lr: Any
    seed: int
    dtype: str

    def _begin(self) -> None:
        """Sets what an example changes."""
        self._features: Places = {}
        self._labels: Places = {}
        self._size = 0, 0  # inputs and outputs of the model
        self._trainer: Trainer | None = None

    def _learn(self, features: Places, labels: Places, rows: Array, y: Array, outputs: int) -> None:
        """Makes a step on rows of these features; keeps nothing of a step that raises."""
        size = rows.shape[1], outputs
        trainer = self._trainer if self._trainer is not None and size == self._size else self._grown(*size)
        trainer.train_batch(rows, y)
        self._features, self._labels, self._size, self._trainer = features, labels, size, trainer

    def _grown(self, inputs: int, outputs: int) -> Trainer:
        """Returns a trainer of a new model, with weights, running statistics and optimizer state of the one so far.

        They fill the first rows and columns of arrays that are larger now; other elements begin as in a new model.
        """
        if self.layers is not None and not callable(self.layers):
            raise TypeError(f"layers: expected a function of the number of outputs, got {self.layers!r}")
        layers = [Dense(64), ReLU(), Dense(outputs)] if self.layers is None else self.layers(outputs)
        model = Sequential(layers, (inputs,), self.seed, self.dtype)
        if model.output_shape != (outputs,):
            got = f"outputs of shape {model.output_shape}"
            raise ValueError(f"layers: expected {outputs} outputs, the argument of the function, got {got}")
        trainer = Trainer(model, self.loss, optimizer_of(self.optimizer, self.lr), seed=self.seed)
        if trainer.steps().update is None:
            raise TypeError(f"optimizer: expected one of minidl's, whose state can grow, got {self.optimizer!r}")
        if self._trainer is not None:
            _copy_state(trainer, self._trainer)
        return trainer

    def _scores(self, rows: Array) -> Array:
        """Returns the scores of some rows; of a model that has learned nothing, none."""
        if self._trainer is None:
            return np.zeros((len(rows), 0))
        scores: Array = self._trainer.model.predict(rows)
        return scores

    def _unit_test_skips(self) -> set[str]:
        """Returns the check of river that does not hold: a mini-batch is one step, not a step for each row."""
        return {"check_learn_many_matches_learn_one"}


def _copy_state(trainer: Trainer, before: Trainer) -> None:
    """Copies what a trainer has learned into one of a larger model."""
    state, update, old = trainer.model.state_dict(), trainer.steps().update, before.steps().update
    assert update is not None and old is not None
    for name, array in before.model.state_dict().items():
        _fill(state[name], array)
    trainer.model.load_state_dict(state)
    for name, flat in old.state.items():
        views = trainer.network.parameters.views(update.state[name]), before.network.parameters.views(flat)
        for view, array in zip(*views, strict=True):
            _fill(view, array)
    update.steps, trainer.step = old.steps, before.step


def _fill(target: Array, source: Array) -> None:
    """Copies an array into the first elements, along each axis, of a larger one."""
    target[tuple(map(slice, source.shape))] = source


def _extended(places: Places, names: Iterable[Hashable]) -> Places:
    """Returns the places with new names after the others, or the same if there are no new ones."""
    new = [name for name in dict.fromkeys(names) if name not in places]
    return places | {name: len(places) + i for i, name in enumerate(new)} if new else places


def _sorted(names: Iterable[Hashable]) -> list[Hashable]:
    """Returns names, of any types, in an order that does not depend on that of a dict."""
    return sorted(names, key=lambda name: (str(name), type(name).__name__))


def _room(places: Places, smallest: int) -> int:
    """Returns the least power of two, at least `smallest`, that has room for all places."""
    return max(smallest, 1 << (len(places) - 1).bit_length()) if places else smallest


def _row(x: Features, places: Places) -> Array:
    """Returns the numbers of an example as a row, without those of other features."""
    if type(x) is not dict and not isinstance(x, Mapping):
        raise TypeError(f"x: expected a dict of features, got {type(x).__name__}")
    row = np.zeros((1, _room(places, SMALLEST[0])))
    for name, value in x.items():
        if type(value) is not float and not isinstance(value, (numbers.Real, np.bool_)):
            raise TypeError(f"x: feature {name!r}: expected a number, got {value!r}: encode it first")
        if not -LARGEST <= value <= LARGEST:  # type: ignore[operator]
            raise ValueError(f"x: feature {name!r}: expected a finite number, got {value!r:.50}: {ABSENT}")
        if (place := places.get(name)) is not None:
            row[0, place] = value
    return row


def _columns(X: Any) -> Sequence[Hashable]:
    """Returns the names of a mini-batch's features."""
    if not hasattr(X, "columns"):
        raise TypeError(f"X: expected a pandas.DataFrame, got {type(X).__name__}")
    names: Sequence[Hashable] = X.columns
    return names


def _rows(X: Any, places: Places) -> Array:
    """Returns the numbers of a data frame as rows, without columns of other features."""
    names, rows = _columns(X), np.zeros((len(X), _room(places, SMALLEST[0])))
    for column, name in zip(as_array(X, "X").T, names, strict=True):
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise ValueError(f"X: feature {name!r}: expected finite numbers, got NaN or infinity: {ABSENT}")
        if (place := places.get(name)) is not None:
            rows[:, place] = column
    return rows


def _targets(y: Any) -> list[Any]:
    """Returns the targets of a mini-batch."""
    if not hasattr(y, "tolist"):
        raise TypeError(f"y: expected a pandas.Series, got {type(y).__name__}")
    found: list[Any] = y.tolist()
    return found


def _with_labels(places: Places, labels: Sequence[Hashable]) -> Places:
    """Returns the places with new labels after the others; raises ValueError for what stands for no label."""
    for label in labels:
        if label is None or label != label:  # NaN would be a new label each time
            raise ValueError(f"y: expected a label, got {label!r}")
    return _extended(places, labels)


class OnlineClassifier(Online, MiniBatchClassifier):
    """A network as a classifier of river: it learns one example at a time, or a mini-batch, each of which is a step.

    Features have names, and may appear and disappear. A feature takes an input of the network when it is first learned,
    and is 0 where it is missing; `predict` ignores features that were never learned. Likewise a label takes an output.
    When all inputs or outputs are taken, their number doubles: a new model gets the weights, running statistics and the
    state of the optimizer, and weights of its own for the new places.

    Parameters
    ----------
    layers : callable or None, default None
        A function of the number of outputs that returns new layers, for rows of numbers. None: a hidden layer of 64
        units. To be pickled, it must be a function of a module.
    optimizer : str or Optimizer, default "adam"
        As in SequentialClassifier.
    lr : float, schedule or None, default None
        Its learning rate; None: its own.
    seed : int, default 0
        Determines the initial weights.
    dtype : "float32" or "float64", default "float32"
        Dtype of all computations.

    Raises
    ------
    ImportError
        Without river: pip install "minidl[river]".

    See Also
    --------
    minidl.estimators.SequentialClassifier : Its `partial_fit` learns from arrays.

    Notes
    -----
    Numbers should be about 1: put river's `preprocessing.StandardScaler()` before it. Invalid arguments are refused by
    the first `learn_one`, as a clone of river takes any.

    Examples
    --------
    >>> from minidl.estimators.river import OnlineClassifier
    >>> from river import datasets, evaluate, metrics, preprocessing  # doctest: +SKIP
    >>> model = preprocessing.StandardScaler() | OnlineClassifier(lr=0.005)  # doctest: +SKIP
    >>> metric = evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())  # doctest: +SKIP
    >>> metric.get() > 0.85  # doctest: +SKIP
    True
    """

    def __init__(
        self,
        layers: Callable[[int], Sequence[Layer]] | None = None,
        optimizer: str | Any = "adam",
        lr: Any = None,
        seed: int = 0,
        dtype: str = "float32",
    ) -> None:
        self.layers, self.optimizer, self.lr, self.seed, self.dtype = layers, optimizer, lr, seed, dtype
        self._begin()

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Features, y: Hashable) -> None:
        """Makes a step on an example.

        Parameters
        ----------
        x : dict of hashable to number
            The features by name.
        y : hashable
            The label.

        Raises
        ------
        TypeError, ValueError
            If a feature is no finite number, naming it, if the label is None or NaN, or if an argument of the
            constructor is invalid.
        FloatingPointError
            If the loss or a gradient is NaN or infinite. Nothing changes then.
        """
        features, labels = _extended(self._features, _sorted(x)), _with_labels(self._labels, [y])
        self._learn(features, labels, _row(x, features), np.array([labels[y]]), _room(labels, SMALLEST[1]))

    def learn_many(self, X: Any, y: Any) -> None:
        """Makes a step on a mini-batch.

        Parameters
        ----------
        X : pandas.DataFrame
            A column for each feature.
        y : pandas.Series
            The labels.

        Raises
        ------
        TypeError, ValueError, FloatingPointError
            As `learn_one`.
        """
        features, given = _extended(self._features, _sorted(_columns(X))), _targets(y)
        labels = _with_labels(self._labels, given)
        encoded = np.array([labels[label] for label in given], np.int64)
        self._learn(features, labels, _rows(X, features), encoded, _room(labels, SMALLEST[1]))

    def _probabilities(self, rows: Array) -> Array:
        """Returns the softmax, in float64, of the scores of labels that were learned."""
        scores = self._scores(rows)[:, : len(self._labels)].astype(np.float64)
        e = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        probabilities: Array = e / e.sum(axis=1, keepdims=True)
        return probabilities

    def predict_proba_one(self, x: Features, **options: Any) -> dict[Hashable, float]:
        """Returns the probability of each label that was learned.

        Parameters
        ----------
        x : dict of hashable to number
            The features by name.
        **options
            Not used: river passes some to certain classifiers.

        Returns
        -------
        dict of hashable to float
            It is empty before the first example.

        Raises
        ------
        TypeError, ValueError
            As `learn_one`.
        """
        return dict(zip(self._labels, self._probabilities(_row(x, self._features))[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """Returns the probabilities of a mini-batch.

        Parameters
        ----------
        X : pandas.DataFrame
            A column for each feature.

        Returns
        -------
        pandas.DataFrame
            A column for each label that was learned.

        Raises
        ------
        TypeError, ValueError
            As `learn_one`.
        """
        import pandas as pd

        return pd.DataFrame(self._probabilities(_rows(X, self._features)), X.index, list(self._labels))


class OnlineRegressor(Online, MiniBatchRegressor):
    """A network as a regressor of river: it learns one example at a time, or a mini-batch, each of which is a step.

    Features appear and disappear as in OnlineClassifier. Before the first example, the prediction is 0.

    Parameters
    ----------
    layers : callable or None, default None
        As in OnlineClassifier.
    loss : str or loss, default "mean_squared_error"
        As for Trainer, of one number.
    optimizer : str or Optimizer, default "adam"
        As in SequentialRegressor.
    lr : float, schedule or None, default None
        Its learning rate; None: its own.
    seed : int, default 0
        Determines the initial weights.
    dtype : "float32" or "float64", default "float32"
        Dtype of all computations.

    Raises
    ------
    ImportError
        Without river: pip install "minidl[river]".

    See Also
    --------
    OnlineClassifier : The classifier.

    Notes
    -----
    Features and targets should be about 1: river has `preprocessing.StandardScaler` for features, and
    `preprocessing.TargetStandardScaler` around a regressor for targets.

    Examples
    --------
    >>> from minidl.estimators.river import OnlineRegressor
    >>> model = OnlineRegressor(lr=0.05)  # doctest: +SKIP
    >>> for i in range(300):  # doctest: +SKIP
    ...     model.learn_one({"x": i % 3}, 2 * (i % 3))
    >>> round(model.predict_one({"x": 2}))  # doctest: +SKIP
    4
    """

    def __init__(
        self,
        layers: Callable[[int], Sequence[Layer]] | None = None,
        loss: str | Loss = "mean_squared_error",
        optimizer: str | Any = "adam",
        lr: Any = None,
        seed: int = 0,
        dtype: str = "float32",
    ) -> None:
        self.layers, self.loss, self.optimizer, self.lr = layers, loss, optimizer, lr
        self.seed, self.dtype = seed, dtype
        self._begin()

    def learn_one(self, x: Features, y: float) -> None:
        """Makes a step on an example.

        Parameters
        ----------
        x : dict of hashable to number
            The features by name.
        y : float
            The target.

        Raises
        ------
        TypeError, ValueError, FloatingPointError
            As `OnlineClassifier.learn_one`.
        """
        features = _extended(self._features, _sorted(x))
        self._learn(features, {}, _row(x, features), np.array([y]), 1)

    def learn_many(self, X: Any, y: Any) -> None:
        """Makes a step on a mini-batch.

        Parameters
        ----------
        X : pandas.DataFrame
            A column for each feature.
        y : pandas.Series
            The targets.

        Raises
        ------
        TypeError, ValueError, FloatingPointError
            As `OnlineClassifier.learn_one`.
        """
        features = _extended(self._features, _sorted(_columns(X)))
        self._learn(features, {}, _rows(X, features), np.array(_targets(y)), 1)

    def predict_one(self, x: Features) -> float:
        """Returns the prediction of an example.

        Parameters
        ----------
        x : dict of hashable to number
            The features by name.

        Returns
        -------
        float
            The target, or 0 before the first example.

        Raises
        ------
        TypeError, ValueError
            As `learn_one`.
        """
        return float(self._scores(_row(x, self._features)).sum())

    def predict_many(self, X: Any) -> Any:
        """Returns the predictions of a mini-batch.

        Parameters
        ----------
        X : pandas.DataFrame
            A column for each feature.

        Returns
        -------
        pandas.Series
            A target for each row.

        Raises
        ------
        TypeError, ValueError
            As `learn_one`.
        """
        import pandas as pd

        return pd.Series(self._scores(_rows(X, self._features)).sum(axis=1), X.index)
