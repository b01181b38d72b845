"""Quantizing: from a trained model and calibration data to a program of integers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine import description
from minidl.engine.layer_list import layer_name
from minidl.layers.fake_quantize import QuantizationAware
from minidl.quantization.conversion import convert, quantizations_of
from minidl.quantization.graph import Doubles, Input, Node, Product, evaluate, in_order, named_errors
from minidl.quantization.model import QuantizedModel
from minidl.quantization.noise import Noise, measure
from minidl.quantization.program import Program
from minidl.quantization.ranges import METHODS, Observer
from minidl.quantization.translation import translate
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource
from minidl.utils.errors import InputError
from minidl.utils.validation import check_choice, check_int

BATCH = 64  # examples whose float values are in memory at a time, or fewer:
BATCH_NUMBERS = 2**22  # of all their values together; more are not faster
NOISE_EXAMPLES = 256  # of the calibration data, on which the noise is measured, or fewer:
NOISE_NUMBERS = 2**27  # of all their values together


@dataclass(frozen=True)
class Converted:
    """A program, the graph of the float net, the index of each node's value in the program, and the nodes' noise."""

    program: Program
    nodes: tuple[Node, ...]
    places: dict[Node, int]
    noise: tuple[Noise, ...]


def quantize(model: Sequential, X: ArrayLike, *, ranges: str = "auto", float_layers: int = 0) -> QuantizedModel:
    """Returns a trained model as a net of eight-bit integers: post-training quantization.

    Weights are int8 with a scale for each output channel, values int8 with one scale and zero point each, in which 0.0
    is exact. Batch norms and other fixed factors are folded into the layers before them, or into the quantization of
    the input; ReLU and other clips cost nothing; other activations are tables of 256 bytes. Dropout, noise and
    augmentation are left out. If X is of uint8, all 256 numbers are in the range of the input, and with a Rescale
    without offset at the beginning they are taken as they are, minus 128.

    Parameters
    ----------
    model : Sequential
        A trained model of one size. It is not changed.
    X : array-like of shape `(n, *input_shape)`
        Calibration data: some hundred examples like those that the net will get, as `predict` takes them.
    ranges : "auto" or "minmax", default "auto"
        How the range of a value follows from its numbers on the calibration data. "minmax": all of them. "auto": as
        well, unless the mean absolute error would be above 5 per cent of the mean magnitude, as of numbers with heavy
        tails; then the range that makes this error least, which cuts rare large numbers off. That of the outputs has
        all numbers.
    float_layers : int, default 0
        The number of layers at the end of the model that stay in float, such as 1 for a Softmax.

    Returns
    -------
    QuantizedModel
        A model that predicts, with the noise of each of its operations.

    Raises
    ------
    InputError
        If X is of another kind or shape, without examples, or holds NaN, infinity, or one number alone.
    TypeError, ValueError
        Naming the layer, if integers cannot compute it, or if its numbers are not finite or have too large a range; for
        invalid arguments, and if the model is not built or takes images of any size.
    RuntimeError
        If another thread trains the model.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential, quantize
    >>> from minidl.layers import Dense, ReLU
    >>> model = Sequential([Dense(8), ReLU(), Dense(2)], input_shape=(4,))
    >>> quantized = quantize(model, np.random.default_rng(0).normal(size=(100, 4)))
    >>> [operation.label for operation in quantized.program.operations]
    ['0, Dense + 1, ReLU', '2, Dense']
    """
    last = check_model("quantize", model, ranges, float_layers)
    with model.usage.reading("quantize"):
        made = converted(model, X, ranges, last)
    after = model[last + 1 :] if float_layers else None
    quantized = QuantizedModel(made.program, model.input_shape, model.layers[last].out_shape, after, made.noise)
    description.describe(quantized, description.about(model))
    return quantized


def check_model(caller: str, model: Any, ranges: str, float_layers: int) -> int:
    """Returns the index of the last layer before those in float; raises as `quantize` for invalid arguments."""
    if not isinstance(model, Sequential):
        raise TypeError(f"model: expected a Sequential, got {type(model).__name__}")
    if isinstance(model, QuantizedModel):
        raise ValueError("model: expected one in float, got a QuantizedModel: quantize the model that it was made of")
    model.check_one_size(caller)
    if isinstance(model.layers[0], QuantizationAware):
        raise ValueError("model: expected one in float, got a prepared one, of which convert returns the integers")
    check_choice("ranges", ranges, *METHODS)
    check_int("float_layers", float_layers, minimum=0, maximum=len(model) - 1)
    last = len(model) - float_layers - 1
    if model.layers[last].ends_model:
        expected = f"expected a model of one output, such as model[{model.output_names[0]!r}], or float_layers=1"
        raise ValueError(f"{layer_name(last, model.layers[last])}: {expected}")
    return last


def converted(model: Sequential, X: ArrayLike, ranges: str, last: int) -> Converted:
    """Returns the integers of the layers up to `last`; see `quantize`."""
    nodes = in_order(translate(model.manual.network, model.layers[: last + 1]))
    examples = ArraySource(X, model.input_shape, model.dtype)
    found, means = observe(nodes, examples, ranges)
    program, places = convert(nodes, quantizations_of(nodes, found), means)
    few = min(NOISE_EXAMPLES, max(1, NOISE_NUMBERS // _size(nodes)))
    noise = measure(program, nodes, places, _batches(examples, nodes, few))
    return Converted(program, tuple(nodes), places, noise)


def _size(nodes: Sequence[Node]) -> int:
    """Returns how many numbers the values of one example have together."""
    return sum(math.prod(node.shape) for node in nodes)


def _batches(examples: ArraySource, nodes: Sequence[Node], limit: int) -> Iterator[Array]:
    """Yields the first examples, (n, c, h, w) in the dtype of the model; few at a time if their values are large."""
    size = min(BATCH, max(1, BATCH_NUMBERS // _size(nodes)))
    for start in range(0, min(limit, len(examples)), size):
        block = examples.chunk(start, min(start + size, limit))
        yield block.reshape(-1, *nodes[0].shape).astype(examples.dtype)


def observe(
    nodes: Sequence[Node], examples: ArraySource, method: str
) -> tuple[dict[Node, tuple[float, float]], dict[Node, Doubles]]:
    """Returns the range of each node's numbers, and the means of those that products read."""
    n, first = len(examples), nodes[0]
    if n == 0:
        raise InputError("X: expected at least one example, got none")
    observers, ends = {node: Observer(n) for node in nodes}, [np.inf, -np.inf]
    found = {}
    for x in _batches(examples, nodes, n):
        ends = [min(ends[0], x.min()), max(ends[1], x.max())]
        for node, values in evaluate(nodes, x).items():
            with named_errors(node):
                observers[node].add(values)
    if ends[0] == ends[1]:
        raise InputError(f"X: expected examples whose numbers differ, got {ends[0]:g} alone")
    for node, observer in observers.items():
        with named_errors(node):
            found[node] = observer.range("minmax" if node is nodes[-1] else method)
    if examples.holds_bytes:
        assert isinstance(first, Input)
        all_bytes = np.concatenate([first.shift, first.gain * 255 + first.shift])
        found[first] = float(all_bytes.min()), float(all_bytes.max())
    read: dict[Any, None] = {x: None for node in nodes if isinstance(node, Product) for x in node.inputs}
    return found, {node: observers[node].mean for node in read}
