"""SequentialRegressor: a network as a scikit-learn regressor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from minidl.engine.layer_list import last_leaf
from minidl.engine.views import Views
from minidl.estimators.base import SequentialEstimator
from minidl.estimators.data import Data, Validation
from minidl.estimators.stopping import D2OfQuantiles, d2_of_quantiles, r2_of_rates
from minidl.estimators.targets import RegressionTargets, Targets
from minidl.layers.base import Layer
from minidl.layers.container import Container
from minidl.losses import Loss, Pinball, Poisson
from minidl.metrics import Metric
from minidl.optimizers.base import Rate
from minidl.sequential import Sequential
from minidl.trainer import Trainer
from minidl.utils.arrays import Array
from minidl.utils.errors import refusing_input
from minidl.utils.hints import known_arguments
from minidl.utils.validation import Shape


class SequentialRegressor(RegressorMixin, SequentialEstimator):
    """Neural network regressor for one or several targets, for scikit-learn's pipelines, searches and cross-validation.

    X is (n, features), `(n, *input_shape)`, a data frame or a sparse matrix, which becomes dense batch by batch.
    Targets are scaled: the network learns `(y - mean) / std` of each of them, and `predict` returns the unit of y. See
    Notes.

    Parameters
    ----------
    model : Sequential, list of Layer, callable or None, default None
        The network, ending in one output for each target. Every fit copies a Sequential; a built one keeps its weights
        as initial weights, for scaled targets. A function takes `input_shape` and `outputs`, or one of them, and
        returns a Sequential or a list of layers. None is one hidden layer of 100 units, after two convolutions for
        images.
    input_shape : tuple of int or None, default None
        Shape of one example for X in rows: (channels, height, width), or (channels, length) for signals. None: that of
        a built model, or of X, in which (n, height, width) are grey images.
    loss : str or loss, default "auto"
        As for Trainer, of scaled targets: the `delta` of Huber is in standard deviations. "auto" is mean_squared_error.
        With "poisson" the model outputs logarithms, targets are not scaled, and `predict` returns the exponentials.
        With Pinball, y is (n,), the model has an output for each quantile, and "d2_pinball" takes the place of R²: see
        `score`. Quantiles of one row may cross.
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
        None: never. With `early_stopping`, R² on the held-out rows counts, which has to rise by more than this; None:
        0. An EarlyStopping in `callbacks` decides instead, with or without `early_stopping`.
    n_iter_no_change : int, default 10
        Number of consecutive epochs without improvement after which `fit` stops.
    early_stopping : bool, default False
        Whether to hold out examples, and keep the weights of the epoch with the highest R² on them, without
        `sample_weight`. An EarlyStopping in `callbacks` chooses the weights in place of R², and ends the fit.
    validation_fraction : float, default 0.1
        Fraction of the examples that `early_stopping` holds out. See also `splitter`, and `groups` and `X_val` of
        `fit`.
    splitter : object with `split`, or None, default None
        A splitter of scikit-learn whose first split says which rows `early_stopping` holds out, instead of a random
        fraction; rows that are in neither part, such as a gap, are left out. With `groups` in `fit`, None is
        GroupShuffleSplit with the fraction above.
    metrics : list of str or function, default ()
        Metrics of the Trainer beside R², such as "mae", of each epoch; with validation, "val_mae" as well. They are
        called with scaled targets (n, targets) and the outputs of `trainer_.model`: "mae" is in standard deviations.
    warm_start : bool, default False
        Whether `fit` starts from the weights of the previous fit, which need the same `model`, `input_shape` and
        `dtype`, and the scale of its targets. Everything else is reset.
    callbacks : iterable of objects, default ()
        Callbacks of the Trainer; see minidl.callbacks. With `early_stopping` or `X_val` they can monitor "val_loss",
        "val_r2", and `metrics`, such as "val_mae".
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
    n_features_in_ : int
        Number of features of a row.
    feature_names_in_ : array of str
        Names of the features, if X was a data frame with names that are strings.
    input_shape_ : tuple of int
        Shape of one example.
    n_iter_ : int
        Number of epochs that the model was trained for.
    loss_curve_ : list of float
        Loss of each epoch, of scaled targets.
    validation_scores_ : list of float or None
        With `early_stopping` or `X_val`, the R² of each epoch on the held-out rows or on `X_val`.
    best_validation_score_ : float or None
        With `early_stopping` or `X_val`, the highest of these. It is that of another epoch than the model's if an
        EarlyStopping in `callbacks` chose differently.
    model_ : Sequential
        The trained model, with the unit of y: its last layer, a Rescale or for several targets a Normalize, turns
        scaled targets back. Its other layers share their weights with `trainer_.model`.
    trainer_ : Trainer
        The trainer, which has the complete history. Its model, losses and metrics are those of scaled targets.
    callbacks_ : list of objects
        The copies of `callbacks` that the last fit trained with, such as an EarlyStopping with its `best_epoch`.

    See Also
    --------
    SequentialClassifier : The classifier.

    Notes
    -----
    Mean and standard deviation are those of the rows of `fit`, with their weights, in float64; rows that
    `early_stopping` holds out count, those of `X_val` do not. `partial_fit` keeps those of the
    first call, or of the `fit` before it, and a warm start those of the first fit. The standard deviation of a constant
    target, such as that of a single row, counts as 1.

    Not scaled are counts, with the loss "poisson", and targets of a model whose last layer has no weights: the outputs
    of an activation have a range of their own. So `Rescale(1)` as the last layer turns scaling off.

    C and ONNX files of the regressor or its `model_` compute what `predict` returns, or its logarithm with "poisson".
    Those of `trainer_` have scaled targets, and so has a checkpoint, with which a Trainer goes on.

    A pickle stores the trainer as a checkpoint, which is read with the same checks. The pickle itself can still run
    code: do not load one that you do not trust. It stores a model function by its name: where it is loaded, the
    function's module must be importable.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from minidl.estimators import SequentialRegressor
    >>> X, y = make_friedman1(300, random_state=0)
    >>> SequentialRegressor(lr=0.01, random_state=0).fit(X, y).score(X, y) > 0.8
    True
    """

    _numeric = True
    _targets: RegressionTargets
    _scaling_back: tuple[Sequential, Sequential] | None = None  # trainer_.model, and model_, which shares its weights

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
        self.warm_start, self.callbacks = warm_start, callbacks
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
        y : array-like of shape (n,) or (n, targets)
            Numbers.
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
        >>> from minidl.estimators import SequentialRegressor
        >>> from minidl.layers import Dense
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> regressor = SequentialRegressor([Dense(1)], lr=0.1, tol=None, random_state=0).fit(X, [1.0, 3.0, 5.0])
        >>> regressor.predict([[10.0]]).round(1)
        array([21.])
        """
        self._fit(X, y, sample_weight, Validation(X_val, y_val, sample_weight_val, groups))
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Trains for one more epoch on these examples, with the optimizer's state of previous calls.

        A rejected call changes nothing; an interrupted one keeps the steps already done. Parameters that were set since
        the last call count, an `lr` too; refused are another model, input_shape, dtype, loss, optimizer or
        random_state.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        y : array-like of shape (n,) or (n, targets)
            Numbers.
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
        >>> from minidl.estimators import SequentialRegressor
        >>> regressor = SequentialRegressor(random_state=0)
        >>> for X, y in ([[0.0], [1.0]], [1.0, 2.0]), ([[2.0], [3.0]], [3.0, 4.0]):
        ...     regressor = regressor.partial_fit(X, y)
        >>> regressor.n_iter_
        2
        """
        self._partial_fit(X, y, sample_weight, None)
        return self

    def _encode_targets(self, y: Array, used: NDArray[np.bool_], known: Targets | None) -> tuple[Array, Targets]:
        targets = RegressionTargets.of(y, self.loss) if known is None else cast(RegressionTargets, known)
        encoded = targets.encode(y, used)
        if RegressionTargets.of(y, self.loss) != replace(targets, mean=(), scale=()):  # of a warm start
            expected = f"one for outputs of shape ({targets.outputs},), one for each {targets.unit} of y, as before"
            raise ValueError(f"loss: expected {expected}, got {self.loss!r}")
        return encoded, targets

    def _scaled(self, data: Data, trainer: Trainer, known: Targets | None) -> Data:
        targets, last = cast(RegressionTargets, known or data.targets), last_leaf(trainer.model.layers)
        with refusing_input():
            if isinstance(trainer.loss, Poisson):
                targets = replace(targets, mean=(), scale=())
            elif known is None and last.params and not isinstance(last, Container):  # an activation has its own range
                targets = targets.scaled_by(data.y, data.weights, trainer.model.dtype)
            return replace(data, y=targets.scaled(data.y), targets=targets)

    def _keep(self, trainer: Trainer, data: Data) -> None:
        super()._keep(trainer, data)
        _ = self.model_  # made here, as `predict` changes no attribute

    @property
    def model_(self) -> Sequential:
        """The trained Sequential, with a last layer that scales back: its outputs have the unit of y."""
        model = self._fitted_trainer().model
        if not self._targets.scale:
            return model
        if self._scaling_back is None or self._scaling_back[0] is not model:
            longer = model._sharing(model.input_shape, self._targets.scaling_back())
            longer.lr_mult, longer.metadata = model.lr_mult, model.metadata
            self._scaling_back = model, longer
        return self._scaling_back[1]

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_scaling_back"}  # which shares weights

    def _metric(self, targets: Targets, loss: Loss) -> str | Metric:
        if isinstance(loss, Pinball):
            return D2OfQuantiles(loss.quantiles)
        return r2_of_rates if isinstance(loss, Poisson) else "r2"

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Returns R² of the predictions; of quantiles, the mean over them of `sklearn.metrics.d2_pinball_score`.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
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
            If X is invalid, or if a prediction is NaN.
        """
        predicted, loss = self.predict(X), self.trainer_.loss
        if isinstance(loss, Pinball):
            return d2_of_quantiles(y, predicted, loss.quantiles, sample_weight)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def predict(self, X: ArrayLike, views: Views | None = None) -> Array:
        """Returns the targets of each row.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        views : "flip", "flip+shift", callable or None, default None
            Views of images whose mean scores count: see `Sequential.predict`.

        Returns
        -------
        array of shape (n,) or (n, targets)
            Numbers, in the shape of `y` in `fit`; (n, quantiles) with the loss Pinball of a sequence of quantiles.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X is invalid, or if a score is NaN.

        Examples
        --------
        >>> from minidl.estimators import SequentialRegressor
        >>> regressor = SequentialRegressor(epochs=1, random_state=0)
        >>> regressor.fit([[0.0], [1.0]], [[1.0, 2.0], [3.0, 4.0]]).predict([[0.5]]).shape
        (1, 2)
        """
        scores = self._scores(X, views)
        return self._targets.decode(np.exp(scores) if isinstance(self.trainer_.loss, Poisson) else scores)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = not isinstance(self.loss, Pinball)
        return tags
