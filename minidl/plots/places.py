"""Layers of a model by their places, what they compute, and what their inputs look like."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from minidl.arrays import Array
from minidl.container import Container, place_of, title
from minidl.layer import Layer, Shape
from minidl.layers.flatten import Flatten
from minidl.layers.parallel import Block
from minidl.network import Network
from minidl.sequential import Sequential
from minidl.shapes import whole

Way = tuple[Layer, ...]  # the layers that a value goes through, the last one being the one that was asked for


def model_in(model: object) -> Sequential:
    """The built Sequential that this is, or that a fitted estimator has; raises TypeError or ValueError for none."""
    found = getattr(model, "model_", model)
    if not isinstance(found, Sequential):
        raise TypeError(f"model: expected a Sequential or a fitted estimator of one, got {type(model).__name__}")
    if found.network is None:
        raise ValueError("model: expected a built one: give it an input_shape, or fit it first")
    return found


def ways(model: Sequential) -> dict[str, Way]:
    """All layers by the names that their parameters begin with, "3.body.0", each with those on the way to it."""
    return dict(_ways([(str(i), layer) for i, layer in enumerate(model.layers)], ()))


def _ways(layers: Iterable[tuple[str, Layer]], front: Way) -> Iterator[tuple[str, Way]]:
    for name, layer in layers:
        yield name, (*front, layer)
        if isinstance(layer, Container):
            for branch, parts in layer.ways().items():
                inner = [(f"{name}.{place_of(branch, i)}", part) for i, part in enumerate(parts)]
                yield from _ways(inner, front)
        front = (*front, layer)


def place_in(found: Mapping[str, Way], layer: int | str) -> str:
    """The name of the layer at a place: a number, from the end if it is negative, or a name such as "3.body.0".

    Raises TypeError for anything else, ValueError for a place where no layer is.
    """
    if isinstance(layer, bool) or not (isinstance(layer, str) or hasattr(layer, "__index__")):
        raise TypeError(f"layer: expected a place such as 1 or '3.body.0', got {layer!r}")
    count = sum("." not in name for name in found)
    name = layer if isinstance(layer, str) else str(int(layer) + count * (layer < 0))
    if name not in found:
        inner = [place for place in found if "." in place][:8]
        more = f", or of a layer in them such as {', '.join(map(repr, inner))}" if inner else ""
        raise ValueError(f"layer: expected a place from 0 to {count - 1}{more}, got {layer!r}")
    return name


def called(name: str, layer: Layer) -> str:
    """What titles call a layer, as `model.summary()` does."""
    return f"{name} {title(layer)}"


def outputs(model: Sequential, way: Way, x: Array) -> Array:
    """What the last layer of a way makes of examples x (n, *model.input_shape), in inference."""
    network = model.network
    assert network is not None
    names = [type(layer).__name__ for layer in way]
    with model.busy.reading("feature_maps"):
        return Network(way, names, network.parameters, network.trained).predict(x)


def image_in_front(way: Way) -> Shape | None:
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


def first_convolution(found: Mapping[str, Way]) -> str | None:
    """The name of the first layer whose weights are images; None: there is none."""
    for name, way in found.items():
        if "weight" in way[-1].params and way[-1].params["weight"].value.ndim == 4:
            return name
    return None


def image_of(image_shape: object, size: int) -> Shape:
    """`image_shape` as (channels, height, width) of so many numbers; raises TypeError or ValueError for another one."""
    if not isinstance(image_shape, (tuple, list)) or len(image_shape) != 3:
        raise TypeError(f"image_shape: expected (channels, height, width), got {image_shape!r}")
    shape = tuple(whole("image_shape", one) for one in image_shape)
    if math.prod(shape) != size:
        raise ValueError(f"image_shape: expected one of {size} numbers, got {shape}")
    return shape
