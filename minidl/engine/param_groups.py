"""Parameter groups: which layers a step leaves alone, and the factor of the learning rate of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minidl.layers.base import Layer
from minidl.layers.container import Container


@dataclass(frozen=True)
class ParamGroup:
    """How steps treat a layer.

    frozen: they leave it alone. lr_scale: factor of the learning rate. skipped_steps: the number of optimizer steps
    that were made while it was frozen, which the formulas do not count for it.
    """

    frozen: bool = False
    lr_scale: float = 1.0
    skipped_steps: int = 0


def settings_of(layers: Sequence[Layer]) -> list[tuple[bool, float]]:
    """Returns `trainable` and `lr_mult` of all layers and of those in them: what their groups depend on."""
    found = []
    for layer in layers:
        found.append((layer.trainable, layer.lr_mult))
        if isinstance(layer, Container):
            found += settings_of([child for _, child in layer.named_children()])
    return found


def overrides_settings(layer: Layer) -> bool:
    """Whether the layer's class has its own `trainable` or `lr_mult`, which may change without being set."""
    cls = type(layer)
    return cls.trainable is not Layer.trainable or cls.lr_mult is not Layer.lr_mult


def param_groups(layers: Sequence[Layer], outer: ParamGroup | None = None) -> dict[int, ParamGroup]:
    """Returns the groups of all layers and of those in them, by id: a container's `lr_mult` holds for its layers."""
    outer = outer or ParamGroup()
    groups = {}
    for layer in layers:
        own = type(layer).trainable is not Container.trainable  # which only sums up those of its layers
        frozen = outer.frozen or (own and not layer.trainable)
        groups[id(layer)] = group = ParamGroup(frozen, outer.lr_scale * layer.lr_mult)
        if isinstance(layer, Container):
            for branch in layer.named_branches().values():
                groups.update(param_groups(branch, group))
    return groups
