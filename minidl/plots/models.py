"""Models that are drawn: what their layers compute, and what their inputs look like."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from minidl.engine.layer_paths import LayerPath
from minidl.engine.network import Network
from minidl.layers.base import Layer
from minidl.layers.container import Container, title
from minidl.layers.flatten import Flatten
from minidl.layers.parallel import Block
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape, check_int


def model_in(model: object) -> Sequential:
    """The built Sequential that this is, or that a fitted estimator has; raises TypeError or ValueError for none."""
    found = getattr(model, "model_", model)
    if not isinstance(found, Sequential):
        raise TypeError(f"model: expected a Sequential or a fitted estimator of one, got {type(model).__name__}")
    if found.network is None:
        raise ValueError("model: expected a built one: give it an input_shape, or fit it first")
    return found


def called(name: str, layer: Layer) -> str:
    """What titles call a layer, as `model.summary()` does."""
    return f"{name} {title(layer)}"


def outputs(model: Sequential, way: LayerPath, x: Array) -> Array:
    """What the last layer of a way makes of examples x (n, *model.input_shape), in inference."""
    network = model.network
    assert network is not None
    names = [type(layer).__name__ for layer in way]
    with model.busy.reading("feature_maps"):
        return Network(way, names, network.parameters, network.trained).predict(x)


def image_in_front(way: LayerPath) -> Shape | None:
    """The shape of the image that a Flatten in front of a way's last layer has made a row of; None: there is none."""
    for layer in _unrolled(reversed(way[:-1])):
        if isinstance(layer, Flatten):
            return layer.in_shape if len(layer.in_shape) == 3 else None
        if isinstance(layer, Container) or layer.macs or layer.in_shape != way[-1].in_shape:
            return None
    return None


def _unrolled(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Layers from behind, the parts of a Block in its place."""
    for layer in layers:
        if isinstance(layer, Block):
            yield from _unrolled(reversed(layer.layers))
        else:
            yield layer


def first_convolution(found: Mapping[str, LayerPath]) -> str | None:
    """The name of the first layer whose weights are images; None: there is none."""
    for name, way in found.items():
        if "weight" in way[-1].params and way[-1].params["weight"].value.ndim == 4:
            return name
    return None


def image_of(image_shape: object, size: int) -> Shape:
    """`image_shape` as (channels, height, width) of so many numbers; raises TypeError or ValueError for another one."""
    if not isinstance(image_shape, (tuple, list)) or len(image_shape) != 3:
        raise TypeError(f"image_shape: expected (channels, height, width), got {image_shape!r}")
    shape = tuple(check_int("image_shape", one) for one in image_shape)
    if math.prod(shape) != size:
        raise ValueError(f"image_shape: expected one of {size} numbers, got {shape}")
    return shape
