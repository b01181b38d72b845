"""SequentialRegressor: a network as a scikit-learn regressor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from minidl.estimators.base import SequentialEstimator
from minidl.estimators.stopping import r2_of_rates
from minidl.estimators.targets import RegressionTargets, Targets
from minidl.layers.base import Layer
from minidl.losses import Loss, Poisson
from minidl.metrics import Metric
from minidl.optimizers.base import Rate
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.hints import known_arguments
from minidl.utils.validation import Shape


class SequentialRegressor(RegressorMixin, SequentialEstimator):
    """Neural network regressor for one or several targets: the counterpart of SequentialClassifier.

    The arguments are those of SequentialClassifier, except class_weight, with the same meaning. `model` ends in one
    output per target. The loss "auto" is mean_squared_error. Early stopping uses R² on the held-out rows. With the loss
    "poisson" the model outputs logarithms, and `predict` returns their exponentials. Targets are not scaled: scale
    them, or use sklearn.compose.TransformedTargetRegressor.

    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(300, random_state=0)
    >>> SequentialRegressor(lr=0.01, random_state=0).fit(X, y).score(X, y) > 0.8
    True
    """

    _numeric = True

    @known_arguments
    def __init__(
        self,
        model: Sequential | Sequence[Layer] | Callable[..., Any] | None = None,
        *,
        input_shape: Shape | None = None,
        loss: str | Loss = "auto",
        optimizer: str | Any = "adam",
        lr: Rate | None = None,
        epochs: int = 200,
        batch_size: int | str = "auto",
        shuffle: bool = True,
        tol: float | None = 1e-4,
        n_iter_no_change: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        warm_start: bool = False,
        callbacks: Iterable[Any] = (),
        dtype: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        num_threads: int | None = None,
        verbose: int | None = 0,
    ) -> None:
        self.model, self.input_shape, self.loss = model, input_shape, loss
        self.optimizer, self.lr = optimizer, lr
        self.epochs, self.batch_size, self.shuffle = epochs, batch_size, shuffle
        self.tol, self.n_iter_no_change = tol, n_iter_no_change
        self.early_stopping, self.validation_fraction = early_stopping, validation_fraction
        self.warm_start, self.callbacks = warm_start, callbacks
        self.dtype, self.random_state, self.num_threads, self.verbose = dtype, random_state, num_threads, verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains the model. Rows of weight 0 count as absent.

        y: numbers, (n,) or (n, targets). Raises TypeError or ValueError before the first step for invalid or mismatched
        arguments, FloatingPointError if the loss becomes NaN or infinite.
        """
        self._fit(X, y, sample_weight)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains for one more epoch on these examples, with the optimizer's state of previous calls.

        Raises as fit. A rejected call changes nothing; an interrupted one keeps the steps already done.
        """
        self._partial_fit(X, y, sample_weight, None)
        return self

    def _encode_targets(self, y: Array, used: NDArray[np.bool_], known: Targets | None) -> tuple[Array, Targets]:
        targets = RegressionTargets.of(y) if known is None else known
        return targets.encode(y, used), targets

    def _metric(self, targets: Targets, loss: Loss) -> str | Metric:
        return r2_of_rates if isinstance(loss, Poisson) else "r2"

    def predict(self, X: ArrayLike) -> Array:
        """Returns the targets of each row, (n,) or (n, targets) as in fit. Raises NotFittedError before a fit."""
        scores = self._scores(X)
        return self._targets.decode(np.exp(scores) if isinstance(self.trainer_.loss, Poisson) else scores)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
