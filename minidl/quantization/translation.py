"""Translation: from the layers of a model to the graph. Branches are translated in turn, then joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from minidl.engine.network import Network
from minidl.layers import Block, Parallel, Residual, SqueezeExcite
from minidl.layers.base import Layer
from minidl.layers.container import Container, child_path
from minidl.layers.join import ADD, CONCAT, MULTIPLY
from minidl.quantization.folding import copied
from minidl.quantization.graph import Gate, Image, Input, Integers, Node, Sum, image_of
from minidl.quantization.rules import TRANSLATIONS
from minidl.quantization.site import Site
from minidl.utils.arrays import Array
from minidl.utils.errors import kind_of
from minidl.utils.validation import Shape

CONTAINERS = (Block, Parallel, Residual, SqueezeExcite)


@dataclass(frozen=True)
class Origin:
    """What a layer was in the file that it comes from: its label there, and the integers of its weights."""

    label: str
    integers: Integers | None = None


@dataclass
class Translation:
    """A graph that grows, layer by layer.

    paths: for each node, the path of the last layer that it comes from, such as "2.body.1"; "" is the input's.
    origins: of layers from a file.
    """

    network: Network
    paths: dict[Node, str] = field(default_factory=dict)
    origins: Mapping[Layer, Origin] = field(default_factory=dict)


def translate(
    network: Network,
    layers: Sequence[Layer],
    paths: dict[Node, str] | None = None,
    origins: Mapping[Layer, Origin] | None = None,
) -> Node:
    """Returns the output of the first layers of a network, in its graph. paths: OUT those of a Translation.

    origins: of layers from a file; their labels are those of the nodes. Raises ValueError, naming the layer and its
    path, for a layer that integers cannot compute.
    """
    shape = image_of(layers[0].in_shape)
    gain, shift = np.ones(shape[0]), np.zeros(shape[0])
    x: Node = Input(label="", shape=shape, evaluate=_as_it_is, gain=gain, shift=shift)
    run = Translation(network, {} if paths is None else paths, origins or {})
    run.paths[x] = ""
    for i, layer in enumerate(layers):
        x = _translate_layer(run, layer, str(i), f"layer {i}, {type(layer).__name__}", x)
    return x


def _as_it_is(x: Array) -> Array:
    return x


def _translate_layer(run: Translation, layer: Layer, path: str, name: str, x: Node) -> Node:
    """Appends a layer, and its children; returns its output. name: that in errors, unless it has an origin."""
    origin = run.origins.get(layer, Origin(f"{path}, {type(layer).__name__}"))
    name = f"layer {origin.label}" if layer in run.origins else name
    if type(layer) in CONTAINERS:
        assert isinstance(layer, Container)
        y = _translate_branches(run, layer, path, name, x, origin.label)
    else:
        y = _translate_leaf(run, layer, origin, name, x)
    run.paths.setdefault(y, path)
    return y


def _translate_leaf(run: Translation, layer: Layer, origin: Origin, name: str, x: Node) -> Node:
    try:
        if type(layer) not in TRANSLATIONS:
            raise ValueError(
                "expected a layer that integers can compute, or one at the end, which float_layers leaves in float"
            )
        return TRANSLATIONS[type(layer)](Site(layer, x, origin.label, run.network, origin.integers))
    except (TypeError, ValueError) as error:
        raise kind_of(error)(f"{name}: {error}") from error


def _translate_branches(run: Translation, layer: Container, path: str, name: str, x: Node, label: str) -> Node:
    branches = layer.named_branches()
    x.is_shared = x.is_shared or len(branches) > 1
    ends, shapes = [], []
    for branch, layers in branches.items():
        end, shape = x, layer.in_shape
        for i, (child, child_name) in enumerate(zip(layers, layer.child_names(branch), strict=True)):
            end = _translate_layer(run, child, f"{path}.{child_path(branch, i)}", f"{name}: {child_name}", end)
            shape = child.out_shape
        ends.append(end)
        shapes.append(shape)
    if len(ends) == 1:
        return ends[0]
    if layer.join == CONCAT:
        return _concatenated(ends, shapes, layer, label)
    if layer.join not in (ADD, MULTIPLY):
        raise ValueError(f"{name}: expected join='concat', 'add' or 'multiply', got {layer.join!r}")
    return _joined(layer.join, ends, shapes, layer.out_shape, label)


def _concatenated(ends: Sequence[Node], shapes: Sequence[Shape], layer: Container, label: str) -> Node:
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    parts = [np.arange(np.prod(shape)).reshape(shape) + start for shape, start in zip(shapes, starts, strict=False)]
    return copied(ends, np.concatenate(parts, layer.axis), image_of(layer.out_shape), label)


def _joined(join: str, ends: Sequence[Node], shapes: Sequence[Shape], out_shape: Shape, label: str) -> Node:
    """Returns the sum or the product of branches. A gate of one factor for each channel stays as it is."""
    shape = image_of(out_shape)
    spread = []
    for end, own in zip(ends, shapes, strict=True):
        is_gate = join == MULTIPLY and end.shape == (shape[0], 1, 1)
        if own != out_shape and not is_gate:
            index = np.broadcast_to(np.arange(np.prod(own)).reshape(own), out_shape)
            end = copied([end], index, shape, label)
        spread.append(end)
    if join == ADD:
        return Sum(label=label, shape=shape, inputs=tuple(spread), evaluate=lambda *x: reduce(np.add, x))
    spread.sort(key=lambda end: end.shape != shape)  # gates last: a product of numbers has no order
    if spread[0].shape != shape:
        spread[0] = copied([spread[0]], _channels(shape), shape, label)
    return reduce(lambda a, b: Gate(label=label, shape=shape, inputs=(a, b), evaluate=np.multiply), spread)


def _channels(shape: Image) -> Array:
    """Returns the channel of each number."""
    return np.broadcast_to(np.arange(shape[0])[:, None, None], shape)
