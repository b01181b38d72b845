"""EnsembleClassifier and EnsembleRegressor: the mean of several nets that differ in their seeds."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier, is_regressor
from sklearn.ensemble._base import _set_random_states
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted

from minidl.estimators.classifier import SequentialClassifier
from minidl.estimators.regressor import SequentialRegressor
from minidl.training.many_fits import fit_many
from minidl.utils.arrays import Array
from minidl.utils.hints import known_arguments
from minidl.utils.validation import check_int


class SeedEnsemble(BaseEstimator):
    """Fits clones of an estimator that differ in their random_state. The arguments are those of EnsembleClassifier."""

    @known_arguments
    def __init__(
        self,
        estimator: Any = None,
        *,
        n_estimators: int = 5,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator, self.n_estimators = estimator, n_estimators
        self.random_state, self.n_jobs = random_state, n_jobs

    def _default(self) -> Any:
        """Returns the estimator in place of None."""
        raise NotImplementedError

    def _expected(self, estimator: Any) -> str:
        """Returns what is expected in place of this estimator; "": it will do."""
        raise NotImplementedError

    def _checked_estimator(self) -> Any:
        """Returns the estimator; raises TypeError for one whose members could not be averaged, or would be equal."""
        estimator = clone(self._default() if self.estimator is None else self.estimator)
        expected = self._expected(estimator)
        if not expected and not any(name.split("__")[-1] == "random_state" for name in estimator.get_params()):
            expected = "an estimator with a random_state, by which the members differ"
        if expected:
            raise TypeError(f"estimator: expected {expected}, got {estimator!r:.200}")
        return estimator

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        estimator = self._checked_estimator()
        random, members = check_random_state(self.random_state), []
        for _ in range(check_int("n_estimators", self.n_estimators)):
            members.append(clone(estimator))
            _set_random_states(members[-1], random)
        data = {"X": X, "y": y} | ({} if sample_weight is None else {"sample_weight": sample_weight})
        try:
            self.estimators_ = fit_many(members, each=[data] * len(members), n_jobs=self.n_jobs, verbose=0)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # mostly of the data, and the same for all

    def _mean(self, method: str, X: Any, return_std: bool) -> Any:
        """Returns the mean of what a method of each member returns, and with return_std the standard deviation, too."""
        check_is_fitted(self, "estimators_")
        of_members = np.stack([getattr(member, method)(X) for member in self.estimators_])
        mean = of_members.mean(axis=0)
        return (mean, of_members.std(axis=0)) if return_std else mean

    @property
    def n_features_in_(self) -> int:
        """Number of features of a row."""
        return int(self._first("n_features_in_"))

    @property
    def feature_names_in_(self) -> Array:
        """Names of the features, if X was a data frame with names that are strings."""
        return np.asarray(self._first("feature_names_in_"))

    def _first(self, attribute: str) -> Any:
        """Returns an attribute of the first member; raises AttributeError, as `hasattr` expects, if it has none."""
        if "estimators_" not in vars(self):
            raise AttributeError(f"{type(self).__name__}: {attribute} is known after a fit")
        return getattr(self.estimators_[0], attribute)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own = get_tags(self._default() if self.estimator is None else self.estimator)
        tags.input_tags.sparse = own.input_tags.sparse
        tags.target_tags.multi_output = own.target_tags.multi_output
        if own.classifier_tags is not None and tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = own.classifier_tags.multi_label
        return tags


class EnsembleClassifier(ClassifierMixin, SeedEnsemble):
    """Mean of the probabilities of several nets, which differ in their initial weights and in the order of examples.

    Parameters
    ----------
    estimator : classifier or None, default None
        A classifier with `predict_proba` and a `random_state`, or a pipeline with one; every fit trains clones. None:
        `SequentialClassifier()`.
    n_estimators : int, default 5
        Number of members.
    random_state : int, RandomState or None, default None
        Determines the `random_state` of each member.
    n_jobs : int or None, default None
        Number of members that are fitted at the same time, each in one thread; None and -1:
        `minidl.get_num_threads()`.

    Attributes
    ----------
    estimators_ : list of classifiers
        The fitted members. Each has the bits of its own fit.
    classes_ : array of shape (classes,)
        The labels, sorted; the column indices of an indicator matrix.
    n_features_in_ : int
        Number of features of a row.
    feature_names_in_ : array of str
        Names of the features, if X was a data frame with names that are strings.

    See Also
    --------
    minidl.fit_many : Trains the members.

    References
    ----------
    Lakshminarayanan et al., "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles" (2017),
    arXiv:1612.01474.

    Examples
    --------
    >>> from minidl.datasets import load_digits
    >>> from minidl.estimators import EnsembleClassifier, SequentialClassifier
    >>> digits, net = load_digits(), SequentialClassifier(epochs=5)
    >>> ensemble = EnsembleClassifier(net, n_estimators=3, random_state=0).fit(digits.X_train, digits.y_train)
    >>> mean, deviation = ensemble.predict_proba(digits.X_test, return_std=True)
    >>> mean.shape, deviation.shape
    ((355, 10), (355, 10))
    """

    def _default(self) -> SequentialClassifier:
        return SequentialClassifier()

    def _expected(self, estimator: Any) -> str:
        return (
            ""
            if is_classifier(estimator) and hasattr(estimator, "predict_proba")
            else "a classifier with predict_proba"
        )

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains the members.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples, as the members take them.
        y : array-like of shape (n,) or (n, labels)
            Labels, numbers or strings, or an indicator matrix.
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each row. A pipeline as `estimator` takes none: put the ensemble into the pipeline.

        Returns
        -------
        self
            The fitted ensemble.

        Raises
        ------
        TypeError
            If `estimator` is of another kind, or has no `random_state`.
        TypeError, ValueError, FloatingPointError
            As the `fit` of a member.
        """
        self._fit(X, y, sample_weight)
        self._is_multilabel = type_of_target(y) == "multilabel-indicator"
        return self

    @property
    def classes_(self) -> Array:
        """The labels, sorted; the column indices of an indicator matrix."""
        return np.asarray(self._first("classes_"))

    def predict(self, X: ArrayLike) -> Array:
        """Returns the label of the highest mean probability for each row, or those above 1/2.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.

        Returns
        -------
        array of shape (n,) or (n, labels)
            Labels, or an indicator matrix for multilabel targets.

        Raises
        ------
        NotFittedError
            Before a fit.
        TypeError, ValueError
            As `predict_proba` of a member.
        """
        mean = self.predict_proba(X)
        return (mean > 0.5).astype(np.int64) if self._is_multilabel else self.classes_[mean.argmax(axis=1)]

    def predict_proba(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Returns the mean of the members' probabilities, and with `return_std` also their standard deviation.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        return_std : bool, default False
            Whether to return the standard deviation over the members, too (divided by their number).

        Returns
        -------
        array of shape (n, classes), or tuple of two of them
            Probabilities, in the order of `classes_`.

        Raises
        ------
        NotFittedError
            Before a fit.
        TypeError, ValueError
            As `predict_proba` of a member.
        """
        return self._mean("predict_proba", X, return_std)


class EnsembleRegressor(RegressorMixin, SeedEnsemble):
    """Mean of the predictions of several nets, which differ in their initial weights and in the order of examples.

    Parameters
    ----------
    estimator : regressor or None, default None
        A regressor with a `random_state`, or a pipeline with one; every fit trains clones. None:
        `SequentialRegressor()`.
    n_estimators : int, default 5
        Number of members.
    random_state : int, RandomState or None, default None
        Determines the `random_state` of each member.
    n_jobs : int or None, default None
        Number of members that are fitted at the same time, each in one thread; None and -1:
        `minidl.get_num_threads()`.

    Attributes
    ----------
    estimators_ : list of regressors
        The fitted members. Each has the bits of its own fit.
    n_features_in_ : int
        Number of features of a row.
    feature_names_in_ : array of str
        Names of the features, if X was a data frame with names that are strings.

    See Also
    --------
    minidl.fit_many : Trains the members.

    Examples
    --------
    The members disagree where they have seen no examples:

    >>> import numpy as np
    >>> from minidl.estimators import EnsembleRegressor, SequentialRegressor
    >>> X = np.linspace(-1, 1, 64).reshape(-1, 1)
    >>> net = SequentialRegressor(epochs=50, lr=0.01)
    >>> ensemble = EnsembleRegressor(net, random_state=0).fit(X, X[:, 0] ** 2)
    >>> mean, deviation = ensemble.predict([[0.5], [20.0]], return_std=True)
    >>> bool(deviation[0] < 0.1 < deviation[1])
    True
    """

    def _default(self) -> SequentialRegressor:
        return SequentialRegressor()

    def _expected(self, estimator: Any) -> str:
        return "" if is_regressor(estimator) else "a regressor"

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains the members.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples, as the members take them.
        y : array-like of shape (n,) or (n, targets)
            Numbers.
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each row. A pipeline as `estimator` takes none: put the ensemble into the pipeline.

        Returns
        -------
        self
            The fitted ensemble.

        Raises
        ------
        TypeError
            If `estimator` is of another kind, or has no `random_state`.
        TypeError, ValueError, FloatingPointError
            As the `fit` of a member.
        """
        self._fit(X, y, sample_weight)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Returns the mean of the members' predictions, and with `return_std` also their standard deviation.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        return_std : bool, default False
            Whether to return the standard deviation over the members, too (divided by their number). It tells how far
            they disagree, and not how far the targets scatter.

        Returns
        -------
        array of shape (n,) or (n, targets), or tuple of two of them
            Numbers.

        Raises
        ------
        NotFittedError
            Before a fit.
        TypeError, ValueError
            As `predict` of a member.
        """
        return self._mean("predict", X, return_std)
