"""What plots need of models: outputs of layers, their titles, and the shapes of images."""

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
    """Returns a built Sequential, or that of a fitted estimator. Raises TypeError or ValueError for anything else."""
    found = getattr(model, "model_", model)
    if not isinstance(found, Sequential):
        raise TypeError(f"model: expected a Sequential or a fitted estimator of one, got {type(model).__name__}")
    if found.network is None:
        raise ValueError("model: expected a built one: give it an input_shape, or fit it first")
    return found


def layer_title(name: str, layer: Layer) -> str:
    """Returns the name of a layer in titles, as in `model.summary()`."""
    return f"{name} {title(layer)}"


def layer_outputs(model: Sequential, way: LayerPath, x: Array) -> Array:
    """Returns the outputs in inference of the last layer of a path, for examples x (n, *model.input_shape)."""
    network = model.network
    assert network is not None
    names = [type(layer).__name__ for layer in way]
    with model.usage.reading("feature_maps"):
        return Network(way, names, network.parameters, network.trained).predict(x)


def flattened_image(way: LayerPath) -> Shape | None:
    """Returns the shape of the image that a Flatten before the last layer of a path has flattened; None without one."""
    for layer in _reversed_leaves(reversed(way[:-1])):
        if isinstance(layer, Flatten):
            return layer.in_shape if len(layer.in_shape) == 3 else None
        if isinstance(layer, Container) or layer.macs or layer.in_shape != way[-1].in_shape:
            return None
    return None


def _reversed_leaves(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Yields layers in reverse order, the layers of a Block instead of it."""
    for layer in layers:
        if isinstance(layer, Block):
            yield from _reversed_leaves(reversed(layer.layers))
        else:
            yield layer


def first_convolution(found: Mapping[str, LayerPath]) -> str | None:
    """Returns the name of the first layer whose weights are images, or None."""
    for name, way in found.items():
        if "weight" in way[-1].params and way[-1].params["weight"].value.ndim == 4:
            return name
    return None


def check_image(image_shape: object, size: int) -> Shape:
    """Returns image_shape if it is (channels, height, width) of `size` numbers; else raises TypeError or ValueError."""
    if not isinstance(image_shape, (tuple, list)) or len(image_shape) != 3:
        raise TypeError(f"image_shape: expected (channels, height, width), got {image_shape!r}")
    shape = tuple(check_int("image_shape", one) for one in image_shape)
    if math.prod(shape) != size:
        raise ValueError(f"image_shape: expected a shape of {size} numbers, got {shape}")
    return shape
