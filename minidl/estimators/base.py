"""SequentialEstimator: the common base of SequentialClassifier and SequentialRegressor."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import (
    _generate_get_feature_names_out,
    check_is_fitted,
)

from minidl.callbacks import EarlyStopping, ExponentialMovingAverage
from minidl.callbacks.callback_list import CallbackList
from minidl.engine.probabilities import check_defined
from minidl.engine.views import Views
from minidl.estimators.data import Data, Validation, check_data, check_validation, naming_validation
from minidl.estimators.held_out import hold_out
from minidl.estimators.inputs import validate_input
from minidl.estimators.models import model_of, optimizer_of
from minidl.estimators.stopping import NoImprovement
from minidl.estimators.targets import Targets, loss_of, outputs_of
from minidl.estimators.updates import OF_TRAINING, OF_WEIGHTS, Given
from minidl.layers import Flatten
from minidl.losses import Loss
from minidl.metrics import Metric
from minidl.sequential import Sequential
from minidl.trainer import Trainer
from minidl.training.checked_attributes import metrics_of
from minidl.utils.arrays import Array
from minidl.utils.errors import kind_of
from minidl.utils.validation import MAX_INT64, check_bool, check_int, check_non_negative
from minidl.utils.weights import Weights

BATCH_SIZE = 200  # of "auto", as in scikit-learn's MLPClassifier; an epoch's last batch holds the remainder


class SequentialEstimator(  # type: ignore[call-arg]
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """Fits a model to rows and targets. The arguments are those of SequentialClassifier, except class_weight.

    Subclasses define the encoding of targets and the meaning of scores. auto_wrap_output_keys: `transform` itself makes
    the frames of set_output, because their columns depend on the layer.
    """

    _numeric = False  # whether targets must be numbers

    # ---- for a subclass to define

    def _encode_targets(self, y: Array, used: NDArray[np.bool_], known: Targets | None) -> tuple[Array, Targets]:
        """Returns y encoded for a loss, and its Targets; `known`: the Targets of previous fits, which y must match."""
        raise NotImplementedError

    def _class_weights(self, y: Array, weights: Weights, known: Targets | None, trained: Data | None) -> Weights | None:
        """Returns the weight of each example's class, without its own weight; None: ones. trained: see check_data."""
        return None

    def _scaled(self, data: Data, trainer: Trainer, known: Targets | None) -> Data:
        """Returns data with targets as the trainer learns them; `known`: the Targets whose scale counts."""
        return data

    def _metric(self, targets: Targets, loss: Loss) -> str | Metric:
        """Returns the metric of the rows that early stopping holds out; higher is better."""
        raise NotImplementedError

    # ---- fitting

    def _fit(self, X: Any, y: Any, sample_weight: Any, validation: Validation) -> None:
        """Fits from scratch, or with warm_start from the weights of the previous fit."""
        warm = check_bool("warm_start", self.warm_start) and hasattr(self, "trainer_")
        if warm:
            self._given.check(vars(self), OF_WEIGHTS, "warm_start=True")
        with unchanged_on_error(self):
            known = self._targets if warm else None
            data = check_data(self, X, y, sample_weight, known, reset=not warm)
            stops = check_bool("early_stopping", self.early_stopping)
            other = check_validation(self, validation, data, stops)
            trainer = self._make_trainer(data, self.trainer_.model[:] if warm else None, stops or other is not None)
            data = self._scaled(data, trainer, known)
            other = None if other is None else self._scaled(other, trainer, data.targets)
            patience = check_int("n_iter_no_change", self.n_iter_no_change)
            tol = None if self.tol is None else check_non_negative("tol", self.tol)
            own = self._copy_callbacks()
            callbacks, user_decides = list(own), any(isinstance(callback, EarlyStopping) for callback in own)
            if stops and not user_decides:
                monitor = f"val_{self._score_name(data.targets, trainer.loss)}"
                callbacks.append(EarlyStopping(monitor, patience, tol or 0.0, lower_is_better=False))
            elif tol is not None and not user_decides:
                callbacks.append(NoImprovement(tol, patience))
            if stops and other is None:
                data, measured = hold_out(self, data, validation.groups, trainer.seed)
            else:
                measured = {"validation_data": None if other is None else other.triple}
            self._train(trainer, data, check_int("epochs", self.epochs), measured, CallbackList(callbacks), True)
            self.callbacks_ = own

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, known: Targets | None) -> None:
        """Trains the trainer for one more epoch, or a new one for its first; callbacks go on where they stood."""
        if check_bool("early_stopping", self.early_stopping):
            hint = "; it holds out rows of all data, which one call does not see: score each batch before it is learned"
            raise ValueError(f"early_stopping: expected False for partial_fit, got True{hint}")
        callbacks = CallbackList(self._copy_callbacks())
        for callback in callbacks:
            applies = isinstance(callback, ExponentialMovingAverage) and callback.apply
            if applies or isinstance(callback, EarlyStopping):
                expected = "none that replaces the weights at the end of a fit, for partial_fit: each call is a fit"
                raise ValueError(f"callbacks: expected {expected}, got {callback!r}")
        callbacks.carried = CallbackList(getattr(self, "callbacks_", [])).states()
        first, trainer, checked = not hasattr(self, "trainer_"), None, {}
        if not first:
            self._given.check(vars(self), OF_TRAINING, "partial_fit")
        try:
            with unchanged_on_error(self):
                data = check_data(self, X, y, sample_weight, known if first else self._targets, reset=first)
                checked = dict(self.__dict__)
                trainer = self._make_trainer(data, None, False) if first else self.trainer_
                data = self._scaled(data, trainer, None if first else self._targets)
                metrics = _listed("metrics", self.metrics)
                with nullcontext() if first else self._given.applied(trainer, vars(self), metrics):
                    self._train(trainer, data, 1, {}, callbacks, False)
                self.callbacks_ = list(callbacks)
        except KeyboardInterrupt:
            if first and trainer is not None and trainer.step:  # keeps the steps, as later calls do
                self.__dict__.update(checked)
                self._keep(trainer, data)
            raise

    def _copy_callbacks(self) -> list[Any]:
        """Returns copies of the callbacks, as a fit changes no argument; raises TypeError for what cannot be copied."""
        given = CallbackList(_listed("callbacks", self.callbacks)).callbacks
        try:
            return copy.deepcopy(given)
        except Exception as error:
            got = f"got {given!r}: {error}; a __deepcopy__ that returns self shares one object"
            raise TypeError(f"callbacks: expected objects that can be copied, {got}") from error

    def _make_trainer(self, data: Data, model: Sequential | None, validates: bool) -> Trainer:
        """Returns a new trainer of `model`, or of a new model; one that validates has the estimator's own metric."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        if model is None:
            outputs = outputs_of(self.loss, data.targets)
            model = model_of(self.model, self.input_shape_, outputs, seed, self.dtype, data.X)
        loss = loss_of(self.loss, model, data.targets)
        own = metrics_of("metrics", [self._metric(data.targets, loss)] if validates else [])
        metrics = list((own | metrics_of("metrics", _listed("metrics", self.metrics))).values())
        optimizer = optimizer_of(self.optimizer, self.lr)
        return Trainer(model, loss, optimizer, metrics, seed=seed, num_threads=self.num_threads)

    def _score_name(self, targets: Targets, loss: Loss) -> str:
        """Returns the name of the estimator's own metric."""
        (name,) = metrics_of("metrics", [self._metric(targets, loss)])
        return name

    def _train(
        self,
        trainer: Trainer,
        data: Data,
        epochs: int,
        measured: dict[str, Any],
        callbacks: CallbackList,
        normalize: bool,
    ) -> None:
        """Trains, and stores the results only after success: a rejected fit changes nothing.

        measured: the argument of Trainer.fit that says on which rows each epoch is measured, if on any.
        """
        try:
            trainer.fit(
                data.X,
                data.y,
                epochs=epochs,
                batch_size=self._batch_size(data.n_active),
                **measured,
                shuffle=self.shuffle,
                sample_weight=data.weights,
                normalize_weights=normalize,
                callbacks=callbacks,
                verbose=self.verbose,
            )
        except (TypeError, ValueError) as error:
            words = str(error).removeprefix("validation_data: ")
            if words == str(error) and not words.startswith("validation_split"):
                raise
            if words != str(error):
                held_out = measured["validation_data"][0] is data.X
                with nullcontext() if held_out else naming_validation():
                    raise kind_of(error)(words) from error
            raise ValueError(words.replace("validation_split", "validation_fraction", 1)) from error
        finally:
            trainer.interrupted = None  # the next call is a new fit, not a completion
        self._keep(trainer, data)

    def _keep(self, trainer: Trainer, data: Data) -> None:
        """Stores the results of a fit."""
        self.trainer_, self._targets = trainer, data.targets
        self._given = Given(vars(self))

    def _batch_size(self, examples: int) -> int:
        if isinstance(self.batch_size, str):
            if self.batch_size != "auto":
                raise ValueError(f"batch_size: expected 'auto' or an integer, got {self.batch_size!r}")
            sizes = range(BATCH_SIZE, BATCH_SIZE + examples)  # a batch of one example has no batch norm statistics
            return next((size for size in sizes if examples % size != 1), BATCH_SIZE)
        return check_int("batch_size", self.batch_size)

    # ---- attributes after a fit; they raise NotFittedError before

    def _fitted_trainer(self) -> Trainer:
        check_is_fitted(self, "trainer_")
        return self.trainer_

    @property
    def model_(self) -> Sequential:
        """The trained Sequential."""
        return self._fitted_trainer().model

    @property
    def n_iter_(self) -> int:
        """The number of epochs that the model was trained for."""
        return self._fitted_trainer().epoch

    @property
    def loss_curve_(self) -> list[float]:
        """The loss of each epoch."""
        return self._fitted_trainer().history["loss"]

    @property
    def validation_scores_(self) -> list[float] | None:
        """With early stopping or X_val, the score of each epoch on those rows: accuracy, or R²."""
        trainer = self._fitted_trainer()
        return trainer.history.get(f"val_{self._score_name(self._targets, trainer.loss)}")

    @property
    def best_validation_score_(self) -> float | None:
        """With early stopping or X_val, the highest validation score."""
        return None if self.validation_scores_ is None else max(self.validation_scores_)

    def _scores(self, X: Any, views: Views | None) -> Array:
        """Returns the scores; raises InputError for NaN, from which no label or target follows."""
        trainer = self._fitted_trainer()
        rows, _ = validate_input(self, X, reset=False)
        scores: Array = self.model_.predict(rows, self.num_threads, views)
        check_defined(scores, trainer.network, "scores")
        return scores

    # ---- features

    def transform(self, X: ArrayLike, layer: int = -2) -> Array:
        """Returns a layer's outputs for X as features, by default those of the second-to-last layer.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n, features) or `(n, *input_shape)`
            Examples.
        layer : int, default -2
            Index in `trainer_.model`, from 0, or from the end if negative. The index before the first returns X itself.

        Returns
        -------
        array or data frame of shape (n, size)
            Outputs of the layer, one row for each example; with `set_output`, a frame with a column for each of them.

        Raises
        ------
        NotFittedError
            Before a fit.
        TypeError, ValueError
            If X is invalid, or if the index is out of range.

        Examples
        --------
        The default model of a table has a hidden layer of 100 units before its last layer:

        >>> from minidl.estimators import SequentialClassifier
        >>> classifier = SequentialClassifier(epochs=1, random_state=0).fit([[-1.0], [0.0], [1.0]], [2, 4, 6])
        >>> classifier.transform([[3.0], [5.0]]).shape
        (2, 100)
        """
        front = self._slice_up_to(layer)
        rows, _ = validate_input(self, X, reset=False)
        features = front.predict(rows, self.num_threads).reshape(rows.shape[0], -1)
        columns = SimpleNamespace(  # what scikit-learn asks an estimator for
            _sklearn_output_config=getattr(self, "_sklearn_output_config", {}),
            _sklearn_auto_wrap_output_keys=self._sklearn_auto_wrap_output_keys,
            get_feature_names_out=lambda: _generate_get_feature_names_out(self, features.shape[1]),
        )
        return _wrap_data_with_container("transform", features, X, columns)

    def _slice_up_to(self, layer: int) -> Sequential:
        model = self._fitted_trainer().model
        layers = len(model)
        if not -layers - 1 <= check_int("layer", layer, minimum=-MAX_INT64) < layers:
            raise ValueError(f"layer: expected an index from {-layers} to {layers - 1}, got {layer}")
        end = layer + 1 if layer >= 0 else layers + layer + 1
        return model[:end] if end else Sequential([Flatten()], self.input_shape_, dtype=model.dtype)

    @property
    def _n_features_out(self) -> int:
        """The number of features that `transform` returns, from which scikit-learn derives their names."""
        return math.prod(self._fitted_trainer().model.layers[-1].in_shape)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Restores the attributes of an estimator, such as the number of features, if the block raises."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def _listed(name: str, given: Any) -> Any:
    """Returns an argument that is a list; raises TypeError for an iterator, which a second fit would find empty."""
    if isinstance(given, Iterator):
        raise TypeError(f"{name}: expected a list or a tuple, got the iterator {given!r}")
    return given
