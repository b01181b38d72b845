"""The list of a model's layers: checked, named, built, copied, and converted to JSON and back."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl import initializers
from minidl import layers as ours
from minidl.engine.state import by_layer
from minidl.layers import fake_quantize as of_quantization
from minidl.layers.base import Layer
from minidl.layers.container import as_layer, depth, title
from minidl.saving.object_codec import ObjectCodec, decode, made_with
from minidl.utils.arrays import Array
from minidl.utils.errors import kind_of
from minidl.utils.validation import Shape

INITIALIZERS = (
    *(initializers.damped_he_uniform, initializers.he_uniform, initializers.he_normal),
    *(initializers.glorot_uniform, initializers.glorot_normal, initializers.lecun_normal),
    *(initializers.orthogonal, initializers.small_uniform, initializers.zeros, initializers.ones),
    *(initializers.unit_forget_bias, initializers.Dirac, initializers.Whitening),
)
OUR_LAYERS = {name: getattr(module, name) for module in (ours, of_quantization) for name in module.__all__}
OUR_LAYERS |= {init.__name__: init for init in INITIALIZERS}
MAX_NESTING = 16  # levels of layers in layers: what a file can hold
MAX_PIXELS = 2**26  # a table of each takes 0.1 to 0.7 us and up to 32 bytes: a file must not take minutes to load


def layer_name(i: int, layer: Layer) -> str:
    """Returns the name of a layer in errors."""
    return f"layer {i}, {type(layer).__name__}"


def named_layers(layers: Sequence[Layer]) -> list[tuple[Layer, str]]:
    """Returns the layers, each with its name in errors."""
    return [(layer, layer_name(i, layer)) for i, layer in enumerate(layers)]


def check_layers(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Returns the layers of a new model; raises TypeError or ValueError for other objects."""
    if isinstance(layers, Layer) or not isinstance(layers, Iterable):
        raise TypeError(f"layers: expected a list of them, Sequential([...]), got {layers!r}")
    layers, seen = tuple(as_layer(part, "layers", i) for i, part in enumerate(layers)), set()
    if not layers:
        raise ValueError("layers: expected at least one, got none")
    for i, layer in enumerate(layers):
        if (deep := depth(layer)) > MAX_NESTING:
            raise ValueError(f"{layer_name(i, layer)}: expected layers nested at most {MAX_NESTING} deep, got {deep}")
        if layer.ends_model and i < len(layers) - 1:
            raise ValueError(f"{layer_name(i, layer)}: expected it as the last layer of a model, got one after it")
        for part in layer.leaves() or [layer]:
            if id(part) in seen:
                raise ValueError(f"{layer_name(i, part)}: appears twice; each place needs a layer of its own")
            seen.add(id(part))
    return layers


def layer_at(layers: Sequence[Layer], place: Any) -> Layer:
    """Returns the layer at an index; raises TypeError or IndexError as lists do, with the valid indices."""
    expected = f"model[{place!r}]: expected an index from -{len(layers)} to {len(layers) - 1}"
    if not hasattr(place, "__index__"):
        raise TypeError(f"{expected}, a slice, or names of Outputs, got {place!r}")
    if not -len(layers) <= place < len(layers):
        raise IndexError(f"{expected}, got {place!r}")
    return layers[place]


def of_outputs(layers: Sequence[Layer], names: str | list[str]) -> tuple[Layer, ...]:
    """Returns the layers of a model of one output, by its name, or of several; raises ValueError for other names."""
    *body, last = layers
    if not isinstance(last, ours.Outputs):
        raise ValueError(f"model[{names!r}]: expected a model that ends with Outputs, got {type(last).__name__}")
    kept = last.keep([names] if isinstance(names, str) else names)
    if isinstance(names, list):
        return (*body, kept)
    if not body and not kept.branches[names]:
        raise ValueError(f"model[{names!r}]: expected an output with layers before it, got the input itself")
    return (*body, *kept.branches[names])


def last_leaf(layers: Sequence[Layer]) -> Layer:
    """Returns the layer that computes the outputs: the last one, in a Block its last one; for branches, their join."""
    last = layers[-1]
    while isinstance(last, ours.Block):
        last = last.layers[-1]
    return last


def check_unbuilt(layers: Sequence[Layer]) -> None:
    """Raises ValueError for a layer that another model has built."""
    for i, layer in enumerate(layers):
        if layer.built:
            hint = "make a new layer, or nest a slice, model[:-1]"
            raise ValueError(f"{layer_name(i, layer)}: belongs to another model; {hint}")


def dtype_of(name: str, dtype: Any) -> str:
    """Returns a dtype that a model can have; raises ValueError for any other."""
    if not isinstance(dtype, (str, np.dtype)) or dtype not in ("float32", "float64"):
        raise ValueError(f"{name}: expected 'float32' or 'float64', got {dtype!r}")
    return str(dtype)


def check_dtype(attributes: Mapping[str, Any]) -> None:
    """Raises ValueError for another dtype than that of a built network."""
    network, dtype = attributes.get("network"), attributes["dtype"]
    if network is not None and network.dtype != dtype:
        raise ValueError(f"dtype: expected {network.dtype!r}, of the built model, got {dtype!r}; make another model")


def build(layers: Sequence[Layer], shape: Shape, dtype: str, seed: int, state: dict[str, Array] | None) -> None:
    """Builds each layer for the output shape of the one before, with new values or with those of `state`.

    It empties `state`: an array that nothing else refers to is released when its layer has copied it.
    """
    given = [None] * len(layers) if state is None else by_layer(state, len(layers))
    pixels = 0
    for i, layer in enumerate(layers):
        try:
            pixels += sum(shape[1:])
            if pixels > MAX_PIXELS:
                most = f"at most {MAX_PIXELS} rows and columns in all layers together"
                raise ValueError(f"expected {most}, got {pixels}")
            shape = layer.setup(shape, dtype, seed, str(i), given[i])
        except (TypeError, ValueError) as error:
            failed = f", input {shape}" if state is None else ""
            raise kind_of(error)(f"{layer_name(i, layer)}{failed}: {error}") from error


def unbuild(layers: Sequence[Layer]) -> None:
    """Undoes `build`."""
    for layer in layers:
        layer.unbuild()


def check_slice(layers: Sequence[Layer], place: Any) -> None:
    """Raises ValueError unless each layer's output shape is the input shape of the next."""
    for front, back in itertools.pairwise(layers):
        if front.out_shape != back.in_shape:
            raise ValueError(
                f"model[{place.start}:{place.stop}:{place.step}]: {title(back)} takes {back.in_shape}, "
                f"{title(front)} before it gives {front.out_shape}"
            )


# ---- copies, and files


def copy_layers(
    layers: Sequence[Layer], *others: Any, shared: Sequence[Any] = (), instead: Mapping[int, Any] | None = None
) -> tuple[Any, ...]:
    """Copies layers, parameters included, and objects that may refer to them; ops, which have no state, are shared.

    The copies share no memory with the model: pass them to FlatParameters(layers, dtype) before use. shared: what is
    not copied either. instead: replacements, keyed by the id of the object to replace.
    """
    leaves = [leaf for layer in layers for leaf in layer.leaves()]
    known = {id(one): one for one in (*(op for leaf in leaves for op in (leaf.op, *leaf.ops)), *shared)}
    return copy.deepcopy((list(layers), *others), known | dict(instead or {}))


@dataclass(frozen=True)
class LayerSpec:
    """How to make a layer like another: class, arguments and settings. Layers among the arguments are LayerSpecs."""

    cls: type[Layer]
    arguments: dict[str, Any]
    settings: dict[str, Any]


def to_spec(value: Any) -> Any:
    """Copies layers, or an argument of one, with a LayerSpec in place of every layer."""
    if isinstance(value, Layer):  # whose settings are also those of the layers in it
        return LayerSpec(type(value), to_spec(value.config()), value.settings)
    return _copied(value, to_spec)


def from_spec(value: Any) -> Any:
    """Copies what `to_spec` returned, with a new layer, of no model, in place of every LayerSpec."""
    if isinstance(value, LayerSpec):
        return made_with(value.cls, from_spec(value.arguments), value.settings)
    return _copied(value, from_spec)


def _copied(value: Any, copied: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(part) for part in value)
    return copy.deepcopy(value)


def get_config(layers: Sequence[Layer], custom_objects: dict[str, Any] | None = None) -> list[Any]:
    """Returns the layers as JSON; `custom_objects` takes the user's classes and functions in it, by name.

    Raises TypeError naming layer and argument for what cannot be written.
    """
    codec = ObjectCodec(OUR_LAYERS, custom_objects)
    return [codec.encode(layer, layer_name(i, layer)) for i, layer in enumerate(layers)]


def check_config(config: Any) -> None:
    """Raises ValueError unless it has the keys that `Sequential.get_config` returns."""
    needed, others = {"layers", "input_shape", "seed", "dtype"}, {"lr_mult", "max_pixels"}
    if not isinstance(config, Mapping) or set(config) - others != needed:
        got = sorted(map(str, config)) if isinstance(config, Mapping) else type(config).__name__
        raise ValueError(f"config: expected what get_config returns, got {got}")


def from_config(config: Any, custom_objects: Mapping[str, Any]) -> list[Layer]:
    """Returns new layers like those of a config; raises TypeError or ValueError as object_codec.decode."""
    if not isinstance(config, list):
        raise TypeError(f"layers: expected a list, got {type(config).__name__}")
    layers: list[Layer] = decode(config, OUR_LAYERS, custom_objects)
    return layers
