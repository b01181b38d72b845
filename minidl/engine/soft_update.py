"""Soft updates: the weights and buffers of a model move towards those of another model of the same layers."""

from __future__ import annotations

import itertools

from minidl.engine.network import Network
from minidl.utils.arrays import Array
from minidl_c.optimizers.average import average


def check_same_layers(network: Network, other: Network) -> None:
    """Raises ValueError, naming the first difference, unless leaves have equal classes and tensors in both networks."""
    if network.kinds == other.kinds:
        for ours, theirs in zip(network.state_names, other.state_names, strict=True):
            if ours != theirs:
                raise ValueError(f"other: expected the tensors of this model, {ours!r}, got {theirs!r} in its place")
        return
    for i, j in itertools.zip_longest(range(len(network.kinds)), range(len(other.kinds))):
        if i is None or j is None or network.kinds[i] != other.kinds[j]:
            expected, got = _words(network, i), _words(other, j)
            raise ValueError(f"other: expected the layers of this model, {expected}, got {got}")


def soft_update(network: Network, other: Network, tau: float) -> None:
    """Moves parameters and buffers by tau towards those of a network of the same layers; a tau of 1 copies them."""
    pairs = [
        (buffer, theirs.buffers[name])
        for leaf, theirs in zip(network.leaves, other.leaves, strict=True)
        if leaf.op is None  # those of kernels are among the values
        for name, buffer in leaf.buffers.items()
    ]
    average(network.parameters.values, other.parameters.values, tau)
    for buffer, target in pairs:
        _move(buffer, target, tau)


def _move(buffer: Array, target: Array, tau: float) -> None:
    """Moves a buffer of a layer in NumPy; integers have no mean: they are copied."""
    if buffer.dtype.kind == "f" and tau != 1:
        buffer += buffer.dtype.type(tau) * (target - buffer)
    elif tau:
        buffer[...] = target


def _words(network: Network, i: int | None) -> str:
    """Describes a leaf: "layer 0, Dense (weight float32 (4, 3))"."""
    if i is None:
        return "no further layer"
    tensors = ", ".join(f"{name} {dtype} {shape}" for name, shape, dtype, _ in network.kinds[i][1])
    return f"{network.named[i][1]} ({tensors})" if tensors else network.named[i][1]
