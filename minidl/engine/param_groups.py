"""Parameter groups: what a step leaves alone, and the factors of the learning rate and the weight decay of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minidl.engine.layer_paths import layer_paths
from minidl.layers.base import Layer
from minidl.layers.container import Container
from minidl.utils.factors import Factors, by_name, scaled
from minidl.utils.hints import class_hint
from minidl.utils.validation import check_non_negative

Select = str | type[Layer] | Callable[[str, Layer, str], bool]


@dataclass(frozen=True)
class ParamGroup:
    """How steps treat a layer.

    frozen: they leave it alone, and its kernels compute as in inference. lr_scale, decay_scale: factors of the learning
    rate and of the weight decay; by the name of each parameter, if they differ. skipped_steps: the number of optimizer
    steps that were made while it was frozen, which the formulas do not count for it. inference: the network computes as
    in inference, with a backward for the gradients there.
    """

    frozen: bool = False
    lr_scale: Factors = 1.0
    decay_scale: Factors = 1.0
    skipped_steps: int = 0
    inference: bool = False


def settings_of(layers: Sequence[Layer]) -> list[tuple[bool, Factors, Factors]]:
    """Returns `trainable`, `lr_mult`, `decay_mult` of all layers and of those in them: what their groups depend on."""
    found = []
    for layer in layers:
        found.append((layer.trainable, layer.lr_mult, layer.decay_mult))
        if isinstance(layer, Container):
            found += settings_of([child for _, child in layer.named_children()])
    return found


def overrides_settings(layer: Layer) -> bool:
    """Whether the layer's class has settings of its own, such as `lr_mult`, which may change without being set."""
    settings = ("trainable", "lr_mult", "decay_mult")
    return any(getattr(type(layer), name) is not getattr(Layer, name) for name in settings)


def differs_in_training(layer: Layer) -> bool:
    """Whether the kernels of a layer compute something else in training than in inference."""
    return any(op.draws or op.couples_examples for op in layer.ops)


def param_groups(layers: Sequence[Layer], outer: ParamGroup | None = None) -> dict[int, ParamGroup]:
    """Returns the groups of all layers and of those in them, by id: a container's factors hold for its layers.

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
        lr_scale = scaled(outer.lr_scale, layer.lr_mult, layer.params)
        decay_scale = scaled(outer.decay_scale, layer.decay_mult, layer.params)
        groups[id(layer)] = group = replace(outer, frozen=frozen, lr_scale=lr_scale, decay_scale=decay_scale)
        if isinstance(layer, Container):
            for branch in layer.named_branches().values():
                groups.update(param_groups(branch, group))
    return groups


def set_param_group(layers: Sequence[Layer], select: Select, lr_mult: float | None, decay_mult: float | None) -> None:
    """Sets factors of some parameters of built layers; see BaseModel.set_param_group."""
    given = {"lr_mult": lr_mult, "decay_mult": decay_mult}
    factors = {name: check_non_negative(name, one, "float32") for name, one in given.items() if one is not None}
    if not factors:
        raise ValueError("lr_mult, decay_mult: expected a number for at least one of them, got None for both")
    leaves = [(path, layer) for path, (*_, layer) in layer_paths(layers).items() if not isinstance(layer, Container)]
    chosen = [(layer, [name for name in layer.params if _chooses(select, path, layer, name)]) for path, layer in leaves]
    if not any(names for _, names in chosen):
        known = sorted({name for layer, _ in chosen for name in layer.params})
        expected = f"expected the name of a parameter ({', '.join(known)}), or what chooses at least one parameter"
        raise ValueError(f"select: {expected}, got {select!r}")
    for layer, names in chosen:
        for setting, factor in factors.items() if names else ():
            kept = by_name(getattr(layer, setting), layer.params)
            setattr(layer, setting, factor if len(names) == len(kept) else kept | dict.fromkeys(names, factor))


def _chooses(select: Any, path: str, layer: Layer, name: str) -> bool:
    """Whether `select` chooses the parameter `name` of a layer; raises TypeError for a `select` that cannot choose."""
    if isinstance(select, str):
        return select in (name, f"{path}.{name}")
    if isinstance(select, type) and issubclass(select, Layer):
        return isinstance(layer, select)
    if isinstance(select, type) or not callable(select):
        expected = "expected the name of a parameter, a class of layers, or a function of path, layer and name"
        raise TypeError(f"select: {expected}, got {select!r}{class_hint(select)}")
    return bool(select(path, layer, name))
