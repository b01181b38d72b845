"""FlatParameters: one buffer for all parameters of a model and the buffers of its kernels, one for the gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np

from minidl.layers.base import Layer
from minidl.layers.param import Param
from minidl.utils.arrays import Array, memory_order, with_memory_order

ALIGN = 16  # elements: each layer's parameters begin on a multiple, a cache line of floats
CACHE_LINE = 64  # bytes


class FlatParameters:
    """Moves the parameters of built layers into one flat buffer `values`; `offsets` says where each layer's begin.

    The buffers of a layer with a kernel come after its parameters. The gradients are allocated at their first use: a
    model that only predicts has none.
    """

    def __init__(self, layers: Sequence[Layer], dtype: str) -> None:
        self.dtype = dtype
        self.offsets: dict[int, int] = {}  # by the id of a layer
        self.param_offsets: dict[int, int] = {}  # by the id of a parameter
        starts: list[tuple[Param, int]] = []
        buffers: list[tuple[Layer, str, int]] = []
        size = 0
        leaves = [leaf for layer in layers for leaf in layer.leaves()]
        for layer in leaves:
            size = -(-size // ALIGN) * ALIGN
            self.offsets[id(layer)] = size
            for param in layer.params.values():
                starts.append((param, size))
                self.param_offsets[id(param)] = size
                size += param.value.size
            for name, buffer in layer.buffers.items() if layer.op is not None else ():
                buffers.append((layer, name, size))
                size += buffer.size
        self.values = _aligned_zeros(size, dtype)
        self._made: dict[str, Array] = {}
        self._views = [_view(param.value, start) for param, start in starts]
        self._names = [f"{i}.{name}" for i, layer in enumerate(layers) for name in layer.params]
        for (param, _), view in zip(starts, self._views, strict=True):
            self._move(param, view)
        for layer, name, start in buffers:
            home = _view(layer.buffers[name], start)(self.values)
            home[...] = layer.buffers[name]
            layer.buffers[name] = home

    @property
    def grads(self) -> Array:
        """The flat gradients, laid out as `values`."""
        if not self._made:  # setdefault is atomic: threads that ask first at the same time get the same buffer
            self._made.setdefault("grads", _aligned_zeros(self.values.size, self.dtype))
        return self._made["grads"]

    def clear(self, layer: Layer) -> None:
        """Sets the gradients of a layer to zero, if they were allocated."""
        for param in layer.params.values() if self._made else ():
            param.grad[...] = 0

    def range_of(self, layer: Layer) -> tuple[int, int]:
        """Returns the range of a layer's parameters, without its buffers, in the flat buffers."""
        start = self.offsets[id(layer)]
        return start, start + sum(param.value.size for param in layer.params.values())

    def _move(self, param: Param, view: Callable[[Array], Array]) -> None:
        param.move(view(self.values), lambda: view(self.grads))

    def views(self, flat: Array) -> list[Array]:
        """Returns for each parameter, in order, a view of a flat array (such as a velocity) in its shape."""
        return [view(flat) for view in self._views]

    def named_views(self, flat: Array) -> dict[str, Array]:
        """Returns these views by the names in `model.params`."""
        return dict(zip(self._names, self.views(flat), strict=True))


class BorrowedParameters(FlatParameters):
    """The parameters of a model for another network of its layers, which shares their values and has no gradients."""

    def __init__(self, owner: FlatParameters, layers: Sequence[Layer]) -> None:
        self.dtype, self.values = owner.dtype, owner.values
        self.offsets = {id(leaf): owner.offsets.get(id(leaf), 0) for layer in layers for leaf in layer.leaves()}
        self._made = {}


class SharedParameters(FlatParameters):
    """The parameters of a model for another one with copies of its layers that have the same parameters and buffers.

    Further layers of the other one, which come after these, have none.
    """

    def __init__(self, owner: FlatParameters, owned: Sequence[Layer], layers: Sequence[Layer]) -> None:
        self.dtype, self.values, self._made, self._views = owner.dtype, owner.values, owner._made, owner._views
        self.param_offsets, self._names = owner.param_offsets, owner._names
        theirs, ours = ([leaf for layer in some for leaf in layer.leaves()] for some in (owned, layers))
        offsets = [owner.offsets[id(leaf)] for leaf in theirs]
        self.offsets = {id(leaf): offset for leaf, offset in zip_longest(ours, offsets, fillvalue=0)}


def _aligned_zeros(size: int, dtype: str) -> Array:
    """Returns zeros that begin at a cache line, so that each layer does: NumPy aligns to 16 bytes only."""
    spare = np.zeros(size + CACHE_LINE // np.dtype(dtype).itemsize, dtype)
    start = -spare.ctypes.data % CACHE_LINE // spare.itemsize
    return spare[start : start + size]


def _view(value: Array, start: int) -> Callable[[Array], Array]:
    """Returns a function that takes a parameter of this shape and layout out of a flat array, without a copy."""
    shape, size, order = value.shape, value.size, memory_order(value)
    return lambda flat: with_memory_order(flat[start : start + size], shape, order)
