"""ManualPass: the tape of a forward that was called by hand, for the backward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine.network import Network
from minidl.utils.arrays import Array, as_array, as_dtype


class ManualPass:
    """The last training forward of a network, until its backward or the next forward."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._tape: list[Any] | None = None
        self._forwards = 0  # what random numbers of layers depend on

    def forward(self, x: Array, seed: int, changes: int) -> Array:
        """Returns the outputs for x (n, ...) as in training; raises ValueError for a batch too small for a layer.

        changes: the number of changes of the weights so far.
        """
        self.network.refresh()
        self.network.check_batch(len(x))
        tape, self._tape = self._tape, None  # removed first: an interrupt must not leave it with two owners
        if tape is not None:
            self.network.release(tape)
        y, self._tape = self.network.forward(x, seed=seed, step=self._forwards)
        self._shape, self._trained, self._changes = y.shape, self.network.trained, changes
        self._forwards += 1
        return y

    def backward(self, dy: ArrayLike | Mapping[str, ArrayLike], changes: int) -> Array:
        """Returns dx; raises as Sequential.backward."""
        tape, array = self._checked("backward", dy, "dy", changes)
        dx = self.network.backward(tape, array, want_dx=True)
        assert dx is not None
        return dx

    def last_backward(self, dscores: ArrayLike | Mapping[str, ArrayLike], changes: int) -> None:
        """Writes the gradients of the parameters for a step, which uses up the forward; raises as `backward`.

        Also raises RuntimeError if other layers are trained than in the forward, FloatingPointError for dscores that
        are not finite.
        """
        tape, array = self._checked("backward_step", dscores, "dscores", changes)
        if self._trained is not self.network.trained:
            expected = "expected the trainable, lr_mult and decay_mult of all layers as in the forward"
            raise RuntimeError(f"backward_step: {expected}; call forward(X, training=True) again")
        if not len(array):
            raise ValueError("dscores: expected gradients of at least one example, got none")
        if not np.isfinite(array).all():
            raise FloatingPointError("dscores: expected finite gradients, got NaN or infinity; the weights stay")
        self._tape = None
        self.network.backward(tape, array, want_dx=False)
        self.network.release(tape)

    def _checked(
        self, what: str, dy: ArrayLike | Mapping[str, ArrayLike], name: str, changes: int
    ) -> tuple[list[Any], Array]:
        """Returns the tape of the forward, and the gradient of its outputs as an array."""
        if self._tape is None:
            raise RuntimeError(f"{what}: expected a forward(X, training=True) before it")
        if changes != self._changes:
            expected = "expected the weights of the forward, but a step, load_state_dict or soft_update changed them"
            raise RuntimeError(f"{what}: {expected}; call forward(X, training=True) again")
        outputs, dtype = self.network.outputs, self.network.dtype
        array = as_array(dy, name) if outputs is None else outputs.join(dy, self._shape[0], dtype, name)
        if array.shape != self._shape:
            raise ValueError(f"{name}: expected shape {self._shape}, got {array.shape}")
        return self._tape, as_dtype(array, dtype, name)
