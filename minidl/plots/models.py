"""Access to the layers of a model: outputs, weights that are images, shapes of inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minidl.engine.layer_paths import LayerPath
from minidl.engine.network import Network
from minidl.layers.base import Layer
from minidl.layers.container import Container, title
from minidl.layers.flatten import Flatten
from minidl.layers.parallel import Block
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.data import shape_of_examples
from minidl.utils.validation import Shape, check_int

ROWS_ARE_PICTURES = (
    "pass image_shape=(1, 28, 28) if rows of 784 numbers are images, (3, 100) if rows of 300 are signals"
)


def get_model(model: object, X: Any = None) -> Sequential:
    """Returns a built Sequential, or that of a fitted estimator; raises TypeError or ValueError for anything else.

    X: examples, of whose size a model of images of any size is returned.
    """
    fitted = getattr(model, "model_", model)
    if not isinstance(fitted, Sequential):
        raise TypeError(f"model: expected a Sequential or a fitted estimator of one, got {type(model).__name__}")
    if fitted.network is None:
        raise ValueError("model: expected a built one: give it an input_shape, or fit it first")
    return fitted if fitted.sizes is None or X is None else fitted.at(shape_of_examples(X))


def get_scored_model(model: object, X: Any = None) -> Sequential:
    """Returns what `get_model` does; raises ValueError for a model of several outputs."""
    network = get_model(model, X)
    if network.output_names:
        several = ", ".join(network.output_names)
        raise ValueError(f"model: expected one output, got {several}: pass model[{network.output_names[0]!r}]")
    return network


def layer_title(name: str, layer: Layer) -> str:
    """Returns the name of a layer in titles, as in `model.summary()`."""
    return f"{name} {title(layer)}"


def compute_outputs(model: Sequential, path: LayerPath, x: Array) -> Array:
    """Returns the outputs of the last layer of a path for x (n, *model.input_shape), in inference mode."""
    network = model.network
    assert network is not None
    names = [type(layer).__name__ for layer in path]
    with model.usage.reading("feature_maps"):
        return Network(path, names, network.parameters, network.trained).predict(x)


def input_image_shape(path: LayerPath) -> Shape | None:
    """Returns the image shape before the Flatten that feeds the last layer of a path; None if there is none."""
    for layer in _iterate_backwards(reversed(path[:-1])):
        if isinstance(layer, Flatten):
            return layer.in_shape if len(layer.in_shape) == 3 else None
        if isinstance(layer, Container) or layer.macs or layer.in_shape != path[-1].in_shape:
            return None
    return None


def _iterate_backwards(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Yields layers that are in reverse order, with each Block replaced by its layers."""
    for layer in layers:
        if isinstance(layer, Block):
            yield from _iterate_backwards(reversed(layer.layers))
        else:
            yield layer


def find_first_convolution(paths: Mapping[str, LayerPath]) -> str | None:
    """Returns the path of the first convolution; None if there is none."""
    return next(
        (name for name, path in paths.items() if "weight" in path[-1].params and is_convolution(path[-1])), None
    )


def is_convolution(layer: Layer) -> bool:
    """True for a layer of images with weights of four axes, or of signals with weights of three."""
    axes = max(3, len(layer.out_shape) + 1)
    return any(param.value.ndim == axes for param in layer.params.values())


def resolve_image_shape(image_shape: object, size: int) -> Shape:
    """Returns (channels, height, width), or (channels, length) of signals.

    Raises TypeError or ValueError unless their product is `size`.
    """
    if not isinstance(image_shape, (tuple, list)) or len(image_shape) not in (2, 3):
        expected = "expected (channels, height, width), or (channels, length) of signals"
        raise TypeError(f"image_shape: {expected}, got {image_shape!r}")
    shape = tuple(check_int("image_shape", length) for length in image_shape)
    if math.prod(shape) != size:
        raise ValueError(f"image_shape: expected a product of {size}, got {shape}")
    return shape
