"""Quantization-aware training: from a trained model to one that is trained with its rounding, and to integers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine import description
from minidl.engine.layer_list import from_spec, to_spec
from minidl.layers import BatchNorm1D, BatchNorm2D, Block, Parallel, Scale
from minidl.layers.base import Layer
from minidl.layers.container import Container, child_path
from minidl.layers.fake_quantize import FakeQuantize, QuantizationAware
from minidl.quantization.aware import errors_inside, nodes_of, program_of
from minidl.quantization.conversion import groups_of, quantizations_of, read_nodes
from minidl.quantization.graph import Copy, Maximum, Node, in_order, named_errors
from minidl.quantization.model import QuantizedModel
from minidl.quantization.program import Quantization
from minidl.quantization.quantizing import check_model, observe
from minidl.quantization.rules.products import fixed_batch_norm
from minidl.quantization.translation import translate
from minidl.sequential import Sequential
from minidl.utils.data import ArraySource

INSIDE = "values inside, which no FakeQuantize can round; float_layers leaves it in float, quantize rounds it"


def prepare(model: Sequential, X: ArrayLike, *, ranges: str = "auto", float_layers: int = 0) -> Sequential:
    """Returns a model for quantization-aware training: it is trained with rounding, and predicts by integers.

    `Trainer` trains it as any model, usually for some epochs of Adam at a rate of about 1e-4. Training steps round
    weights and values to those that 8-bit integers stand for, with straight-through gradients. `predict`, `evaluate`
    and everything else in inference compute by the integers of the current weights, and `convert` returns these.

    Parameters
    ----------
    model : Sequential
        A trained model of one size. It is not changed.
    X : array-like of shape `(n, *input_shape)`
        Calibration data, as for `quantize`. The ranges of values follow from it, and stay fixed in training.
    ranges : "auto" or "minmax", default "auto"
        As for `quantize`.
    float_layers : int, default 0
        As for `quantize`: the number of layers at the end that stay in float.

    Returns
    -------
    Sequential
        A new model of a `QuantizationAware` layer, and the layers in float after it.

    Raises
    ------
    InputError, TypeError, ValueError, RuntimeError
        As `quantize`, if the model has another dtype than float32, and for layers with values inside that no
        FakeQuantize can round, such as a PReLU with several slopes.

    See Also
    --------
    convert : Returns the integers.

    Notes
    -----
    A batch norm becomes a Scale with a bias: its running statistics are fixed, so high rates diverge. Dropout and
    augmentation stay. A value gets a FakeQuantize after the last layer that its operation comes from, which is where
    integers round it: after the ReLU of a convolution, and after the max pool that follows. Containers become Block and
    Parallel.

    Steps are those of a model with Python in it: on any number of threads they give the same bits, and so does a
    resumed fit. In a job of several processes, each does the whole step.

    References
    ----------
    Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (2017),
    arXiv:1712.05877. Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference: A whitepaper"
    (2018), arXiv:1806.08342.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential, Trainer
    >>> from minidl.layers import Dense, ReLU
    >>> from minidl.optimizers import Adam
    >>> from minidl.quantization import convert, prepare
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 4)).astype("float32")
    >>> y = (X.sum(axis=1) > 0).astype(int)
    >>> model = Sequential([Dense(8), ReLU(), Dense(2)], input_shape=(4,))
    >>> history = Trainer(model, "softmax_cross_entropy", Adam()).fit(X, y, epochs=5, verbose=0)
    >>> prepared = prepare(model, X)
    >>> history = Trainer(prepared, "softmax_cross_entropy", Adam(1e-4)).fit(X, y, epochs=2, verbose=0)
    >>> bool((convert(prepared).predict(X) == prepared.predict(X)).all())
    True
    """
    last = check_model("prepare", model, ranges, float_layers)
    body, after = model.layers[: last + 1], model.layers[last + 1 :]
    with model.usage.reading("prepare"):
        rewriting = _Rewriting(_quantizations(model, body, X, ranges))
        layers = [QuantizationAware(*rewriting.body(body)), *map(rewriting.copied, after)]
        prepared = Sequential(layers, model.input_shape, model.seed, model.dtype)
        rewriting.copy_values()
    prepared.lr_mult = model.lr_mult
    description.describe(prepared, description.about(model))
    _check_in_training(prepared)
    return prepared


def convert(prepared: Sequential) -> QuantizedModel:
    """Returns the integers of a model that `prepare` returned: its predictions are the same, to the last byte.

    Parameters
    ----------
    prepared : Sequential
        A model whose first layer is a QuantizationAware. It is not changed.

    Returns
    -------
    QuantizedModel
        The integers of its weights as they are now, and the layers in float after them. Its `noise` is not known.

    Raises
    ------
    TypeError, ValueError
        For another model, and if there are no such integers any more, as of weights that are not finite: the message
        names the layer.
    RuntimeError
        If another thread trains the model.

    See Also
    --------
    prepare : Has an example.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Dense
    >>> from minidl.quantization import FakeQuantize, QuantizationAware, convert
    >>> layers = FakeQuantize(0.125, 0), Dense(2), FakeQuantize(0.25, 0)
    >>> model = Sequential([QuantizationAware(*layers)], input_shape=(3,))
    >>> [operation.label for operation in convert(model).program.operations]
    ['1, Dense']
    """
    if not isinstance(prepared, Sequential):
        raise TypeError(f"prepared: expected a Sequential, got {type(prepared).__name__}")
    prepared.check_one_size("convert")
    body = _body_of(prepared)
    with prepared.usage.reading("convert"):
        program = program_of(body, prepared.manual.network)
    after = prepared[1:] if len(prepared) > 1 else None
    quantized = QuantizedModel(program, prepared.input_shape, body.out_shape, after)
    description.describe(quantized, description.about(prepared))
    return quantized


def _body_of(prepared: Sequential) -> QuantizationAware:
    body = prepared.layers[0]
    if not isinstance(body, QuantizationAware):
        expected = "expected a model of a QuantizationAware, that prepare returned"
        raise ValueError(f"prepared: {expected}, got {type(body).__name__} as first layer")
    return body


def _quantizations(model: Sequential, layers: Sequence[Layer], X: ArrayLike, ranges: str) -> dict[str, Quantization]:
    """Returns the quantization of each value by the path of the last layer that it comes from; "" is the input's."""
    paths: dict[Node, str] = {}
    nodes = in_order(translate(model.manual.network, layers, paths))
    for node, path in list(paths.items()):  # what is copied alone may be read in its place: see translate_dense
        if isinstance(node, Copy) and len(node.inputs) == 1:
            paths.setdefault(node.inputs[0], path)
    examples = ArraySource(X, model.input_shape, model.dtype)
    found, _ = observe(nodes, examples, ranges)
    made = quantizations_of(nodes, found)
    read = read_nodes(nodes, groups_of(nodes))
    return {paths[x]: made[x] for node in read for x in _ends_of_layers(node, paths)}


def _ends_of_layers(node: Node, paths: Mapping[Node, str]) -> list[Node]:
    """Returns the node itself if a layer ends with it; of a copy inside of a layer, what it copies."""
    if node in paths:
        return [node]
    if isinstance(node, (Copy, Maximum)):
        return [end for x in node.inputs for end in _ends_of_layers(x, paths)]
    with named_errors(node):
        raise ValueError(f"expected a layer without {INSIDE}")


def _check_in_training(prepared: Sequential) -> None:
    """Raises ValueError if there are no integers now, or if other weights had values without a FakeQuantize."""
    program_of(_body_of(prepared), prepared.manual.network)
    twin, rng = copy.deepcopy(prepared), np.random.default_rng(0)
    for param in twin.params.values():
        param.value[...] = rng.uniform(0.5, 1, param.value.shape)
    try:
        with errors_inside():
            quantizations_of(nodes_of(_body_of(twin), twin.manual.network), {})
    except ValueError as error:
        raise ValueError(f"{error}: weights that differ give it {INSIDE}") from error


class _Rewriting:
    """Copies of layers, with a FakeQuantize after those whose paths have a quantization."""

    def __init__(self, quantizations: Mapping[str, Quantization]) -> None:
        self.quantizations = quantizations
        self.copies: list[tuple[Layer, Layer]] = []  # of leaves

    def body(self, layers: Sequence[Layer]) -> list[Layer]:
        """Returns the layers of a QuantizationAware."""
        return [*self._rounding(""), *self._chain(layers, [str(i) for i in range(len(layers))])]

    def copied(self, layer: Layer) -> Layer:
        """Returns a copy of a layer that stays in float."""
        made: Layer = from_spec(to_spec(layer))
        self.copies += zip(layer.leaves(), made.leaves(), strict=True)
        return made

    def copy_values(self) -> None:
        """Sets the parameters and buffers of all copies, which are built, to those of their layers."""
        for layer, made in self.copies:
            arrays = {name: param.value for name, param in layer.params.items()} | layer.buffers
            if isinstance(made, Scale) and not isinstance(layer, Scale):
                arrays = dict(zip(("weight", "bias"), fixed_batch_norm(layer), strict=True))
            for name, param in made.params.items():
                param.value[...] = arrays[name]
            for name, buffer in made.buffers.items():
                buffer[...] = arrays[name]

    def _rounding(self, path: str) -> list[Layer]:
        made = self.quantizations.get(path)
        return [] if made is None else [FakeQuantize(made.scale, made.zero_point)]

    def _chain(self, layers: Sequence[Layer], paths: Sequence[str]) -> list[Layer]:
        made: list[Layer] = []
        for layer, path in zip(layers, paths, strict=True):
            made += [self._layer(layer, path), *self._rounding(path)]
        return made

    def _layer(self, layer: Layer, path: str) -> Layer:
        if isinstance(layer, (BatchNorm1D, BatchNorm2D)):
            return self._scale(layer)
        if not isinstance(layer, Container):
            return self.copied(layer)
        branches = [
            self._chain(children, [f"{path}.{child_path(name, i)}" for i in range(len(children))])
            for name, children in layer.named_branches().items()
        ]
        is_block = len(branches) == 1
        made = Block(*branches[0]) if is_block else Parallel(*branches, join=layer.join, axis=layer.axis)
        made.lr_mult, made.decay_mult = layer.lr_mult, layer.decay_mult
        return made

    def _scale(self, norm: Layer) -> Scale:
        """Returns what a batch norm is with fixed statistics; without parameters of its own, it has none to train."""
        made = Scale(use_bias=True)
        made.take_settings(norm.settings if norm.params else {"trainable": False})
        self.copies.append((norm, made))
        return made
