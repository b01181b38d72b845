"""TabularRegressor: networks for numbers of a table, without any argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from minidl.estimators.data import Data
from minidl.estimators.regressor import SequentialRegressor
from minidl.estimators.stopping import d2_of_quantiles
from minidl.estimators.tabular import TabularEstimator
from minidl.estimators.targets import RegressionTargets
from minidl.layers import Columns, Flatten, Hardtanh, MaxPool1D, Pad1D, Parallel, Rescale, Reshape
from minidl.layers.base import Layer
from minidl.losses import Pinball
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.hints import known_arguments

MAX_ROUNDING = 1e-4  # of targets in float32, relative to their range


class TabularRegressor(RegressorMixin, TabularEstimator):
    """Neural network regressor for tables: mixed columns as they come, without any argument.

    X is a data frame as it comes, or an array (n, columns). Numbers, booleans (0 and 1), dates and durations (seconds)
    are numbers; strings, objects and the dtype `category` are categories. Missing values (NaN, None, NaT, NA) are
    information of their own; categories with fewer than 5 rows count as one, and so do unknown ones later. Columns that
    are constant are left out. Nothing has to be scaled, encoded or filled in.
    Targets are scaled inside, and predictions stay within their range, up to rounding.

    Parameters
    ----------
    n_folds : int, default 4
        Number of networks, 2 to 256. Each is trained on all rows except those of its fold, on which each epoch is
        measured, and keeps the epoch of the lowest loss; the networks are averaged. A fold has at least two rows. Twice
        the folds take twice as long, and were more accurate on five of seven tables.
    quantiles : sequence of float, float or None, default None
        Quantiles to predict in place of the mean, between 0 and 1, in increasing order: [0.1, 0.5, 0.9] is the median,
        and a range that has about 80 % of the targets. Training minimizes the Pinball loss. Predictions are then
        (n, quantiles), of one number (n,). They do not cross: one that is lower than that of a smaller quantile is
        raised to it. Scores are the mean over the quantiles of `sklearn.metrics.d2_pinball_score`; y is (n,).
    hidden_layer_sizes : sequence of int, default (128, 128, 128)
        Number of units of each hidden layer.
    dropout : float, default 0.0
        Probability with which a unit of a hidden layer is set to 0 in training.
    lr : float, default 0.004
        Learning rate; it falls to a fifth after 8 epochs without improvement on the fold.
    weight_decay : float, default 0.0
        As for AdamW.
    epochs : int, default 200
        Largest number of epochs of each network, which ends after 17 epochs without improvement.
    time_limit : float or None, default None
        Seconds after which training ends, with the best epoch of each network so far. The result then depends on the
        machine, and is not reproducible.
    categorical_features : "from_dtype" or sequence of int and str, default "from_dtype"
        Columns with categories, as indices or names. "from_dtype": those of strings and objects, unless these are all
        numbers, and of the dtype `category`.
    random_state : int, RandomState or None, default None
        Determines folds, weights, order and dropout. With an int, repeated fits are bit-identical, on any number of
        threads.
    n_jobs : int or None, default None
        Number of networks that are fitted at the same time, each in one thread; None and -1:
        `minidl.get_num_threads()`.
    verbose : 0, 1, 2 or None, default 0
        0 is silent, 1 prints a line at the end, 2 also a bar; None: 2 on a terminal, else 1.

    Attributes
    ----------
    model_ : Sequential
        The network that `predict` runs, from what `encode` makes of a table to targets: the mean over all
        folds. It can be saved and exported. Its metadata describe the inputs, unless they are more than a file holds.
    estimators_ : list of SequentialRegressor
        The network of each fold, as an estimator of inputs; `estimators_[0].trainer_.history` has its epochs.
    oof_prediction_ : array or None
        What the network that has not seen a row predicts for it ("out of fold"), in the shape of `predict`; NaN for
        rows of weight 0. None for fewer than four rows.
    oof_score_ : float or None
        Score of these predictions, as `score` computes it. It estimates that of new rows, and is optimistic for some
        hundred rows or fewer: they also choose the epochs. A cross-validation is not.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns, if X was a data frame with names that are strings.

    See Also
    --------
    SequentialRegressor : A network of your own.

    Notes
    -----
    Numbers become places in bins between quantiles (PiecewiseLinearEncoding), categories one-hot vectors, inside the
    network. Hidden layers have ReLU; AdamW makes steps of 64 to 256 rows. These settings were chosen on inner splits of
    seven tables: see docs/benchmarks/tables.md.

    References
    ----------
    Gorishniy, Rubachev, Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning" (2022),
    arXiv:2203.05556. Holzmüller, Grinsztajn, Steinwart, "Better by Default" (2024), arXiv:2407.04491.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from minidl.estimators import TabularRegressor
    >>> X, y = make_friedman1(500, random_state=0)
    >>> TabularRegressor(random_state=0).fit(X[:400], y[:400]).score(X[400:], y[400:]) > 0.85
    True
    >>> ranges = TabularRegressor(quantiles=[0.1, 0.9], random_state=0).fit(X[:400], y[:400])
    >>> low, high = ranges.predict(X[400:]).T
    >>> bool(((low <= y[400:]) & (y[400:] <= high)).mean() > 0.6)
    True
    """

    _targets: RegressionTargets
    estimators_: list[SequentialRegressor]
    _unit = "targets, as predict returns them"

    @known_arguments
    def __init__(
        self,
        *,
        n_folds: int = 4,
        quantiles: float | Sequence[float] | None = None,
        hidden_layer_sizes: Sequence[int] = (128, 128, 128),
        dropout: float = 0.0,
        lr: float = 0.004,
        weight_decay: float = 0.0,
        epochs: int = 200,
        time_limit: float | None = None,
        categorical_features: Sequence[int | str] | str = "from_dtype",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int | None = 0,
    ) -> None:
        self.n_folds, self.quantiles = n_folds, quantiles
        self.hidden_layer_sizes, self.dropout = hidden_layer_sizes, dropout
        self.lr, self.weight_decay, self.epochs, self.time_limit = lr, weight_decay, epochs, time_limit
        self.categorical_features = categorical_features
        self.random_state, self.n_jobs, self.verbose = random_state, n_jobs, verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains the networks.

        Parameters
        ----------
        X : data frame or array-like of shape (n, columns)
            Rows of a table.
        y : array-like of shape (n,) or (n, targets)
            Numbers; with `quantiles` (n,).
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each row; rows of weight 0 count as absent.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        InputError
            If X, y or weights are invalid or do not match; the message names the column of X.
        TypeError, ValueError
            If arguments of the constructor are invalid.
        FloatingPointError
            If the loss becomes NaN or infinite.
        """
        self._fit(X, y, sample_weight)
        return self

    def _net(self, **arguments: Any) -> SequentialRegressor:
        loss = "auto" if self.quantiles is None else Pinball(self.quantiles)
        return SequentialRegressor(loss=loss, **arguments)

    def _monitor(self, data: Data) -> tuple[str, bool]:
        return "val_loss", True

    def _after(self) -> list[Layer]:
        """Returns layers that raise each quantile to the largest of those before it, so that none cross."""
        if not self._targets.shared:
            return []
        k = self._targets.outputs
        return [Reshape((1, k)), Pad1D((k - 1, 0), mode="replicate"), MaxPool1D(k, stride=1), Flatten()]

    def _average(self, data: Data) -> Sequential:
        model = super()._average(data)
        if self.quantiles is not None and model.metadata:
            model.metadata = {**model.metadata, "quantiles": np.atleast_1d(self.quantiles).tolist()}
        return model

    def _needs_float64(self, data: Data) -> bool:
        y = _used_targets(data)
        largest, least = np.abs(y).max(axis=0), np.finfo(np.float32).tiny
        spread = np.where(np.ptp(y, axis=0) > 0, np.ptp(y, axis=0), largest)  # a constant is held by itself
        is_far = largest * np.finfo(np.float32).eps > MAX_ROUNDING * spread
        return bool((is_far | (largest > 1 / least) | ((spread < least / MAX_ROUNDING) & (spread > 0))).any())

    def _last(self, data: Data) -> list[Layer]:
        """Returns the layer that keeps each output in the range of its targets."""
        y = _used_targets(data)
        limits = zip(y.min(axis=0).tolist(), y.max(axis=0).tolist(), strict=True)
        ranges: list[Layer] = [Hardtanh(low, high) if low < high else Rescale(0.0, low) for low, high in limits]
        return ranges if len(ranges) == 1 else [Parallel(*[[Columns(i, i + 1), r] for i, r in enumerate(ranges)])]

    def _shaped(self, predicted: Array) -> Array:
        return (predicted[:, 0] if self._targets.flat else predicted).astype(np.float64)

    def _score(self, y: Any, predicted: Array, weights: Any) -> float:
        loss = self.estimators_[0].trainer_.loss
        if isinstance(loss, Pinball):
            return d2_of_quantiles(y, predicted, loss.quantiles, weights)
        return float(r2_score(y, predicted, sample_weight=weights))

    def predict(self, X: ArrayLike) -> Array:
        """Returns the targets of each row, or their quantiles: the mean over all folds, within the range of the fit.

        Parameters
        ----------
        X : data frame or array-like of shape (n, columns)
            Rows of a table, with the columns of the fit.

        Returns
        -------
        array of shape (n,) or (n, targets)
            Numbers, in the shape of `y` in `fit`; (n, quantiles) for a sequence of `quantiles`, in their order.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X has other columns than in the fit, or values of another kind; the message names the column.
        """
        return self._predict(X)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Returns R² of the predictions; of quantiles, the mean over them of `sklearn.metrics.d2_pinball_score`.

        Parameters
        ----------
        X : data frame or array-like of shape (n, columns)
            Rows of a table, with the columns of the fit.
        y : array-like of shape (n,) or (n, targets)
            Numbers.
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each row.

        Returns
        -------
        float
            At most 1.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X has other columns than in the fit, or values of another kind; the message names the column.
        """
        return self._score(y, self.predict(X), sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.quantiles is None
        return tags


def _used_targets(data: Data) -> NDArray[np.float64]:
    """Returns the targets of rows that count, (n, targets)."""
    y = data.labels.reshape(len(data.labels), -1).astype(np.float64)
    return y if data.weights is None else y[data.weights > 0]
