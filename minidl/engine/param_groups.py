"""Parameter groups: which layers a step leaves alone, and the factor of the learning rate of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minidl.layers.base import Layer
from minidl.layers.container import Container


@dataclass(frozen=True)
class ParamGroup:
    """How steps treat a layer.

    frozen: they leave it alone, and its kernels compute as in inference. lr_scale: factor of the learning rate.
    skipped_steps: the number of optimizer steps that were made while it was frozen, which the formulas do not count for
    it. inference: the network computes as in inference, with a backward for the gradients there.
    """

    frozen: bool = False
    lr_scale: float = 1.0
    skipped_steps: int = 0
    inference: bool = False


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


def differs_in_training(layer: Layer) -> bool:
    """Whether the kernels of a layer compute something else in training than in inference."""
    return any(op.draws or op.couples_examples for op in layer.ops)


def param_groups(layers: Sequence[Layer], outer: ParamGroup | None = None) -> dict[int, ParamGroup]:
    """Returns the groups of all layers and of those in them, by id: a container's `lr_mult` holds for its layers.

    A layer without parameters and buffers, such as Dropout, has nothing to freeze. For inference, layers whose kernels
    draw random numbers or couple examples are frozen as well.
    """
    outer = outer or ParamGroup()
    groups = {}
    for layer in layers:
        own = type(layer).trainable is not Container.trainable  # which only sums up those of its layers
        frozen = outer.frozen or (own and not layer.trainable)
        if not isinstance(layer, Container):
            has_state = bool(layer.params or layer.buffers)
            frozen = (frozen and has_state) or (outer.inference and differs_in_training(layer))
        groups[id(layer)] = group = replace(outer, frozen=frozen, lr_scale=outer.lr_scale * layer.lr_mult)
        if isinstance(layer, Container):
            for branch in layer.named_branches().values():
                groups.update(param_groups(branch, group))
    return groups
