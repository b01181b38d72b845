"""TabularClassifier: networks for the classes of a table, without any argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from minidl.estimators.classifier import SequentialClassifier
from minidl.estimators.data import Data
from minidl.estimators.tabular import TabularEstimator
from minidl.estimators.targets import MulticlassTargets, MultilabelTargets
from minidl.layers import Sigmoid, Softmax
from minidl.layers.base import Layer
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.hints import known_arguments

MAX_SHARE = 0.9  # of a class; beyond it, accuracy hardly tells an epoch from a constant answer


class TabularClassifier(ClassifierMixin, TabularEstimator):
    """Neural network classifier for tables: mixed columns as they come, without any argument.

    X is a data frame as it comes, or an array (n, columns). Numbers, booleans (0 and 1), dates and durations (seconds)
    are numbers; strings, objects and the dtype `category` are categories. Missing values (NaN, None, NaT, NA) are
    information of their own; categories with fewer than 5 rows count as one, and so do unknown ones later. Columns that
    are constant are left out. Nothing has to be scaled, encoded or filled in.

    Parameters
    ----------
    n_folds : int, default 4
        Number of networks, 2 to 256. Each is trained on all rows except those of its fold, on which each epoch is
        measured, and keeps the best epoch; the networks are averaged. The best epoch has the highest accuracy, or the
        lowest loss with a `class_weight`, for several labels, and if a class has more than 90 % of the rows. A fold has
        at least two rows. Twice the folds take twice as long, and were more accurate on five of seven tables.
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
    class_weight : dict, "balanced" or None, default None
        Weights of the classes: a dict from label to weight, or "balanced", by which all have the same total weight. A
        row has its class's weight times its own.
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
    classes_ : array of shape (classes,)
        The labels, sorted; the column indices of an indicator matrix.
    model_ : Sequential
        The network that `predict` runs, from what `encode` makes of a table to probabilities: the mean over all
        folds. It can be saved and exported. Its metadata describe the inputs, unless they are more than a file holds.
    estimators_ : list of SequentialClassifier
        The network of each fold, as an estimator of inputs; `estimators_[0].trainer_.history` has its epochs.
    oof_prediction_ : array or None
        What the network that has not seen a row predicts for it ("out of fold"): probabilities; NaN for rows of
        weight 0. None for fewer than four rows.
    oof_score_ : float or None
        Accuracy of these predictions. It estimates that of new rows, and is optimistic for some hundred rows or fewer:
        they also choose the epochs. A cross-validation is not.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of str
        Names of the columns, if X was a data frame with names that are strings.

    See Also
    --------
    SequentialClassifier : A network of your own.

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
    >>> import numpy as np
    >>> from minidl.estimators import TabularClassifier
    >>> random = np.random.default_rng(0)
    >>> table = np.empty((400, 2), object)
    >>> table[:, 0], table[:, 1] = random.normal(size=400), random.choice(["a", "b", None], 400)
    >>> y = np.where((table[:, 0].astype(float) > 0) == (table[:, 1] == "a"), "yes", "no")
    >>> classifier = TabularClassifier(random_state=0).fit(table[:300], y[:300])
    >>> classifier.score(table[300:], y[300:]) > 0.9
    True
    """

    _targets: MulticlassTargets | MultilabelTargets
    _unit = "probabilities of the classes, as predict_proba returns them"

    @known_arguments
    def __init__(
        self,
        *,
        n_folds: int = 4,
        hidden_layer_sizes: Sequence[int] = (128, 128, 128),
        dropout: float = 0.0,
        lr: float = 0.004,
        weight_decay: float = 0.0,
        epochs: int = 200,
        time_limit: float | None = None,
        categorical_features: Sequence[int | str] | str = "from_dtype",
        class_weight: Mapping[Any, float] | str | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int | None = 0,
    ) -> None:
        self.n_folds, self.hidden_layer_sizes, self.dropout = n_folds, hidden_layer_sizes, dropout
        self.lr, self.weight_decay, self.epochs, self.time_limit = lr, weight_decay, epochs, time_limit
        self.categorical_features, self.class_weight = categorical_features, class_weight
        self.random_state, self.n_jobs, self.verbose = random_state, n_jobs, verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains the networks.

        Parameters
        ----------
        X : data frame or array-like of shape (n, columns)
            Rows of a table.
        y : array-like of shape (n,) or (n, labels)
            Labels, numbers or strings, or an indicator matrix.
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

    def _net(self, **arguments: Any) -> SequentialClassifier:
        return SequentialClassifier(class_weight=self.class_weight, **arguments)

    def _monitor(self, data: Data) -> tuple[str, bool]:
        by_accuracy = isinstance(data.targets, MulticlassTargets) and self.class_weight is None
        if by_accuracy:
            counts = np.bincount(data.y if data.weights is None else data.y[data.weights > 0])
            by_accuracy = bool(counts.max() <= MAX_SHARE * counts.sum())
        return ("val_accuracy", False) if by_accuracy else ("val_loss", True)

    def _after(self) -> list[Layer]:
        return [Sigmoid() if isinstance(self._targets, MultilabelTargets) else Softmax()]

    def _average(self, data: Data) -> Sequential:
        model = super()._average(data)
        with suppress(ValueError):  # labels that a file cannot hold
            model.classes = [
                label if type(label) in (int, str) else str(label) for label in self._targets.classes.tolist()
            ]
        return model

    def _score(self, y: Array, predicted: Array, weights: Array | None) -> float:
        return float(accuracy_score(y, self._labels(predicted), sample_weight=weights))

    @property
    def classes_(self) -> Array:
        """The labels, sorted; the column indices of an indicator matrix."""
        check_is_fitted(self, "_network")
        return self._targets.classes

    def _labels(self, probabilities: Array) -> Array:
        if isinstance(self._targets, MultilabelTargets):
            return (probabilities > 0.5).astype(int)
        return self._targets.classes[probabilities.argmax(axis=1)]

    def predict(self, X: ArrayLike) -> Array:
        """Returns the label of each row: that of the highest probability; of several labels, those above 1/2.

        Parameters
        ----------
        X : data frame or array-like of shape (n, columns)
            Rows of a table, with the columns of the fit.

        Returns
        -------
        array of shape (n,) or (n, labels)
            Labels, or an indicator matrix.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X has other columns than in the fit, or values of another kind; the message names the column.
        """
        return self._labels(self._predict(X))

    def predict_proba(self, X: ArrayLike) -> Array:
        """Returns the probabilities of the classes: the mean over the networks of all folds.

        Parameters
        ----------
        X : data frame or array-like of shape (n, columns)
            Rows of a table, with the columns of the fit.

        Returns
        -------
        array of shape (n, classes)
            Probabilities, in the order of `classes_`.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X has other columns than in the fit, or values of another kind; the message names the column.
        """
        return self._predict(X)

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Returns the logarithms of `predict_proba`, -inf for probabilities that are 0 in the network's dtype.

        Parameters
        ----------
        X : data frame or array-like of shape (n, columns)
            Rows of a table, with the columns of the fit.

        Returns
        -------
        array of shape (n, classes)
            Logarithms of probabilities, in the order of `classes_`.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X has other columns than in the fit, or values of another kind; the message names the column.
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self._predict(X)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
