"""Images with their channels last, which a model would read as many channels of narrow images: found by their shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minidl.layers.base import Layer
from minidl.layers.container import Container
from minidl.utils.hints import warn_caller
from minidl.utils.validation import Shape

CHANNELS = (1, 3, 4)  # grey, RGB, RGBA
MIN_SIDE = 8  # pixels of the smallest images
MAX_ASPECT_RATIO = 4  # longer side / shorter side


def last(shape: Shape) -> bool:
    """Whether a shape looks like that of an image with its channels last, (height, width, channels).

    >>> last((32, 32, 3)), last((3, 32, 32)), last((64, 4, 4))
    (True, False, False)
    """
    if len(shape) != 3:
        return False
    height, width, channels = shape
    sides = sorted((height, width))
    return channels in CHANNELS and sides[0] >= MIN_SIDE and sides[1] <= MAX_ASPECT_RATIO * sides[0]


def advice(shape: Shape) -> str:
    """Returns the advice for an input of this shape."""
    height, width, channels = shape
    taken = f"an input of shape {shape} is taken for {height} channels of {width} x {channels}"
    return f"{taken}: images are (n, channels, height, width), with channels last X.transpose(0, 3, 1, 2)"


def first_look(layers: Iterable[tuple[Layer, str]]) -> str | None:
    """Returns the name of the first layer that sees the model's input as images; None if there is none.

    layers: of a model, each with what errors call it, built up to a layer that fails.
    """
    return next((name for layer, name in _looks(layers) if layer is not None), None)


def warn(layers: Iterable[tuple[Layer, str]], shape: Shape) -> None:
    """Warns, at the line outside of minidl, if a model takes the channels of images for their width.

    layers: see first_look; shape: of the model's input.
    """
    name = first_look(layers) if last(shape) else None
    if name is not None:
        warn_caller(f"{name}: {advice(shape)}")


def _looks(layers: Iterable[tuple[Layer, str]]) -> Iterator[tuple[Layer | None, str]]:
    """Yields the layers that see the input as images; at last None if it gets another shape."""
    for layer, name in layers:
        if isinstance(layer, Container):
            branches = [
                [(part, f"{name}: {place}") for part, place in zip(way, layer.child_names(branch), strict=True)]
                for branch, way in layer.named_branches().items()
            ]
            found = [look for branch in branches for look in _looks(branch)]
            yield from sorted(found, key=lambda look: look[0] is None)
            if found:
                return
        elif layer.takes_images or layer.moves_pixels:
            yield (None if _is_column(layer) else layer), name
            return
        elif getattr(layer, "out_shape", None) != getattr(layer, "in_shape", None):  # it fails if one is missing
            yield None, name
            return


def _is_column(layer: Layer) -> bool:
    """Whether the window is (n, 1), as over a signal: the last axis is no side of an image."""
    window = getattr(layer, "kernel_size", getattr(layer, "pool_size", None))
    return isinstance(window, (tuple, list)) and len(window) == 2 and window[0] != 1 and window[1] == 1
