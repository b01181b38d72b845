"""Paths of layers in a model, such as "3.body.0"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral

from minidl.layers.base import Layer
from minidl.layers.container import Container, child_path

LayerPath = tuple[Layer, ...]  # the layers from the input to one, which is the last


def layer_paths(layers: Iterable[Layer]) -> dict[str, LayerPath]:
    """Returns the path of each layer by its name, such as "3.body.0", with which the names of its parameters begin."""
    return dict(_paths([(str(i), layer) for i, layer in enumerate(layers)], ()))


def _paths(layers: Iterable[tuple[str, Layer]], front: LayerPath) -> Iterator[tuple[str, LayerPath]]:
    for name, layer in layers:
        yield name, (*front, layer)
        if isinstance(layer, Container):
            for branch, parts in layer.named_branches().items():
                inner = [(f"{name}.{child_path(branch, i)}", part) for i, part in enumerate(parts)]
                yield from _paths(inner, front)
        front = (*front, layer)


def resolve_path(found: Mapping[str, LayerPath], layer: int | str, argument: str = "layer") -> str:
    """Returns the name of a layer, given by its index (from the end if it is negative) or by a name like "3.body.0".

    Raises TypeError for anything else, ValueError if there is no such layer, naming the argument.
    """
    if isinstance(layer, bool) or not isinstance(layer, (str, Integral)):
        raise TypeError(f"{argument}: expected an index or a path such as 1 or '3.body.0', got {layer!r}")
    count = sum("." not in name for name in found)
    name = layer if isinstance(layer, str) else str(int(layer) + count * (layer < 0))
    if name not in found:
        inner = [place for place in found if "." in place][:8]
        more = f", or the path of an inner layer such as {', '.join(map(repr, inner))}" if inner else ""
        raise ValueError(f"{argument}: expected an index from {-count} to {count - 1}{more}, got {layer!r}")
    return name
