"""SequentialClassifier: a network as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from minidl.engine.probabilities import check_defined, link_of, predicted_probabilities
from minidl.engine.views import Views
from minidl.estimators.base import SequentialEstimator
from minidl.estimators.data import Data, Validation
from minidl.estimators.targets import MulticlassTargets, MultilabelTargets, Targets
from minidl.layers.base import Layer
from minidl.losses import Loss
from minidl.metrics import Metric
from minidl.optimizers.base import Rate
from minidl.sequential import Sequential
from minidl.training.labeled_data import from_one_hot
from minidl.utils.arrays import Array
from minidl.utils.hints import known_arguments
from minidl.utils.validation import Shape
from minidl.utils.weights import Weights, balanced_weights


class SequentialClassifier(ClassifierMixin, SequentialEstimator):
    """Neural network classifier for scikit-learn's pipelines, searches, ensembles and cross-validation.

    X is (n, features), `(n, *input_shape)`, a data frame or a sparse matrix, which becomes dense batch by batch.

    Parameters
    ----------
    model : Sequential, list of Layer, callable or None, default None
        The network, ending in a score for each class (a single score also works for two classes) or, for multilabel
        targets, for each label. Every fit copies a Sequential; a built one keeps its weights as initial weights. A
        function takes `input_shape` and `outputs`, or one of them, and returns a Sequential or a list of layers. None
        is one hidden layer of 100 units, after two convolutions for images.
    input_shape : tuple of int or None, default None
        Shape of one example for X in rows: (channels, height, width), or (channels, length) for signals. None: that of
        a built model, or of X, in which (n, height, width) are grey images.
    loss : str or loss, default "auto"
        As for Trainer. "auto" is softmax_cross_entropy, or binary_cross_entropy for a single score or multilabel
        targets. With the name "binary_cross_entropy", `outputs` is 1 for two classes.
    optimizer : str or Optimizer, default "adam"
        "adam", "adamw", "rmsprop", "adagrad", "sgd" (with momentum 0.9), or an object of minidl.optimizers.
    lr : float, callable or None, default None
        Learning rate, a number or a function of the step, which replaces that of the optimizer; None: the optimizer's
        own (0.01 for "sgd").
    epochs : int, default 200
        Largest number of epochs of `fit`.
    batch_size : int or "auto", default "auto"
        Number of examples in a step. "auto" is 200, or the next size that leaves no batch of a single example, or all
        if they are fewer.
    shuffle : bool, default True
        Whether to reorder the examples in each epoch.
    tol : float or None, default 1e-4
        `fit` stops after `n_iter_no_change` consecutive epochs in which the loss has not fallen by more than this;
        None: never. With `early_stopping`, the held-out accuracy counts, which has to rise by more than this; None: 0.
        An EarlyStopping in `callbacks` decides instead, with or without `early_stopping`.
    n_iter_no_change : int, default 10
        Number of consecutive epochs without improvement after which `fit` stops.
    early_stopping : bool, default False
        Whether to hold out examples, and keep the weights of the epoch with the highest accuracy on them, as
        MLPClassifier does. Accuracy has no weights, neither `class_weight` nor `sample_weight`. If one class has most
        of the rows, an epoch that predicts nothing else may win: set also
        `callbacks=[EarlyStopping("val_loss", patience=10)]`. An EarlyStopping in `callbacks` chooses the weights in
        place of the accuracy, and ends the fit.
    validation_fraction : float, default 0.1
        Fraction of the examples that `early_stopping` holds out, stratified by class; multilabel targets are stratified
        if each row has one label. See also `splitter`, and `groups` and `X_val` of `fit`.
    splitter : object with `split`, or None, default None
        A splitter of scikit-learn whose first split says which rows `early_stopping` holds out, instead of a random
        fraction; rows that are in neither part, such as a gap, are left out. With `groups` in `fit`, None is
        GroupShuffleSplit with the fraction above.
    metrics : list of str or function, default ()
        Metrics of the Trainer beside the accuracy, such as "roc_auc", of each epoch; with validation, "val_roc_auc" as
        well. They are called with indices of `classes_` and scores.
    class_weight : dict, list of dict, "balanced" or None, default None
        Weights of classes by label, which multiply `sample_weight`. Multilabel targets have a dict for each label; if
        each row has one label, also a single dict.
    warm_start : bool, default False
        Whether `fit` starts from the weights of the previous fit, which need the same `model`, `input_shape` and
        `dtype`. Everything else is reset.
    callbacks : iterable of objects, default ()
        Callbacks of the Trainer; see minidl.callbacks. With `early_stopping` or `X_val` they can monitor "val_loss",
        "val_accuracy" ("val_subset_accuracy" for multilabel targets), and `metrics`, such as "val_roc_auc".
        A fit trains with copies of them: see `callbacks_`.
    dtype : "auto", "float32" or "float64", default "auto"
        Dtype of the computations. "auto" is float64 for X in float64 (or a model in it), as scikit-learn computes, and
        for integers above 2**24 in X, which float32 would round; else float32.
    random_state : int, RandomState or None, default None
        Determines weights, order and dropout. With an int, repeated fits are bit-identical.
    num_threads : int or None, default None
        Number of threads; None: that of `minidl.get_num_threads`, which joblib, threadpoolctl and OMP_NUM_THREADS
        control.
    verbose : 0, 1, 2 or None, default 0
        0 is silent, 1 prints a line for each epoch, 2 also a progress bar; None: 2 on a terminal, else 1.

    Attributes
    ----------
    classes_ : array of shape (classes,)
        The labels, sorted; the column indices of an indicator matrix.
    n_features_in_ : int
        Number of features of a row.
    feature_names_in_ : array of str
        Names of the features, if X was a data frame with names that are strings.
    input_shape_ : tuple of int
        Shape of one example.
    n_iter_ : int
        Number of epochs that the model was trained for.
    loss_curve_ : list of float
        Loss of each epoch.
    validation_scores_ : list of float or None
        With `early_stopping` or `X_val`, the accuracy of each epoch on the held-out rows or on `X_val`.
    best_validation_score_ : float or None
        With `early_stopping` or `X_val`, the highest of these. It is that of another epoch than the model's if an
        EarlyStopping in `callbacks` chose differently.
    model_ : Sequential
        The trained model.
    trainer_ : Trainer
        The trainer, which has the complete history.
    callbacks_ : list of objects
        The copies of `callbacks` that the last fit trained with, such as an EarlyStopping with its `best_epoch`.

    See Also
    --------
    SequentialRegressor : The regressor.

    Notes
    -----
    A pickle stores the trainer as a checkpoint, which is read with the same checks. The pickle itself can still run
    code: do not load one that you do not trust. It stores a model function by its name: where it is loaded, the
    function's module must be importable.

    Examples
    --------
    >>> from minidl.datasets import load_digits
    >>> from minidl.estimators import SequentialClassifier
    >>> digits = load_digits()
    >>> classifier = SequentialClassifier(epochs=5, random_state=0).fit(digits.X_train, digits.y_train)
    >>> classifier.predict(digits.X_test).shape
    (355,)
    >>> classifier.n_iter_, classifier.input_shape_
    (5, (1, 8, 8))
    """

    _targets: MulticlassTargets | MultilabelTargets

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
        splitter: Any = None,
        metrics: Sequence[str | Metric] = (),
        class_weight: Mapping[Any, float] | str | None = None,
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
        self.splitter, self.metrics = splitter, metrics
        self.class_weight, self.warm_start, self.callbacks = class_weight, warm_start, callbacks
        self.dtype, self.random_state, self.num_threads, self.verbose = dtype, random_state, num_threads, verbose

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Trains the model.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        y : array-like of shape (n,) or (n, labels)
            Labels, numbers or strings, or an indicator matrix.
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each row; rows of weight 0 count as absent.
        X_val, y_val : array-like or None, default None
            Examples and targets on which each epoch is measured: `early_stopping` holds out none of X then. A Pipeline
            transforms X_val with `transform_input=["X_val"]`.
        sample_weight_val : array-like or None, default None
            A weight for each row of X_val in "val_loss".
        groups : array-like of shape (n,) or None, default None
            The group of each row, such as a patient or a machine, for `early_stopping`: it holds out whole groups, or
            passes them to `splitter`.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        InputError
            Before the first step, if X, y, weights or groups are invalid or do not match, or those of validation.
        TypeError, ValueError
            Before the first step, if arguments of the constructor are invalid.
        FloatingPointError
            If the loss becomes NaN or infinite.

        Examples
        --------
        >>> import numpy as np
        >>> from minidl.estimators import SequentialClassifier
        >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
        >>> classifier = SequentialClassifier(lr=0.1, random_state=0).fit(X, ["no", "no", "yes", "yes"])
        >>> classifier.classes_, classifier.predict([[-3.0], [3.0]])
        (array(['no', 'yes'], dtype='<U3'), array(['no', 'yes'], dtype='<U3'))
        """
        self._fit(X, y, sample_weight, Validation(X_val, y_val, sample_weight_val, groups))
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Trains for one more epoch on these examples, with the optimizer's state of previous calls.

        A rejected call changes nothing; an interrupted one keeps the steps already done. Parameters that were set since
        the last call count, an `lr` too; refused are another model, input_shape, dtype, loss, optimizer or
        random_state.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        y : array-like of shape (n,) or (n, labels)
            Labels, numbers or strings, or an indicator matrix.
        classes : array-like or None, default None
            All labels of this and later calls. Required in the first call unless `y` is an indicator matrix; in other
            calls None or the same.
        sample_weight : array-like of shape (n,) or None, default None
            A weight for each row; rows of weight 0 count as absent.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        InputError
            Before the first step, if X, y or weights are invalid or do not match.
        TypeError, ValueError
            Before the first step, if arguments of the constructor are invalid.
        FloatingPointError
            If the loss becomes NaN or infinite.

        Examples
        --------
        >>> from minidl.datasets import load_digits
        >>> from minidl.estimators import SequentialClassifier
        >>> digits, classifier = load_digits(), SequentialClassifier(random_state=0)
        >>> for start in range(0, 1200, 400):
        ...     X, y = digits.X_train[start : start + 400], digits.y_train[start : start + 400]
        ...     classifier = classifier.partial_fit(X, y, classes=range(10))
        >>> classifier.n_iter_
        3
        """
        if isinstance(self.class_weight, str):
            expected = "expected weights by class for partial_fit, which does not see all rows"
            hint = "; compute_class_weight of scikit-learn makes them of labels that you have"
            raise ValueError(f"class_weight: {expected}, got {self.class_weight!r}{hint}")
        known = self._targets if hasattr(self, "trainer_") else self._declare_targets(y, classes)
        if classes is not None and not np.array_equal(unique_labels(classes), known.classes):
            raise ValueError(f"classes: expected {known.classes.tolist()}, got {unique_labels(classes).tolist()}")
        self._partial_fit(X, y, sample_weight, known)
        return self

    # ---- targets

    def _declare_targets(self, y: Any, classes: Any) -> MulticlassTargets | MultilabelTargets:
        """Returns the Targets of all calls of partial_fit, from `classes` or an indicator matrix."""
        shape = np.shape(y)
        if len(shape) == 2 and shape[1] > 1:
            return MultilabelTargets(shape[1])
        if classes is None:
            raise ValueError("classes: expected all labels of all calls, in the first call of partial_fit, got None")
        return MulticlassTargets.of(unique_labels(classes), "classes")

    def _encode_targets(self, y: Array, used: NDArray[np.bool_], known: Targets | None) -> tuple[Array, Targets]:
        check_classification_targets(y[used])
        cls: type[MulticlassTargets | MultilabelTargets] = MultilabelTargets if y.ndim == 2 else MulticlassTargets
        targets = cls.of(y[used]) if known is None else known
        if not isinstance(targets, cls):
            raise ValueError(f"y: expected {targets.description}, as before, got shape {y.shape}")
        return targets.encode(y, used), targets

    def _class_weights(self, y: Array, weights: Weights, known: Targets | None, trained: Data | None) -> Weights | None:
        by_class = self.class_weight
        if by_class is None:
            return None
        if isinstance(by_class, (Mapping, str)) and (labels := from_one_hot(y)) is not None:
            y = labels
        if not (isinstance(by_class, Mapping) or (isinstance(by_class, str) and by_class == "balanced") or y.ndim == 2):
            raise TypeError(f"class_weight: expected a dict of weights by label, 'balanced' or None, got {by_class!r}")
        if isinstance(by_class, Mapping) and isinstance(known, MulticlassTargets):  # this y may lack some classes
            if unknown := by_class.keys() - set(known.classes.tolist()):
                raise ValueError(f"class_weight: expected labels of {known.classes.tolist()}, got {unknown}")
            present = set(y.tolist())
            by_class = {label: weight for label, weight in by_class.items() if label in present}
        if isinstance(by_class, str) and by_class == "balanced":
            return _balanced(y, weights) if trained is None else _balanced_as(trained, y)
        of_classes: Weights = compute_sample_weight(by_class, y)
        if not (np.isfinite(of_classes) & (of_classes >= 0)).all():
            raise ValueError(f"class_weight: expected finite weights of at least 0, got {self.class_weight}")
        return of_classes

    def _metric(self, targets: Targets, loss: Loss) -> str | Metric:
        return "accuracy" if isinstance(targets, MulticlassTargets) else "subset_accuracy"

    @property
    def classes_(self) -> Array:
        """The labels, sorted; the column indices of an indicator matrix."""
        self._fitted_trainer()
        return self._targets.classes

    # ---- predicting

    def predict(self, X: ArrayLike, views: Views | None = None) -> Array:
        """Returns the label of each row.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        views : "flip", "flip+shift", callable or None, default None
            Views of images whose mean scores count: see `Sequential.predict`.

        Returns
        -------
        array of shape (n,) or (n, labels)
            Labels, or an indicator matrix for multilabel targets.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X is invalid, or if a score is NaN.

        Examples
        --------
        An indicator matrix of two labels, which is learned exactly:

        >>> import numpy as np
        >>> from minidl.estimators import SequentialClassifier
        >>> X = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
        >>> classifier = SequentialClassifier(lr=0.1, random_state=0).fit(X, X > 0)
        >>> classifier.predict([[-2.0, 2.0]])
        array([[0, 1]])
        """
        scores = self._scores(X, views)
        return self._targets.decode(scores)

    def predict_proba(self, X: ArrayLike, views: Views | None = None) -> Array:
        """Returns the probabilities of the classes, as the loss makes them of the scores; see `Trainer.predict_proba`.

        By default they are the softmax of the scores, or the sigmoid of each for multilabel targets.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        views : "flip", "flip+shift", callable or None, default None
            Views of images whose mean scores count: see `Sequential.predict`.

        Returns
        -------
        array of shape (n, classes)
            Probabilities, in the order of `classes_`.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X is invalid, or if a score or a probability is NaN.
        ValueError
            If the loss is one of your own that does not say what it `applies`.

        Examples
        --------
        >>> import numpy as np
        >>> from minidl.estimators import SequentialClassifier
        >>> classifier = SequentialClassifier(epochs=1, random_state=0).fit([[-1.0], [0.0], [1.0]], [2, 4, 6])
        >>> np.allclose(classifier.predict_proba([[3.0], [5.0]]).sum(axis=1), 1)
        True
        """
        return predicted_probabilities(self._scores(X, views), self._link("predict_proba"), self.trainer_.network)

    def predict_log_proba(self, X: ArrayLike, views: Views | None = None) -> Array:
        """Returns the logarithms of `predict_proba`, from the scores: finite even if a probability underflows.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        views : "flip", "flip+shift", callable or None, default None
            Views of images whose mean scores count: see `Sequential.predict`.

        Returns
        -------
        array of shape (n, classes)
            Logarithms of probabilities, in the order of `classes_`.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X is invalid, or if a score or a probability is NaN.
        ValueError
            If the loss is one of your own that does not say what it `applies`.
        """
        scores = self._scores(X, views)
        if self._link("predict_log_proba") == "Sigmoid" and scores.shape[1] > 1:
            return np.asarray(log_expit(scores))
        with np.errstate(over="ignore"):  # differences of the largest numbers
            logarithms = log_softmax(np.pad(scores, ((0, 0), (int(scores.shape[1] == 1), 0))), axis=1)
        check_defined(logarithms, self.trainer_.network, "probabilities")
        return np.maximum(logarithms, np.finfo(scores.dtype).min)

    def _link(self, method: str) -> str:
        return link_of(method, self.model_.layers, self.model_.output_shape, self.trainer_.loss)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _balanced(y: Array, weights: Weights) -> Weights:
    """Returns the balanced weight of each row: of several labels, the product of theirs."""
    columns = y.reshape(len(y), -1).T
    return np.asarray(np.prod([balanced_weights(column, weights) for column in columns], axis=0))


def _balanced_as(trained: Data, y: Array) -> Weights:
    """Returns the weights that rows of the labels y have in the training data; 1 for labels that these lack."""
    own = np.ones(len(trained.labels)) if trained.sample_weight is None else trained.sample_weight
    labels, own, of_rows = trained.labels[own > 0], own[own > 0], np.ones(len(y))
    if y.ndim == 1 and labels.ndim == 2:  # one-hot rows
        labels = labels.argmax(axis=1)
    for column, given in zip(labels.reshape(len(labels), -1).T, y.reshape(len(y), -1).T, strict=True):
        classes, rows = np.unique(column, return_index=True)
        places = np.searchsorted(classes, given).clip(max=len(classes) - 1)
        of_rows *= np.where(classes[places] == given, balanced_weights(column, own)[rows][places], 1.0)
    return of_rows
