"""ManualPass: the tape of a forward that was called by hand, for the backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from minidl.engine.network import Network
from minidl.utils.arrays import Array, as_array, as_dtype


class ManualPass:
    """The last training forward of a network, until its backward or the next forward."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._tape: list[Any] | None = None
        self._forwards = 0  # what random numbers of layers depend on

    def forward(self, x: Array, seed: int) -> Array:
        """Returns the outputs for x (n, ...) as in training; raises ValueError for a batch too small for a layer."""
        self.network.refresh()
        self.network.check_batch(len(x))
        tape, self._tape = self._tape, None  # removed first: an interrupt must not leave it with two owners
        if tape is not None:
            self.network.release(tape)
        y, self._tape = self.network.forward(x, seed=seed, step=self._forwards)
        self._shape, self._forwards = y.shape, self._forwards + 1
        return y

    def backward(self, dy: ArrayLike | Mapping[str, ArrayLike]) -> Array:
        """Returns dx; raises as Sequential.backward."""
        if self._tape is None:
            raise RuntimeError("backward: expected a forward(X, training=True) before it")
        outputs = self.network.outputs
        array = as_array(dy, "dy") if outputs is None else outputs.join(dy, self._shape[0], self.network.dtype, "dy")
        if array.shape != self._shape:
            raise ValueError(f"dy: expected shape {self._shape}, got {array.shape}")
        dx = self.network.backward(self._tape, as_dtype(array, self.network.dtype, "dy"), want_dx=True)
        assert dx is not None
        return dx
