"""OutputLosses: a loss for each of several outputs, which are trained as one: their weighted sum.

Scores and targets of all outputs are one array each, (n, size), so that what takes one loss takes these. The scores lie
in it as `OutputLayout` says. Targets are numbers of the model's dtype, and say what they are, so that `split` can
restore them:

- of a loss with a kernel: those that the kernel reads, as output_losses.pyx has them;
- of a function: the kind of its numbers and its shape, (kind, axes, *sizes), before the numbers themselves.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.layers.outputs import OutputLayout, Outputs, check_names
from minidl.losses import Loss, check_rows, checked_loss
from minidl.losses import check_targets as check_own
from minidl.losses import get as loss_named
from minidl.utils.arrays import Array, as_dtype
from minidl.utils.constructors import constructor_repr, readonly_argument
from minidl.utils.errors import kind_of
from minidl.utils.overrides import speaks_for
from minidl.utils.validation import Shape, check_non_negative
from minidl_c.losses.output_losses import OutputLossesOp

KINDS = "biuf"  # of a function's targets: each is stored as its place here


class OutputLosses:
    """The losses of outputs by name, and their weights: the total is `sum(weights[name] * losses[name])`.

    Calling it returns the total of each example and its gradient, from scores and targets that are one array each.
    """

    applies = ""
    classes = False

    def __init__(self, losses: Mapping[str, Loss], weights: Mapping[str, float] | None = None) -> None:
        self._losses = dict(losses)
        self._weights = dict.fromkeys(losses, 1.0) | dict(weights or {})
        self._outputs: Outputs | None = None

    losses, weights = readonly_argument("losses"), readonly_argument("weights")

    def __repr__(self) -> str:
        return constructor_repr(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._losses, self._weights)

    def __deepcopy__(self, memo: dict[int, Any]) -> OutputLosses:
        twin = type(self)(copy.deepcopy(self._losses, memo), self._weights)
        twin._outputs = copy.deepcopy(self._outputs, memo)
        return twin

    # ---- the outputs of a model

    def bind(self, outputs: Outputs) -> None:
        """Takes the outputs that the losses are for, which may be built later."""
        ordered = [name for name in outputs.branches if name in self._losses]
        self._losses = {name: self._losses[name] for name in ordered}
        self._outputs = outputs

    @property
    def layout(self) -> OutputLayout:
        """Where the outputs with losses lie in the array of their scores."""
        assert self._outputs is not None
        shapes = self._outputs.layout.shapes
        return OutputLayout({name: shapes[name] for name in self._losses})

    # ---- targets

    def rows_by_output(self, y: Any, n: int) -> dict[str, Array]:
        """Returns y as arrays by name; raises TypeError or ValueError unless each output has n rows."""
        names = ", ".join(self._losses)
        if not isinstance(y, Mapping):
            raise TypeError(f"y: expected a dict of targets for the outputs {names}, got {type(y).__name__}")
        wrong = [f"none for {name!r}" for name in self._losses if name not in y]
        wrong += [f"{name!r}, which has no loss" for name in y if name not in self._losses]
        if wrong:
            raise ValueError(f"y: expected targets for the outputs {names}, got {'; '.join(wrong)}")
        rows = {}
        for name in self._losses:
            with naming(name):
                rows[name] = check_rows(y[name], n)
        return rows

    def targets(self, y: Mapping[str, Array], shape: Shape, dtype: str) -> NDArray[Any]:
        """Returns the targets of all outputs, by name, as one array (n, size) of the dtype, as the op takes them.

        Raises TypeError or ValueError, naming the output, for invalid ones.
        """
        parts = []
        for name, loss in self._losses.items():
            with naming(name):
                own = check_own(loss, y[name], len(y[name]), self.layout.shapes[name], dtype)
                op = _op(loss, self.layout.shapes[name], dtype)
                parts.append(_described(own, dtype) if op is None else _packed(own, op, dtype))
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def split(self, targets: Array) -> dict[str, Array]:
        """Returns the targets of each output, as its loss takes them, from what `targets` returned.

        Of several batches, bools and whole numbers become numbers where others are; raises ValueError, naming the
        output, for targets of a function whose shapes differ.
        """
        parts, start, dtype = {}, 0, targets.dtype.name
        for name, loss in self._losses.items():
            shape = self.layout.shapes[name]
            op, rest = _op(loss, shape, dtype), targets[:, start:]
            with naming(name):
                parts[name], width = _restored(rest) if op is None else _unpacked(rest, op, loss, shape)
            start += width
        return parts

    def labeled(self, targets: Array) -> NDArray[np.bool_] | None:
        """Returns for each row whether an output has a label that its loss does not ignore; None: all have."""
        found = np.zeros(len(targets), bool)
        for name, part in self.split(targets).items():
            ignored = getattr(self._losses[name], "ignore_index", None)
            if ignored is None:
                return None
            found |= (part != ignored).any(axis=tuple(range(1, part.ndim)))
        return None if found.all() else found

    # ---- losses

    def each(self, scores: Array, targets: Array) -> Iterator[tuple[str, Array, Array]]:
        """Yields for each output its name, the losses (n,), and their gradient (n, ...), without its weight."""
        layout, parts = self.layout, self.split(targets)
        for name, loss in self._losses.items():
            losses, dscores = checked_loss(loss, np.ascontiguousarray(layout.part(scores, name)), parts[name])
            yield name, losses, dscores

    def __call__(self, scores: Array, targets: Array) -> tuple[Array, Array]:
        """Returns the total of each example, (n,), and its gradient, (n, size)."""
        total, dscores = np.zeros(len(scores), scores.dtype), np.empty_like(scores)
        for name, losses, gradient in self.each(scores, targets):
            weight = scores.dtype.type(self._weights[name])
            total = total + weight * losses.astype(scores.dtype, copy=False)
            dscores[:, self.layout.places[name]] = (weight * gradient).reshape(
                len(scores), math.prod(gradient.shape[1:])
            )
        return total, dscores


class NativeOutputLosses(OutputLosses):
    """OutputLosses of which all have kernels: they run inside the training plan."""

    def op(self, shape: Shape, dtype: str) -> OutputLossesOp:
        """Returns the op of outputs of this shape, (size,)."""
        shapes = self.layout.shapes
        ops = [_op(loss, shapes[name], dtype) for name, loss in self._losses.items()]
        return OutputLossesOp(ops, [self._weights[name] for name in self._losses], dtype)


CLASSES = (OutputLosses, NativeOutputLosses)


def by_output(losses: Mapping[str, str | Loss], weights: Any = None) -> OutputLosses:
    """Returns the losses of outputs, given by name or as objects; raises TypeError or ValueError, naming the output."""
    if not losses:
        raise ValueError("loss: expected a loss for at least one output, got none")
    found = {}
    for name, loss in losses.items():
        if not isinstance(name, str):
            raise TypeError(f"loss: expected losses by the names of outputs, got {name!r}")
        with naming(name, "loss"):
            found[name] = loss_named(loss)
    native = all(_is_native(loss) for loss in found.values())
    return (NativeOutputLosses if native else OutputLosses)(found, check_weights(weights, found))


def bound(loss: Loss, model: Any) -> Loss:
    """Returns losses of outputs for a model of one size that shares its weights with theirs; others as they are."""
    if not isinstance(loss, OutputLosses):
        return loss
    kept, losses = vars(model).get("_losses", (None, None))
    if kept is not loss:  # steps belong to the object
        losses = type(loss)(loss.losses, loss.weights)
        losses.bind(model.layers[-1])
        model._losses = loss, losses
    return losses


def check_weights(weights: Any, losses: Mapping[str, Loss]) -> dict[str, float]:
    """Returns weights of losses, by name; raises TypeError or ValueError for others."""
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        raise TypeError(f"loss_weights: expected a dict of numbers by output, got {weights!r:.100}")
    check_names("loss_weights", weights, losses)
    return {n: check_non_negative(f"loss_weights: output {n!r}", weight, "float32") for n, weight in weights.items()}


def _is_native(loss: Loss) -> bool:
    return speaks_for(loss, "op", "__call__")


def _op(loss: Any, shape: Shape, dtype: str) -> Any:
    """Returns the op of a loss; None for a function."""
    return loss.op(shape, dtype) if _is_native(loss) else None


@contextmanager
def naming(output: str, argument: str = "y") -> Iterator[None]:
    """A context in which errors about an argument name the output: "y: output 'policy': ..."."""
    try:
        yield
    except (TypeError, ValueError) as error:
        message = str(error)
        raise kind_of(error)(f"{argument}: output {output!r}: {message.removeprefix(f'{argument}: ')}") from error


# ---- the targets of one output as numbers, and back


def _packed(targets: Array, op: Any, dtype: str) -> Array:
    """Returns labels or numbers as the op of several losses reads those of this loss."""
    n, is_labels = len(targets), targets.dtype.kind in "iu"
    if is_labels:
        _check_exact(targets, dtype)
    rows = targets.reshape(n, math.prod(targets.shape[1:])).astype(dtype, copy=False)
    if not op.n_target or not op.n_labels:
        return rows
    packed = np.zeros((n, op.n_target + 1), dtype)
    packed[:, : rows.shape[1]] = rows
    packed[:, -1] = is_labels
    return packed


def _unpacked(packed: Array, op: Any, loss: Any, shape: Shape) -> tuple[Array, int]:
    """Returns labels or numbers from what `_packed` returned, and the number of columns that they take."""
    n, rows, positions = len(packed), packed[:, : op.n_target], math.prod(shape[1:])
    if not op.n_target:
        return packed[:, 0].astype(np.int64), 1
    numbers = rows.reshape(n, *shape) if op.n_target == math.prod(shape) else rows
    if not op.n_labels:
        return numbers, op.n_target
    is_label, labels = packed[:, op.n_target] == 1, packed[:, : op.n_labels].astype(np.int64)
    labels = labels.reshape(n, *shape[1:]) if op.n_labels == positions else labels
    if not is_label.all() and is_label.any():  # of batches of both kinds
        numbers = numbers.copy()
        numbers[is_label] = loss.numbers(labels[is_label], shape)
    return labels if is_label.all() else numbers, op.n_target + 1


def _described(targets: Array, dtype: str) -> Array:
    """Returns the targets of a function as numbers, after what they are."""
    kind, n = targets.dtype.kind, len(targets)
    if kind not in KINDS:
        raise TypeError(f"y: expected real numbers, got dtype {targets.dtype}")
    if kind in "iu":
        _check_exact(targets, dtype)
    header = [KINDS.index(kind), targets.ndim - 1, *targets.shape[1:]]
    numbers = as_dtype(targets, dtype, "y").reshape(n, math.prod(targets.shape[1:]))
    return np.concatenate([np.tile(np.array(header, dtype), (n, 1)), numbers], axis=1)


def _restored(described: Array) -> tuple[Array, int]:
    """Returns the targets of a function from what `_described` returned, and the number of columns that they take."""
    if not len(described):
        return described[:, 0], 0
    kind, axes = KINDS[int(described[:, 0].max())], int(described[0, 1])
    shape = tuple(int(size) for size in described[0, 2 : 2 + axes])
    if (different := (described[:, 1 : 2 + axes] != described[0, 1 : 2 + axes]).any(axis=1)).any():
        row = described[int(different.argmax())]
        other = tuple(int(size) for size in row[2 : 2 + int(row[1])])
        raise ValueError(f"y: expected targets of one shape for a whole epoch, got {shape} and {other}")
    width = 2 + axes + math.prod(shape)
    numbers = described[:, 2 + axes : width].reshape(len(described), *shape)
    return numbers if kind == "f" else numbers.astype(np.bool_ if kind == "b" else np.int64), width


def _check_exact(numbers: Array, dtype: str) -> None:
    """Raises ValueError for whole numbers that the dtype cannot hold exactly."""
    most = 2 ** (np.finfo(dtype).nmant + 1)
    if numbers.size and (numbers.max() > most or numbers.min() < -most):
        expected = f"expected whole numbers from {-most} to {most}, which {dtype} holds exactly"
        raise ValueError(
            f"y: {expected}, got {numbers.min()} to {numbers.max()}; of several outputs they are one array"
        )
