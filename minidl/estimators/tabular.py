"""TabularEstimator: the common base of TabularClassifier and TabularRegressor."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from minidl.callbacks import EarlyStopping, ReduceLROnPlateau, TimeLimit
from minidl.estimators.base import SequentialEstimator, unchanged_on_error
from minidl.estimators.data import Data, check_data
from minidl.estimators.table_encoder import TableEncoder, as_table
from minidl.estimators.table_net import encoding, table_net
from minidl.estimators.targets import MulticlassTargets
from minidl.layers import Parallel, Rescale
from minidl.layers.base import Layer
from minidl.layers.parallel import MAX_BRANCHES
from minidl.optimizers import AdamW
from minidl.sequential import Sequential
from minidl.training.many_fits import fit_many
from minidl.training.signals import current_relay
from minidl.utils.arrays import Array, check_unmasked
from minidl.utils.errors import refusing_input
from minidl.utils.hints import answers
from minidl.utils.validation import check_fraction, check_int, check_positive
from minidl_c.runtime.threads import get_num_threads

STEPS = 16  # of an epoch, about, where the size of a batch stays within the next two
MIN_BATCH, MAX_BATCH = 64, 256
BETAS = (0.9, 0.95)
PATIENCE, FACTOR = 8, 0.2  # epochs without improvement until the learning rate falls, and by what

HOW = (
    "x holds the inputs in this order. Where the entry of the table is missing, pass the number in 'missing'. For a "
    "category, pass its place in 'codes', counted from 0, or the number in 'others' if it is not listed."
)

Rows = NDArray[np.int64]


@answers({"partialfit": "use SequentialClassifier or SequentialRegressor; the encoding of a table needs all rows"})
class TabularEstimator(BaseEstimator):
    """Trains a network for each fold of a table, and averages them. The arguments are those of TabularClassifier."""

    # ---- for a subclass to define

    _unit = ""  # of the outputs of the network, in its metadata

    def _net(self, **arguments: Any) -> SequentialEstimator:
        """Returns the estimator of a fold, not fitted."""
        raise NotImplementedError

    def _monitor(self, data: Data) -> tuple[str, bool]:
        """Returns what chooses the epoch, on held-out rows, and whether lower is better."""
        raise NotImplementedError

    def _after(self) -> list[Layer]:
        """Returns the layers after the network of a fold, whose outputs are averaged."""
        raise NotImplementedError

    def _shaped(self, predicted: Array) -> Array:
        """Returns predictions of the network in the shape of those of the estimator."""
        return predicted

    def _score(self, y: Array, predicted: Array, weights: Array | None) -> float:
        """Returns the score of predictions, as `score` computes it."""
        raise NotImplementedError

    def _needs_float64(self, data: Data) -> bool:
        """Whether float32 cannot tell the targets from each other, or hold them."""
        return False

    def _last(self, data: Data) -> list[Layer]:
        """Returns the layers after the average."""
        return []

    # ---- fitting

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        with unchanged_on_error(self):
            with refusing_input():
                check_unmasked(X, "X")
                table = as_table(X)
                validate_data(self, table, skip_check_array=True)
            rows = np.zeros((len(table), 1), np.float32)  # in the place of X, which is checked column by column
            data = check_data(self._net(), rows, y, sample_weight, None, reset=True)
            self._fit_folds(table, data)

    def _fit_folds(self, table: Any, data: Data) -> None:
        used = np.ones(len(table), bool) if data.weights is None else data.weights > 0
        with refusing_input():
            encoder = TableEncoder().fit(table, used, self.categorical_features)
            self._dtype = "float64" if self._needs_float64(data) else encoder.dtype
            inputs = np.zeros((len(table), encoder.n_inputs), self._dtype)
            inputs[used] = encoder.transform(table[used])
        random = check_random_state(self.random_state)
        folds = _folds(check_int("n_folds", self.n_folds, 2, MAX_BRANCHES), data, used, random)
        nets = [self._fold_net(encoder, data, len(train), len(folds), random) for train, _ in folds]
        try:
            calls = [_call(inputs, data, train, held) for train, held in folds]
            self.estimators_ = fit_many(nets, each=calls, n_jobs=self.n_jobs, verbose=self.verbose)
        except ExceptionGroup as failed:
            error = failed.exceptions[0]
            error.__notes__ = []  # that name a network, of which the caller knows nothing
            raise error from None
        self._encoder, self._targets = encoder, data.targets
        self._network = self._average(data)
        self._score_held_out(inputs, data, folds)

    def _fold_net(self, encoder: TableEncoder, data: Data, rows: int, folds: int, random: Any) -> SequentialEstimator:
        seed = int(random.randint(np.iinfo(np.int32).max))
        hidden, dropout = _units(self.hidden_layer_sizes), check_fraction("dropout", self.dropout)
        monitor, lower_is_better = self._monitor(data) if folds > 1 else ("loss", True)
        callbacks: list[Any] = [
            ReduceLROnPlateau(monitor, FACTOR, PATIENCE, lower_is_better=lower_is_better),
            EarlyStopping(monitor, 2 * PATIENCE + 1, lower_is_better=lower_is_better),
        ]
        if self.time_limit is not None:
            rounds = math.ceil(folds / min(self._jobs(), folds))
            callbacks.append(TimeLimit(check_positive("time_limit", self.time_limit) / rounds))
        return self._net(
            model=table_net(encoder, data.targets.outputs, hidden, dropout, seed, self._dtype),
            optimizer=AdamW(self.lr, BETAS, weight_decay=self.weight_decay),
            epochs=check_int("epochs", self.epochs),
            batch_size=min(max(2 ** round(math.log2(max(rows / STEPS, 1))), MIN_BATCH), MAX_BATCH),
            tol=None,
            callbacks=callbacks,
            random_state=seed,
        )

    def _jobs(self) -> int:
        jobs = get_num_threads() if self.n_jobs in (None, -1) else check_int("n_jobs", self.n_jobs)
        return jobs if current_relay() is None else 1  # inside the fit of another list

    def _average(self, data: Data) -> Sequential:
        """Returns the network from inputs to predictions: the encoding, and the mean over the networks of all folds."""
        branches = [[net.model_[1:], *self._after()] for net in self.estimators_]
        mean: list[Layer] = [Parallel(*branches, join="add"), Rescale(1 / len(branches))]
        layers, shape = [encoding(self._encoder), *mean, *self._last(data)], (self._encoder.n_inputs,)
        model = Sequential(layers, shape, dtype=self._dtype)
        with suppress(ValueError):  # thousands of columns of categories are more than a file holds
            model.metadata = {"inputs": self._encoder.describe(), "outputs": self._unit, "how": HOW}
        return model

    def _score_held_out(self, inputs: Array, data: Data, folds: list[tuple[Rows, Rows]]) -> None:
        """Keeps what the network of each fold predicts for its held-out rows, and the score of all of them."""
        self._held = [rows for _, rows in folds]
        held = np.concatenate(self._held)
        if not len(held):
            self.oof_prediction_, self.oof_score_ = None, None
            return
        predicted = self._predict_held(self._held_nets(), inputs)
        self.oof_prediction_ = np.full((len(inputs), *predicted.shape[1:]), np.nan, predicted.dtype)
        self.oof_prediction_[held] = predicted
        weights = None if data.sample_weight is None else data.sample_weight[held]
        self.oof_score_ = float(self._score(data.labels[held], predicted, weights))

    def _held_nets(self) -> list[Sequential]:
        """Returns the network of each fold, from inputs to what the estimator predicts."""
        shape, dtype = (self._encoder.n_inputs,), self._dtype
        return [Sequential([net.model_[:], *self._after()], shape, dtype=dtype) for net in self.estimators_]

    def _predict_held(self, nets: list[Sequential], inputs: Array) -> Array:
        """Returns what the network of each fold predicts for its held-out rows, fold by fold."""
        return self._shaped(
            np.concatenate([net.predict(inputs[rows]) for net, rows in zip(nets, self._held, strict=True)])
        )

    def permutation_importances(self, X: Any, y: Any, n_repeats: int = 1) -> Array:
        """Returns how much worse the predictions of held-out rows are without each column.

        A column is permuted among the rows that a fold holds out, and its network predicts them: the importance is the
        score of these predictions before, less that after, as `oof_score_` is computed, without weights. Columns that
        carry the same information share it, and each may have little.

        Parameters
        ----------
        X, y : as in `fit`
            The table and the targets of the fit, in the same order.
        n_repeats : int, default 1
            Number of permutations of each column, of which the mean is returned.

        Returns
        -------
        array of shape (columns,)
            Importances in the order of the columns; 0 for one that the networks do not use.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X or y are not those of the fit, as far as their shapes show it.
        ValueError
            If the fit held out no rows, as it does with fewer than four.
        """
        inputs, repeats = self.encode(X), check_int("n_repeats", n_repeats)
        if self.oof_prediction_ is None:
            raise ValueError("X: expected a fit of at least four rows, whose folds hold out some, got one of fewer")
        held, random, n = np.concatenate(self._held), np.random.default_rng(0), len(self.oof_prediction_)
        labels, importances = np.asarray(y), np.zeros(self.n_features_in_)
        with refusing_input():
            if len(inputs) != n or labels.shape[:1] != (n,):
                raise ValueError(f"X, y: expected the {n} rows of the fit, got {len(inputs)} and y {labels.shape}")
            try:
                nets = self._held_nets()
                labels, score = labels[held], self._score(labels[held], self._predict_held(nets, inputs), None)
            except (TypeError, ValueError) as error:
                raise ValueError(f"y: expected the targets of the fit: {error}") from error
        for at, column in enumerate((*self._encoder.numbers, *self._encoder.categories)):
            for _ in range(repeats):
                permuted = inputs.copy()
                for rows in self._held:
                    permuted[rows, at] = inputs[random.permutation(rows), at]
                importances[column] += (score - self._score(labels, self._predict_held(nets, permuted), None)) / repeats
        return importances

    # ---- predicting

    @property
    def model_(self) -> Sequential:
        """The network that `predict` runs, from what `encode` makes of a table."""
        check_is_fitted(self, "_network")
        return self._network

    def _predict(self, X: Any) -> Array:
        """Returns what the network predicts for a table; raises InputError, naming the column, for another kind."""
        inputs = self.encode(X)
        return self._shaped(self._network.predict(inputs))

    def encode(self, X: Any) -> Array:
        """Returns the inputs of `model_`, and of its C or ONNX file, for a table: numbers, then codes of categories.

        Parameters
        ----------
        X : data frame or array-like of shape (n, columns)
            Rows of a table, with the columns of the fit.

        Returns
        -------
        array of shape (n, inputs)
            In the dtype of the network: float32, or float64 for numbers that float32 cannot tell from each other. The
            metadata of `model_` describe each input.

        Raises
        ------
        NotFittedError
            Before a fit.
        InputError
            If X has other columns than in the fit, or values of another kind; the message names the column.
        """
        check_is_fitted(self, "_network")
        with refusing_input():
            check_unmasked(X, "X")
            table = as_table(X)
            validate_data(self, table, reset=False, skip_check_array=True)
            return self._encoder.transform(table).astype(self._dtype, copy=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags


def _units(sizes: Any) -> list[int]:
    """Returns the numbers of units of hidden layers; raises TypeError or ValueError unless there is at least one."""
    if not isinstance(sizes, (list, tuple)) or not sizes:
        raise TypeError(f"hidden_layer_sizes: expected a list of at least one number of units, got {sizes!r}")
    return [check_int("hidden_layer_sizes", units) for units in sizes]


def _folds(n_folds: int, data: Data, used: NDArray[np.bool_], random: Any) -> list[tuple[Rows, Rows]]:
    """Returns the rows to train on and those to hold out of each fold; all and none for fewer than four of them.

    Folds have equal shares of each class. The only row of a class is never held out.
    """
    rows = random.permutation(np.flatnonzero(used))
    may_hold = np.ones(len(rows), bool)
    if isinstance(data.targets, MulticlassTargets):
        rows = rows[np.argsort(data.y[rows], kind="stable")]
        may_hold = np.bincount(data.y[rows])[data.y[rows]] > 1
    n_folds = min(n_folds, int(may_hold.sum()) // 2)
    if n_folds < 2:
        return [(np.sort(rows), np.empty(0, np.int64))]
    fold = np.full(len(rows), -1)
    fold[may_hold] = np.arange(may_hold.sum()) % n_folds
    return [(np.sort(rows[fold != k]), np.sort(rows[fold == k])) for k in range(n_folds)]


def _call(inputs: Array, data: Data, train: Rows, held: Rows) -> dict[str, Any]:
    """Returns the arguments of the fit of a fold: rows that are held out have a weight of 0."""
    own = np.ones(len(inputs)) if data.sample_weight is None else data.sample_weight
    weights = np.zeros(len(inputs))
    weights[train] = own[train]
    call = {"X": inputs, "y": data.labels, "sample_weight": weights}
    if len(held):
        call |= {"X_val": inputs[held], "y_val": data.labels[held], "sample_weight_val": own[held]}
    return call
