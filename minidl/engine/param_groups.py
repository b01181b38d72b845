"""Parameter groups: what a step leaves alone, and the factors of the learning rate and the weight decay of the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from minidl.engine.layer_paths import layer_paths
from minidl.layers.base import Layer, factors_of
from minidl.layers.container import Container
from minidl.utils.factors import Factors, by_name, scaled
from minidl.utils.validation import check_non_negative
from minidl_c.optimizers.update import ParamRanges

Select = str | type[Layer] | tuple[type[Layer], ...] | Callable[[str, Layer, str], bool]


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


class Ranges(ParamRanges):
    """The ranges of the flat parameters that steps change; `unscaled`: the same ones with factors of 1."""

    def __init__(self, ranges: Sequence[tuple[int, int, float, float, int]]) -> None:
        self.unscaled = ParamRanges([(start, end, 1, 1, skipped) for start, end, _, _, skipped in ranges])


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
        lr_scale = scaled(outer.lr_scale, factors_of(layer, "lr_mult"), layer.params)
        decay_scale = scaled(outer.decay_scale, factors_of(layer, "decay_mult"), layer.params)
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
    chooses = _choice(select)
    leaves = [(path, layer) for path, (*_, layer) in layer_paths(layers).items() if not isinstance(layer, Container)]
    found = [(path, layer, [name for name in layer.params if chooses(path, layer, name)]) for path, layer in leaves]
    chosen = [one for one in found if one[2]]
    if not chosen:
        raise ValueError(f"select: expected {_choices(select, leaves)}, got {select!r:.100}")
    for path, layer, _ in chosen:
        for setting in factors:
            declared = inspect.getattr_static(type(layer), setting)
            if not isinstance(declared, property) or declared.fset is None:
                expected = f"expected layers whose {setting} can be set"
                raise ValueError(f"select: {expected}, got layer {path}, {type(layer).__name__}: its class sets it")
    for _, layer, names in chosen:
        for setting, factor in factors.items():
            kept = by_name(getattr(layer, setting), layer.params)
            setattr(layer, setting, factor if len(names) == len(kept) else kept | dict.fromkeys(names, factor))


def _choice(select: Any) -> Callable[[str, Layer, str], bool]:
    """Returns the function of path, layer and name that `select` stands for; raises TypeError if it cannot choose."""
    if isinstance(select, str):
        return lambda path, layer, name: select in (name, f"{path}.{name}")
    classes = select if isinstance(select, tuple) and select else (select,)
    if all(isinstance(one, type) and issubclass(one, Layer) for one in classes):
        for one in classes:
            if issubclass(one, Container):
                expected = "expected classes of layers with parameters of their own"
                raise TypeError(f"select: {expected}, got {one.__name__}: set lr_mult and decay_mult of such layers")
        return lambda path, layer, name: isinstance(layer, classes)
    expected = "select: expected the name of a parameter, a class of layers, or a tuple of them, or a function"
    if isinstance(select, type) or not callable(select):
        raise TypeError(f"{expected} of path, layer and name, got {select!r:.100}")
    with suppress(ValueError):  # some callables in C have no signature
        try:
            inspect.signature(select).bind("0", None, "bias")
        except TypeError as error:
            raise TypeError(f"{expected} of path, layer and name, got {select!r:.100}: {error}") from None

    def chooses(path: str, layer: Layer, name: str) -> bool:
        answer = select(path, layer, name)
        try:
            return bool(answer)
        except (TypeError, ValueError):
            raise TypeError(f"select: expected True or False for {path}.{name}, got {answer!r:.100}") from None

    return chooses


def _choices(select: Any, leaves: Sequence[tuple[str, Layer]]) -> str:
    """Returns what a `select` that chooses nothing may be."""
    own = [layer for _, layer in leaves if layer.params]
    if not own:
        return "a model with parameters"
    if isinstance(select, (type, tuple)):
        return f"classes of layers with parameters ({', '.join(sorted({type(layer).__name__ for layer in own}))})"
    if not isinstance(select, str):
        return "a function that is true for at least one parameter"
    names = sorted({name for layer in own for name in layer.params})
    if "." in select:
        names = [f"{path}.{name}" for path, layer in leaves for name in layer.params]
    return f"the name of a parameter ({', '.join(names)})"
