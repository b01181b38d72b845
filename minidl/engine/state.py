"""The state of a model: its parameters and buffers by name, with PyTorch's names and layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.layers.base import Layer
from minidl.layers.param import Shared
from minidl.utils.arrays import Array, as_array, as_dtype


def tensors(layers: Sequence[Layer]) -> dict[str, Array]:
    """Returns the arrays themselves: "0.weight" is the weight of layer 0, "1.running_mean" a buffer of layer 1."""
    found = {}
    for i, layer in enumerate(layers):
        found.update({f"{i}.{name}": param.value for name, param in layer.params.items()})
        found.update({f"{i}.{name}": buffer for name, buffer in layer.buffers.items()})
    return found


def shared(layers: Sequence[Layer]) -> dict[str, Any]:
    """Returns what a model with copies of these layers needs, by name, to have the same parameters and buffers."""
    found: dict[str, Any] = {}
    for i, layer in enumerate(layers):
        found |= {f"{i}.{name}": Shared(param) for name, param in layer.params.items()}
        found |= {f"{i}.{name}": Shared(buffer) for name, buffer in layer.buffers.items()}
    return found


def copies(layers: Sequence[Layer]) -> dict[str, Array]:
    """Returns copies of the arrays, in row-major order."""
    return {name: np.array(array, order="C") for name, array in tensors(layers).items()}


def load(layers: Sequence[Layer], state: Mapping[str, ArrayLike]) -> None:
    """Copies `state` into parameters and buffers; raises as `Sequential.load_state_dict`."""
    check_mapping(state)
    homes = tensors(layers)
    if set(state) != set(homes):
        missing, unknown = sorted(set(homes) - set(state)), sorted(set(state) - set(homes))
        raise ValueError(f"state: expected the names of model.state_dict(); missing {missing}, unknown {unknown}")
    found = {name: _converted(name, value, homes[name]) for name, value in state.items()}
    locked = [name for name, home in homes.items() if not home.flags.writeable]
    if locked:
        raise ValueError(f"state: expected parameters that can be written, {', '.join(locked)} are read-only")
    for name, array in found.items():
        homes[name][...] = array


def check_mapping(state: Any) -> None:
    """Raises TypeError for a state that is not a mapping from names to arrays."""
    if not isinstance(state, Mapping):
        raise TypeError(f"state: expected arrays by name, as from state_dict(), got {type(state).__name__}")


def _converted(name: str, value: ArrayLike, home: Array) -> Array:
    """Returns a value in the dtype of `home`."""
    array = as_array(value, f"state[{name!r}]")
    if array.shape != home.shape:
        raise ValueError(f"state[{name!r}]: expected shape {home.shape}, got {array.shape}")
    return as_dtype(array, str(home.dtype), f"state[{name!r}]")


def by_layer(state: dict[str, Array], count: int) -> list[dict[str, Array]]:
    """Returns the state of each of `count` layers, by the layer's own names, and empties `state`.

    Raises ValueError for other names.
    """
    parts: dict[str, dict[str, Array]] = {str(i): {} for i in range(count)}
    for name in list(state):
        place, dot, inner = name.partition(".")
        if not dot or place not in parts:
            raise ValueError(f"tensor {name!r}: expected a name such as '0.weight', of one of {count} layers")
        parts[place][inner] = state.pop(name)
    return list(parts.values())


def check_dtype(state: Mapping[str, Array], dtype: str) -> None:
    """Raises ValueError, naming the tensor, for one of another dtype."""
    for name, array in state.items():
        if array.dtype != dtype:
            raise ValueError(f"tensor {name!r}: expected {dtype}, got {array.dtype}")
