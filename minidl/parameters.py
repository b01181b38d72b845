"""The one flat buffer in which all parameters of a model live, and the one of their gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minidl.layer import Array, Layer, Param

ALIGN = 16  # each layer's parameters begin on a multiple of so many numbers: a cache line of floats


class Parameters:
    """Moves the parameters of built layers into one flat buffer `values`; `offsets` says where each layer's begin.

    The gradients' buffer is made when somebody first asks for it: a model that only predicts has none.
    """

    def __init__(self, layers: Sequence[Layer], dtype: str) -> None:
        self.dtype = dtype
        self.offsets: list[int] = []
        places: list[tuple[Param, int]] = []
        size = 0
        for layer in layers:
            size = -(-size // ALIGN) * ALIGN
            self.offsets.append(size)
            for param in layer.params.values():
                places.append((param, size))
                size += param.value.size
        self.values: Array = np.zeros(size, dtype)
        self._grads: Array | None = None
        for param, start in places:
            self._move(param, start)

    @property
    def grads(self) -> Array:
        """The flat gradients, in the order of `values`."""
        if self._grads is None:
            self._grads = np.zeros(self.values.size, self.dtype)
        return self._grads

    def _move(self, param: Param, start: int) -> None:
        shape, size = param.value.shape, param.value.size
        transposed = not param.value.flags.c_contiguous

        def view(flat: Array) -> Array:
            part = flat[start : start + size]
            return part.reshape(shape[::-1]).T if transposed else part.reshape(shape)

        param.move(view(self.values), lambda: view(self.grads))
