"""LabeledData: examples with their targets and weights, checked against each other and the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.engine.network import Network
from minidl.engine.pixel_targets import check_sized_targets
from minidl.losses import Loss, rows_of
from minidl.losses.output_losses import OutputLosses, bound
from minidl.sequential import Sequential
from minidl.training.batch_feed import gives_pairs
from minidl.training.targets_on_disk import TargetsOnDisk, stays_on_disk
from minidl.utils.arrays import Array, check_array
from minidl.utils.data import CHUNK, ArraySource, Index, fingerprint, shape_of_examples, some_rows
from minidl.utils.errors import InputError, kind_of, refusing_input
from minidl.utils.optional import needs
from minidl.utils.validation import Shape
from minidl.utils.weights import (
    Weights,
    as_weights,
    mean_weight,
    of_labeled,
    step_factors,
    times_class_weights,
    weighted_mean,
)


@dataclass(frozen=True)
class LabeledData:
    """The data of fit, evaluate and train_batch. Rows of weight 0 are hashed, but never interpreted."""

    examples: ArraySource
    targets: Any  # an array, or TargetsOnDisk
    exact_targets: Any  # the targets before they are rounded to float32
    weights: Weights | None  # the weights that were given, times those of classes; None: ones
    active_rows: Index  # the rows of weight above 0
    labels: Index | None  # y as labels, if it holds labels of classes: whole numbers or one-hot rows
    labeled: NDArray[np.bool_] | None  # whether each row has a label that the loss does not ignore; None: all have
    step_weights: Array | None = None  # the factors of gradients, from `for_steps`, in the model's dtype; None: ones

    @classmethod
    def from_arrays(
        cls,
        model: Sequential,
        loss: Loss,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        class_weight: dict[int, float] | str | None = None,
    ) -> LabeledData:
        """Checks X, y and weights; builds an unbuilt model.

        Raises InputError for these, TypeError or ValueError for class weights and the model, changing nothing.
        """
        with model.unbuilt_on_error():
            built_for = None if model.network is None else model.input_shape
            examples = ArraySource(X, built_for, model.dtype, check=False)
            if built_for is None:
                model.build(examples.shape)
            network, n = model.network, len(examples)
            assert network is not None
            shape = network.out_shape
            labels, on_disk = None, stays_on_disk(network, loss, y)
            with refusing_input():
                weights = None if sample_weight is None else _weights_of(sample_weight, n, network)
                given = y if on_disk else rows_of(loss, y, n)
                if not on_disk and not isinstance(given, dict):
                    labels = _of_rows(given, weights, lambda part: _labels(loss, part, shape))
            if class_weight is not None:
                if isinstance(given, dict):
                    expected = (
                        f"expected None for several outputs, {', '.join(given)}, of which each has classes of its own"
                    )
                    raise ValueError(f"class_weight: {expected}; sample_weight weights rows")
                weights = times_class_weights(weights, class_weight, given if labels is None else labels, shape)
            used = np.arange(n) if weights is None else np.flatnonzero(weights)
            if n and not len(used):
                raise InputError("sample_weight, class_weight: expected at least one example of weight above 0")
            examples.missing = network.takes_missing
            examples.check_rows(used)
            checked = partial(check_sized_targets, network, loss)

            def convert(dtype: str | None = None) -> Any:
                def of_part(part: Any) -> Array:
                    return checked(part, _count(part), dtype)

                return TargetsOnDisk(given, n, used, of_part) if on_disk else _of_rows(given, weights, of_part)

            with refusing_input():
                targets = exact = convert()
                if targets is not None and targets.dtype == np.float32 and not _fits_float32(given):
                    exact = convert("float64")
        assert targets is not None and exact is not None
        return cls(examples, targets, exact, weights, used, labels, labeled_rows(loss, targets))

    @classmethod
    def from_tuple(cls, model: Sequential, loss: Loss, given: Any, name: str, for_steps: bool = False) -> LabeledData:
        """Returns the data of (X, y) or (X, y, sample_weight); raises as `from_arrays`, beginning with `name`."""
        if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
            kind = type(given).__name__
            got = f"a {kind} of {len(given)}" if isinstance(given, (tuple, list)) else kind
            raise TypeError(f"{name}: expected (X, y) or (X, y, sample_weight), got {got}")
        if gives_pairs(given):
            raise TypeError(f"{name}: expected arrays (X, y), got batches of them: images of one size in each call")
        try:
            if model.sizes is not None:
                model = model.at(shape_of_examples(given[0]))
                loss = bound(loss, model)
            data = cls.from_arrays(model, loss, *given)
            return data.for_steps() if for_steps else data
        except (TypeError, ValueError) as error:
            raise kind_of(error)(f"{name}: {error}") from error

    @classmethod
    def from_batch(cls, model: Sequential, loss: Loss, given: Any, name: str) -> LabeledData:
        """Returns the data of a batch; raises as `from_tuple`, and ValueError for one without examples."""
        data = cls.from_tuple(model, loss, given, name, for_steps=True)
        if not len(data.active_rows):
            raise InputError(f"{name}: expected at least one example, got none")
        return data

    def for_steps(self, rows: Index | None = None) -> LabeledData:
        """Returns the data with `step_weights`: the weights divided by their mean over these rows; None: as they are.

        Raises ValueError for weights that the model's dtype cannot hold.
        """
        if self.weights is None:
            return self
        mean = 1.0
        if rows is not None:
            labeled = rows if self.labeled is None else rows[self.labeled[rows]]
            mean = mean_weight(self.weights[labeled if len(labeled) else rows])
        return replace(self, step_weights=step_factors(self.weights, self.examples.dtype, mean))

    def split(self, share: float, seed: int) -> tuple[Index, Index | None]:
        """Returns the rows to train on, and those held out (None: none): a random share, stratified for labels."""
        if isinstance(share, bool) or not isinstance(share, (int, float, np.floating, np.integer)):
            raise TypeError(f"validation_split: expected a fraction such as 0.1, got {share!r}")
        if not 0 <= share < 1:
            raise ValueError(f"validation_split: expected a fraction in [0, 1), got {share}")
        if share == 0:
            return self.active_rows, None
        with needs("sklearn", "validation_split"):
            from sklearn.model_selection import train_test_split  # imports scipy: not before it is needed
        stratify = None if self.labels is None else self.labels[self.active_rows]
        try:
            state = int(np.random.default_rng(seed).integers(2**32))  # scikit-learn takes seeds of 32 bits
            train, held = train_test_split(self.active_rows, test_size=share, random_state=state, stratify=stratify)
        except ValueError as error:
            expected = f"expected a fraction that can be held out, got {share} of {len(self.active_rows)}"
            raise ValueError(f"validation_split: {expected}: {error}") from error
        return np.sort(train), np.sort(held)

    def to_validate(
        self, model: Sequential, loss: Loss, held: Index | None, given: Any
    ) -> tuple[LabeledData, Index] | None:
        """Returns the data to evaluate on after each epoch: the rows held out, or the data given; None: none."""
        if given is None:
            return None if held is None else (self, held)
        if held is not None:
            raise ValueError("validation_data and validation_split: expected one of them, got both")
        other = LabeledData.from_tuple(model, loss, given, "validation_data")
        if not len(other.active_rows):
            raise InputError("validation_data: expected at least one example, got none")
        return other, other.active_rows

    def example_ids(self, rows: Index) -> Index:
        """Returns the indices of these rows among the active ones: what they would be without the others."""
        return rows if len(self.active_rows) == len(self.examples) else np.searchsorted(self.active_rows, rows)

    def fingerprints(self, limit: int | None = None) -> dict[str, str | None]:
        """Returns hashes of X, y and the weights, of all rows or of at most `limit`; None: no weights.

        Of arrays on disk, at most CHUNK rows are read; up to these, their hashes are those of arrays in memory.
        """
        rows = some_rows(len(self.examples), limit)
        weights = None if self.weights is None else fingerprint(self.weights, rows)
        if isinstance(self.targets, TargetsOnDisk):
            y = self.targets.fingerprint(limit or CHUNK)
        else:
            y = fingerprint(self.targets if self.labels is None else self.labels, rows)
        return {"X": self.examples.fingerprint(limit), "y": y, "sample_weight": weights}

    def reported_targets(self, rows: Index) -> Any:
        """Returns the targets of these rows for metrics and losses that are reported: not rounded to float32.

        Those on disk are not read, unless they are rounded.
        """
        if isinstance(self.targets, TargetsOnDisk):
            part, exact_part = self.targets.of(rows), self.exact_targets.of(rows)
            return part if self.exact_targets is self.targets or part.equals(exact_part) else exact_part
        targets = self.targets[rows]
        if self.exact_targets is self.targets or np.array_equal(targets, exact := self.exact_targets[rows]):
            return targets
        return exact

    def loss_weights(self, rows: Index) -> Weights | None:
        """Returns the weights that the losses of these rows have in their mean: 0 without a label; None: ones."""
        weights = None if self.weights is None else self.weights[rows]
        if self.labeled is None:
            return weights
        return of_labeled(weights, self.labeled[rows])

    def mean(self, losses: Array, rows: Index) -> float:
        """Returns sum(weight * loss) / sum(weight) of these rows, of those that have a label."""
        return weighted_mean(losses, self.loss_weights(rows))


def _of_rows(y: Any, weights: Weights | None, convert: Callable[[Any], Array | None]) -> Array | None:
    """Returns convert(y), which sees no row of weight 0: these rows are copied, for hashes, if they fit.

    y: an array, or a dict of them, of which rows of weight 0 get the targets of another one: targets of several outputs
    say what they are.
    """
    if weights is None or weights.all():
        return convert(y)
    used = weights > 0
    part = convert({name: rows[used] for name, rows in y.items()} if isinstance(y, dict) else y[used])
    if part is None:
        return None
    whole = np.zeros((len(weights), *part.shape[1:]), part.dtype)
    whole[used] = part
    if isinstance(y, dict):
        whole[~used] = part[:1]
        return whole
    others = y[~used]
    if others.size == whole[~used].size:
        with np.errstate(all="ignore"):
            whole[~used] = others.reshape(-1, *part.shape[1:]).astype(part.dtype)
    return whole


def _count(y: Any) -> int:
    """Returns the number of rows of an array, or of a dict of them."""
    return len(next(iter(y.values())) if isinstance(y, dict) else y)


def _fits_float32(y: Any) -> bool:
    """Whether float32 holds all numbers that the dtypes of these arrays can hold."""
    arrays = y.values() if isinstance(y, dict) else [y]
    return all(np.can_cast(array.dtype, np.float32) for array in arrays)


def _weights_of(sample_weight: Any, n: int, network: Network) -> Weights:
    """Returns weights of examples; raises TypeError or ValueError for others."""
    if isinstance(sample_weight, Mapping) and network.outputs is not None:
        expected = "expected one weight for each row, which serves all outputs: a row of weight 0 counts as absent"
        raise TypeError(f"sample_weight: {expected}, got a dict; loss_weights weight the losses of outputs")
    return as_weights(sample_weight, n)


def labeled_rows(loss: Loss, targets: Array) -> NDArray[np.bool_] | None:
    """Returns for each row whether it has a label that the loss does not ignore; None: all have."""
    if isinstance(loss, OutputLosses):
        return loss.labeled(targets)
    ignored = getattr(loss, "ignore_index", None)
    if ignored is None:
        return None
    labeled = np.asarray((targets != ignored).any(axis=tuple(range(1, targets.ndim))))
    return None if labeled.all() else labeled


def from_one_hot(rows: Array) -> Index | None:
    """Returns the classes of a matrix with a single 1 in each row and zeros elsewhere; None for other arrays."""
    if rows.ndim != 2 or rows.shape[1] < 2:
        return None
    is_one_hot = (np.count_nonzero(rows, axis=1) == 1) & (rows.max(axis=1) == 1)
    return rows.argmax(axis=1).astype(np.int64) if is_one_hot.all() else None


def _labels(loss: Loss, y: Any, outputs: Shape) -> Index | None:
    """Returns the labels in y, whole numbers or one-hot rows, if the loss takes integers for labels; None otherwise."""
    array = check_array(y, "y")
    if not getattr(loss, "classes", False) or array.dtype.kind not in "iubf":
        return None
    if len(outputs) == 1 < outputs[0] and array.shape[1:] == outputs:
        return from_one_hot(array)
    column = array[:, 0] if array.shape[1:] == (1,) else array
    if column.ndim != 1:
        return None
    if column.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # the remainder of infinity
            if not (column % 1 == 0).all():
                return None
    return column.astype(np.int64)
