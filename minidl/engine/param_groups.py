"""How steps treat each layer: which ones are frozen, and at what rate the others learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minidl.layers.base import Layer
from minidl.layers.container import Container


@dataclass(frozen=True)
class ParamGroup:
    """How steps treat a layer: whether they leave it alone, and what multiplies the learning rate.

    late: the optimizer's steps that went by while it was frozen, which the formulas do not count for it.
    """

    frozen: bool = False
    lr_scale: float = 1.0
    skipped_steps: int = 0


def param_groups(layers: Sequence[Layer], outer: ParamGroup | None = None) -> dict[int, ParamGroup]:
    """The Training of all layers and of those in them, by id: a container's settings hold for all that is in it."""
    outer = outer or ParamGroup()
    found = {}
    for layer in layers:
        found[id(layer)] = here = ParamGroup(outer.frozen or not layer.trainable, outer.lr_scale * layer.lr_mult)
        if isinstance(layer, Container):
            for way in layer.named_branches().values():
                found.update(param_groups(way, here))
    return found
