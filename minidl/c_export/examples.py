"""The inputs of the test in an exported file: categories for Embedding and OneHot, numbers in the range of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.c_export.writers import identities, shapes
from minidl.engine.layer_list import from_spec, to_spec
from minidl.layers import BatchNorm2D, Embedding, Normalize, OneHot, PiecewiseLinearEncoding, Rescale
from minidl.layers.base import Layer
from minidl.layers.container import Container
from minidl.layers.join import CONCAT
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

EXAMPLES = 4  # or as many as pass all categories, or an encoding has bins
MAX_SCORES = 65536  # of these examples
COPIES = (*identities.WRITE, *shapes.WRITE)


@dataclass(frozen=True)
class Numbers:
    """Numbers low + step * (a byte % modulo)."""

    low: float
    step: float
    modulo: int


SIGNED, BYTES, ZERO_ONE = Numbers(-2, 1 / 64, 256), Numbers(0, 1, 256), Numbers(0, 1, 2)
POSITIVE = Numbers(1 / 256, 1 / 256, 256)
KINDS = (  # of each of four examples, the second of which is passed as bytes: the first whose scores are not NaN
    (SIGNED, POSITIVE, ZERO_ONE, BYTES),
    (BYTES, ZERO_ONE),
    (ZERO_ONE, POSITIVE, SIGNED, BYTES),
    (BYTES, POSITIVE, ZERO_ONE, SIGNED),
)


@dataclass(frozen=True)
class Run:
    """Elements of an input that follow each other: low + step * n, where n is a category in turn, or a byte.

    categories: their number, or 0. With a step of 0, the kind of the example says what the numbers are.
    """

    size: int
    categories: int
    low: float
    step: float


@dataclass(frozen=True)
class Examples:
    """The runs of an input; the kinds of the first four examples, of which the others have the first; the scores."""

    runs: Sequence[Run]
    kinds: Sequence[Numbers]
    scores: Array


def draw(model: Sequential) -> Examples:
    """Returns the examples of the test, and the scores that `predict` returns for them.

    Raises ValueError if all scores of an example are NaN: it would not notice another weight.
    """
    runs, wanted = _runs(model.layers, model.input_shape)
    wanted = max([wanted, *(-(-run.categories // run.size) + 1 for run in runs if run.categories)])
    assert model.network is not None
    shape = model.network.out_shape
    count = max(EXAMPLES, min(wanted, MAX_SCORES // math.prod(shape)))
    chosen: list[Numbers] = []
    scores = np.empty((count, *shape), model.dtype)
    for k, kinds in enumerate(KINDS):
        examples = [0, *range(EXAMPLES, count)] if k == 0 else [k]
        best, fewest = kinds[0], 1.0
        for kind in kinds:
            x = np.array([_example(runs, kind, i, model.dtype) for i in examples]).reshape(-1, *model.input_shape)
            with np.errstate(all="ignore"):
                y = model.network.predict(x)
            nans = float(np.isnan(y).reshape(len(y), -1).mean(axis=1).max())
            if nans < fewest:
                best, fewest, scores[examples] = kind, nans, y
            if nans == 0:
                break
        if fewest == 1:
            raise ValueError(
                f"the test in the file: expected scores that are numbers, got NaN alone from `predict` for inputs from "
                f"{', '.join(f'{kind.low:g} to {kind.low + kind.step * (kind.modulo - 1):g}' for kind in kinds)}"
                + (" (other numbers where a layer says more)" if any(r.step for r in runs) else "")
            )
        chosen.append(best)
    return Examples(runs, chosen, scores)


def _example(runs: Sequence[Run], kind: Numbers, k: int, dtype: str) -> Array:
    """Returns the input of example k, as the C of self_test.py draws it."""
    bytes_, at, parts = random_bytes(k, sum(run.size for run in runs)), 0, list[Array]()
    for run in runs:
        n, own = bytes_[at : at + run.size], bool(run.categories or (run.step and k != 1))
        if run.categories:
            turn = (k - (k > 0)) * run.size + np.arange(run.size)  # the bytes of example 1 repeat what 0 has
            n = turn % (min(run.categories, 256) if k == 1 else run.categories)
        elif not own:
            n = n % kind.modulo
        low, step = (run.low, run.step) if own else (kind.low, kind.step)
        parts.append(np.dtype(dtype).type(low) + np.dtype(dtype).type(step) * n.astype(dtype))
        at += run.size
    return np.concatenate(parts)


def random_bytes(k: int, size: int) -> Array:
    """Returns the bytes of example k, the upper ones of a linear congruential generator that begins with k."""
    powers = np.cumprod(np.full(size, 1664525, np.uint32), dtype=np.uint32)
    sums = np.cumsum(np.concatenate([np.ones(1, np.uint32), powers[:-1]]), dtype=np.uint32)
    first = np.uint32((1 + k * 2654435761) % 2**32)
    return ((powers * first + sums * np.uint32(1013904223)) >> np.uint32(24)).astype(np.int64)


# ---- what the first layers say about the inputs


@dataclass
class _Inputs:
    """What is known of the elements of an input: categories, with a key that sharers have; a least number, a step."""

    categories: Array
    key: Array
    low: Array
    step: Array
    digits: int  # binary ones, that a number may have
    examples: int = 0  # wanted


@dataclass(frozen=True)
class _Value:
    """A value between layers, whose elements are scale * input[source] + offset; a source of -1 is unknown."""

    source: Array
    scale: Array
    offset: Array


def _runs(layers: Sequence[Layer], in_shape: Shape) -> tuple[list[Run], int]:
    """Returns the runs of inputs, as the first layers ask for them, and the number of examples."""
    size = math.prod(in_shape)
    digits = np.finfo(layers[0].dtype).nmant - 1
    known = _Inputs(np.zeros(size, int), np.zeros(size, int), np.zeros(size), np.zeros(size), digits)
    _visit(layers, _Value(np.arange(size).reshape(in_shape), np.ones(in_shape), np.zeros(in_shape)), known)
    columns = np.array([known.categories, known.key, known.low, known.step])
    starts = [0, *(1 + np.flatnonzero((columns[:, 1:] != columns[:, :-1]).any(axis=0)))]
    sizes = np.diff([*starts, size])
    runs = [
        Run(int(n), int(known.categories[i]), float(known.low[i]), float(known.step[i]))
        for i, n in zip(starts, sizes, strict=True)
    ]
    return runs, known.examples


def _visit(layers: Sequence[Layer], x: _Value, known: _Inputs) -> _Value:
    """Notes what layers ask of the inputs that reach them; returns their output."""
    for layer in layers:
        if not (x.source >= 0).any():
            return _unknown(layers[-1].out_shape)
        x = _output(layer, x, known)
    return x


def _output(layer: Layer, x: _Value, known: _Inputs) -> _Value:
    if isinstance(layer, Container):
        ends = [_visit(branch, x, known) for branch in layer.named_branches().values()]
        if len(ends) == 1:
            return ends[0]
        if layer.join == CONCAT:
            return _Value(*(np.concatenate(parts, layer.axis) for parts in zip(*map(_parts, ends), strict=True)))
    elif type(layer) in COPIES:
        return _copied(layer, x)
    elif type(layer) is Rescale and layer.scale:
        return _Value(x.source, x.scale * layer.scale, x.offset * layer.scale + layer.offset)
    elif type(layer) is Embedding:
        _note(known, x, 0, 1, layer.categories, id(layer))
    elif type(layer) is OneHot:
        _note(known, x, 0, 1, np.array(layer.op.categories), x.source)
    elif type(layer) is Normalize:
        _note_range(known, x, layer.mean, layer.std)
    elif type(layer) is PiecewiseLinearEncoding:
        _note_bins(known, x, np.array(layer.op.bins))
    elif isinstance(layer, BatchNorm2D):
        _note_range(known, x, layer.buffers["running_mean"], np.sqrt(layer.buffers["running_var"] + layer.eps))
    return _unknown(layer.out_shape)


def _parts(x: _Value) -> tuple[Array, Array, Array]:
    return x.source, x.scale, x.offset


def _unknown(shape: Shape) -> _Value:
    return _Value(np.full(shape, -1), np.ones(shape), np.zeros(shape))


def _copied(layer: Layer, x: _Value) -> _Value:
    """Returns the output of a layer that copies: where numbers that differ by their count also do in its output."""
    net = Sequential(from_spec(to_spec([layer])), layer.in_shape, dtype="float64")
    numbers = np.arange(x.source.size, dtype=float).reshape(1, *layer.in_shape)
    at, further = net.predict(numbers)[0], net.predict(numbers + x.source.size)[0]
    inside = further - at == x.source.size
    index = np.where(inside, at, 0).astype(int)
    source, scale, offset = (part.ravel()[index] for part in _parts(x))
    return _Value(np.where(inside, source, -1), scale, offset)


def _note(known: _Inputs, x: _Value, low: Any, high: Any, categories: Any = None, key: Any = 0) -> None:
    """Notes from where to where x is to go, for inputs of which nothing is noted yet.

    categories: of categories their number, and a key for elements that have them in turn; low and high are the first
    two.
    The step of numbers is a power of 2, and `low` a multiple of it, so that every number is exact.
    """
    new = (x.source >= 0) & (known.step[x.source] == 0)
    to, scale, offset = (part[new] for part in _parts(x))
    ends = [(np.broadcast_to(end, x.source.shape)[new] - offset) / scale for end in (low, high)]
    first, last = np.minimum(*ends), np.maximum(*ends)
    step = last - first
    if categories is None:
        smallest = np.maximum(np.abs(first), np.abs(last)) * 2.0**-known.digits
        step = 2.0 ** np.round(np.log2(np.maximum(step / 256, smallest)))
        first = np.round(first / step) * step
    else:
        known.categories[to], known.key[to] = (np.broadcast_to(of, x.source.shape)[new] for of in (categories, key))
    known.low[to], known.step[to] = first, step


def _note_range(known: _Inputs, x: _Value, mean: Any, std: Any) -> None:
    """Notes that the numbers of a channel are within two deviations of its mean."""
    channels = (len(x.source), *[1] * (x.source.ndim - 1))
    mean, std = (np.broadcast_to(np.asarray(value, float), len(x.source)).reshape(channels) for value in (mean, std))
    std = np.where(std == 0, 1, std)
    _note(known, x, mean - 2 * std, mean + 2 * std)


def _note_bins(known: _Inputs, x: _Value, bins: Array) -> None:
    """Notes that numbers go from the first edge of their column to beyond the last one, in an example for each bin."""
    column, low, high = bins[bins[:, 1] < bins[:, 2]].T  # not those of indicators
    first, last = np.full(x.source.size, np.inf), np.full(x.source.size, -np.inf)
    np.minimum.at(first, column.astype(int), low)
    np.maximum.at(last, column.astype(int), high)
    known.examples = max(known.examples, 1 + np.bincount(column.astype(int), minlength=1).max())
    has_bins = first < last
    low, high = np.where(has_bins, first, 0), np.where(has_bins, 2 * last - first, 1)
    _note(known, _Value(np.where(has_bins, x.source, -1), x.scale, x.offset), low, high)
