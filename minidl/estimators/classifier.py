"""SequentialClassifier: a network as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from minidl.estimators.base import SequentialEstimator, Weights
from minidl.estimators.targets import MulticlassTargets, MultilabelTargets, Targets
from minidl.layers.base import Layer
from minidl.losses import Loss, probabilities
from minidl.metrics import Metric
from minidl.optimizers.base import Rate
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.hints import known_arguments
from minidl.utils.validation import Shape


class SequentialClassifier(ClassifierMixin, SequentialEstimator):
    """Neural network classifier for scikit-learn's pipelines, searches, ensembles and cross-validation.

    model: the network, ending in a score for each class (a single score also works for two classes) or, for multilabel
        targets, for each label. A Sequential, a list of layers, a function that returns one of these, or None. Every
        fit copies a Sequential; a built one keeps its weights as initial weights. A function takes `input_shape` and
        `outputs`, or one of them. None is one hidden layer of 100 units, after two convolutions for images.
    input_shape: of one example, (channels, height, width), for X in rows, or (channels, length), for signals; None:
        that of a built model, or of X, in which (n, height, width) are grey images.
    loss: as for Trainer. "auto" is softmax_cross_entropy, or binary_cross_entropy for a single score or multilabel
        targets. With the name "binary_cross_entropy", `outputs` is 1 for two classes.
    optimizer: "adam", "adamw", "rmsprop", "adagrad", "sgd" (with momentum 0.9), or an object of minidl.optimizers.
    lr: the learning rate, a number or a function of the step, which replaces that of the optimizer; None: the
        optimizer's own (0.01 for "sgd").
    epochs: the maximum number of epochs of `fit`.
    batch_size: "auto" is 200 (201 if the last batch would hold a single example), or all examples if they are fewer.
    shuffle: whether to reorder the examples in each epoch.
    tol, n_iter_no_change: `fit` stops after n_iter_no_change consecutive epochs in which the loss has not fallen by
        more than tol (None: never). With early_stopping, in which the held-out accuracy has not risen by more than tol.
    early_stopping, validation_fraction: whether to hold out this fraction of the examples, stratified, and keep the
        weights of the epoch that was best on them.
    class_weight: weights of classes by label, "balanced", or None; they multiply sample_weight.
    warm_start: whether `fit` starts from the weights of the previous fit. Everything else is reset.
    callbacks: for the Trainer; see minidl.callbacks.
    dtype: "float32", "float64", or "auto": float64 for X in float64 (or a model in it), as scikit-learn computes, else
        float32.
    random_state: of weights, order and dropout. With an int, repeated fits are bit-identical.
    num_threads: None: minidl.get_num_threads(), which joblib, threadpoolctl and OMP_NUM_THREADS control.
    verbose: 0 is silent, 1 prints a line per epoch, 2 also a progress bar.

    Attributes after a fit: `classes_`, `n_features_in_`, `feature_names_in_`, `input_shape_`, `n_iter_`,
    `loss_curve_`, `validation_scores_`, `best_validation_score_`, `model_` (the Sequential) and `trainer_`, which has
    the complete history.

    X is (n, features), (n, *input_shape), a data frame or a sparse matrix, which becomes dense batch by batch.

    A pickle stores the trainer as a checkpoint, which is read with the same checks. The pickle itself can still run
    code: do not load one that you do not trust.

    >>> from minidl.datasets import load_digits
    >>> digits = load_digits()
    >>> classifier = SequentialClassifier(epochs=5, random_state=0).fit(digits.X_train, digits.y_train)
    >>> classifier.predict(digits.X_test).shape
    (355,)
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
        self.class_weight, self.warm_start, self.callbacks = class_weight, warm_start, callbacks
        self.dtype, self.random_state, self.num_threads, self.verbose = dtype, random_state, num_threads, verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains the model. Rows of weight 0 count as absent.

        y: labels (n,), numbers or strings, or an indicator matrix (n, labels). Raises TypeError or ValueError before
        the first step for invalid or mismatched arguments, FloatingPointError if the loss becomes NaN or infinite.
        """
        self._fit(X, y, sample_weight)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Trains for one more epoch on these examples, with the optimizer's state of previous calls.

        classes: all labels of this and later calls. Required in the first call unless y is an indicator matrix; in
            other calls None or the same.

        Raises as fit. A rejected call changes nothing; an interrupted one keeps the steps already done.
        """
        if isinstance(self.class_weight, str):
            raise ValueError(f"class_weight: expected weights by class for partial_fit, got {self.class_weight!r}")
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

    def _class_weights(self, y: Array, known: Targets | None) -> Weights | None:
        by_class = self.class_weight
        if by_class is None:
            return None
        if not (isinstance(by_class, Mapping) or (isinstance(by_class, str) and by_class == "balanced") or y.ndim == 2):
            raise TypeError(f"class_weight: expected a dict of weights by label, 'balanced' or None, got {by_class!r}")
        if isinstance(by_class, Mapping) and isinstance(known, MulticlassTargets):  # this y may lack some classes
            if unknown := by_class.keys() - set(known.classes.tolist()):
                raise ValueError(f"class_weight: expected labels of {known.classes.tolist()}, got {unknown}")
            present = set(y.tolist())
            by_class = {label: weight for label, weight in by_class.items() if label in present}
        weights: Weights = compute_sample_weight(by_class, y)
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"class_weight: expected finite weights of at least 0, got {self.class_weight}")
        return weights

    def _metric(self, targets: Targets, loss: Loss) -> str | Metric:
        return "accuracy" if isinstance(targets, MulticlassTargets) else "subset_accuracy"

    @property
    def classes_(self) -> Array:
        """The labels, sorted; the column indices of an indicator matrix."""
        self._fitted_trainer()
        return self._targets.classes

    # ---- predicting

    def predict(self, X: ArrayLike) -> Array:
        """Returns the labels (n,), or an indicator matrix (n, labels). Raises NotFittedError before a fit."""
        scores = self._scores(X)
        return self._targets.decode(scores)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Returns probabilities (n, classes): the softmax of the scores, or the sigmoid for multilabel targets."""
        scores = self._scores(X)
        return expit(scores) if isinstance(self._targets, MultilabelTargets) else probabilities(scores)

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Returns the logarithms of predict_proba, from the scores: finite even if a probability underflows."""
        scores = self._scores(X)
        if isinstance(self._targets, MultilabelTargets):
            return np.asarray(log_expit(scores))
        return np.asarray(log_softmax(np.pad(scores, ((0, 0), (int(scores.shape[1] == 1), 0))), axis=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
