"""Residual: a block whose layers are added to its input."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.layers.container import Branch, Container, as_branch
from minidl.utils.constructors import readonly_argument


class Residual(Container):
    """Residual block: y = body(x) + shortcut(x). Without a shortcut, x itself is added, and body must keep its shape.

    layers: the layers of the body, in order.
    shortcut: a layer, or a list of layers, such as a Conv2D of kernel 1 where the body changes the shape; None: x.

    Parameters: those of the layers, named "body.0.weight", "shortcut.0.weight".
    Raises TypeError unless all are layers, ValueError in build if the shapes of body and shortcut differ.

    He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition" (2015).
    """

    def __init__(self, *layers: Layer, shortcut: Layer | list[Layer] | tuple[Layer, ...] | None = None) -> None:
        self._layers = as_branch("layers", layers)
        self._shortcut = None if shortcut is None else as_branch("shortcut", shortcut)

    layers, shortcut = readonly_argument("layers"), readonly_argument("shortcut")

    def named_branches(self) -> dict[str, Branch]:
        return {"body": self.layers, "shortcut": self.shortcut or ()}
