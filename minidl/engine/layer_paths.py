"""Layers of a model by their places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral

from minidl.layers.base import Layer
from minidl.layers.container import Container, place_of

Way = tuple[Layer, ...]  # the layers that a value goes through, the last one being the one that was asked for


def ways(layers: Iterable[Layer]) -> dict[str, Way]:
    """The layers of a model by the names that their parameters begin with, "3.body.0", each with those before it."""
    return dict(_ways([(str(i), layer) for i, layer in enumerate(layers)], ()))


def _ways(layers: Iterable[tuple[str, Layer]], front: Way) -> Iterator[tuple[str, Way]]:
    for name, layer in layers:
        yield name, (*front, layer)
        if isinstance(layer, Container):
            for branch, parts in layer.ways().items():
                inner = [(f"{name}.{place_of(branch, i)}", part) for i, part in enumerate(parts)]
                yield from _ways(inner, front)
        front = (*front, layer)


def place_in(found: Mapping[str, Way], layer: int | str, argument: str = "layer") -> str:
    """The name of the layer at a place: a number, from the end if it is negative, or a name such as "3.body.0".

    Raises TypeError for anything else, ValueError for a place where no layer is, naming the argument.
    """
    if isinstance(layer, bool) or not isinstance(layer, (str, Integral)):
        raise TypeError(f"{argument}: expected a place such as 1 or '3.body.0', got {layer!r}")
    count = sum("." not in name for name in found)
    name = layer if isinstance(layer, str) else str(int(layer) + count * (layer < 0))
    if name not in found:
        inner = [place for place in found if "." in place][:8]
        more = f", or of a layer in them such as {', '.join(map(repr, inner))}" if inner else ""
        raise ValueError(f"{argument}: expected a place from 0 to {count - 1}{more}, got {layer!r}")
    return name
