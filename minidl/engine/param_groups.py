"""How steps treat each layer: which ones are frozen, and at what rate the others learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minidl.layers.base import Layer
from minidl.layers.container import Container


@dataclass(frozen=True)
class Training:
    """How steps treat a layer: whether they leave it alone, and what multiplies the learning rate.

    late: the optimizer's steps that went by while it was frozen, which the formulas do not count for it.
    """

    frozen: bool = False
    rate: float = 1.0
    late: int = 0


def trainings(layers: Sequence[Layer], outer: Training | None = None) -> dict[int, Training]:
    """The Training of all layers and of those in them, by id: a container's settings hold for all that is in it."""
    outer = outer or Training()
    found = {}
    for layer in layers:
        found[id(layer)] = here = Training(outer.frozen or not layer.trainable, outer.rate * layer.lr_mult)
        if isinstance(layer, Container):
            for way in layer.ways().values():
                found.update(trainings(way, here))
    return found
