"""A built model as stages: runs of layers with kernels become plans, layers in NumPy stand between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minidl.arrays import as_array
from minidl.container import CONCAT, Container, met
from minidl.data import Index
from minidl.layer import Array, Layer, Shape
from minidl.lowering import ops_of
from minidl.parameters import Parameters
from minidl_c.plan import Plan


class NativeStage:
    """Layers with kernels: one plan, run inside one parallel region."""

    def __init__(self, layers: Sequence[Layer], parameters: Parameters) -> None:
        self.in_shape, self.out_shape = layers[0].in_shape, layers[-1].out_shape
        self.has_params = any(layer.params for layer in layers)
        self.plan = Plan(*ops_of(layers, parameters.offsets))
        self.parameters = parameters

    def predict(self, x: Array, num_threads: int | None) -> Array:
        """The outputs for x; keeps nothing."""
        y = np.empty((len(x), *self.out_shape), self.plan.dtype)
        self.plan.predict(_rows(x), None, self.parameters.values, _rows(y), num_threads)
        return y

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, numbers: Index | None
    ) -> tuple[Array, Any]:
        """Returns y, and what backward needs. numbers: of the examples in the data, for random masks."""
        y = np.empty((len(x), *self.out_shape), self.plan.dtype)
        kept = self.plan.forward(_rows(x), self.parameters.values, _rows(y), num_threads, seed, step, numbers)
        return y, kept

    def backward(self, kept: Any, dy: Array, want_dx: bool) -> Array | None:
        """Returns dx if it is wanted; the parameters' gradients go to the flat buffer."""
        dx = np.empty((len(dy), *self.in_shape), self.plan.dtype) if want_dx else None
        self.plan.backward(
            kept,
            _rows(np.require(dy, requirements=["C_CONTIGUOUS", "ALIGNED"])),
            None if dx is None else _rows(dx),
            self.parameters.values,
            self.parameters.grads,
        )
        return dx


class NumpyStage:
    """One layer in NumPy. What it returns is checked, so that an error names the layer and not the next one."""

    def __init__(self, layer: Layer, name: str) -> None:
        self.layer, self.name = layer, name
        self.in_shape, self.out_shape = layer.in_shape, layer.out_shape
        self.has_params = bool(layer.params)

    def predict(self, x: Array, num_threads: int | None) -> Array:
        """As NativeStage.predict."""
        return self._checked("forward", self.layer.forward(self._real(x), False), x, self.out_shape)

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, numbers: Index | None
    ) -> tuple[Array, Any]:
        """As NativeStage.forward; the layer keeps what it needs itself, and draws its numbers batch by batch."""
        self.layer.begin_step(step, seed)
        y = self.layer.forward(self._real(x), True)
        return self._checked("forward", y, x, self.out_shape), None

    def backward(self, kept: Any, dy: Array, want_dx: bool) -> Array | None:
        """As NativeStage.backward."""
        self.layer.needs_dx = want_dx
        dx = self.layer.backward(_read_only(dy))
        return self._checked("backward", dx, dy, self.in_shape) if want_dx else None

    def _real(self, x: Array) -> Array:
        return _read_only(np.asarray(x, self.layer.dtype))

    def _checked(self, method: str, y: Any, x: Array, shape: Shape) -> Array:
        if not isinstance(y, np.ndarray) or y.shape != (len(x), *shape):
            got = y.shape if isinstance(y, np.ndarray) else type(y).__name__
            raise ValueError(f"{self.name}: expected {method} to return shape {(len(x), *shape)}, got {got}")
        return np.asarray(as_array(y, f"{self.name}: what {method} returns"), self.layer.dtype)


class BranchStage:
    """A container with a layer in NumPy: each branch is a network, and what they give meets in NumPy."""

    def __init__(self, container: Container, name: str, parameters: Parameters) -> None:
        self.container, self.name = container, name
        self.in_shape, self.out_shape = container.in_shape, container.out_shape
        self.has_params = bool(container.params)
        self.networks = [
            Network(way, [f"{name}: {branch}.{i}, {type(one).__name__}" for i, one in enumerate(way)], parameters)
            for branch, way in container.ways().items()
        ]
        self.sizes = [way[-1].out_shape[0] if way else self.in_shape[0] for way in container.ways().values()]

    def predict(self, x: Array, num_threads: int | None) -> Array:
        """As NativeStage.predict."""
        x = np.asarray(x, self.container.dtype)
        return met(self.container.join, [network.predict(x, num_threads) for network in self.networks])

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, numbers: Index | None
    ) -> tuple[Array, Any]:
        """As NativeStage.forward."""
        x = np.asarray(x, self.container.dtype)
        found = [network.forward(x, num_threads, seed, step, numbers) for network in self.networks]
        return met(self.container.join, [y for y, _ in found]), [tape for _, tape in found]

    def backward(self, kept: Any, dy: Array, want_dx: bool) -> Array | None:
        """As NativeStage.backward; the gradients of the branches are added up in their order."""
        ends = np.cumsum(self.sizes)[:-1]
        shares = np.split(dy, ends, axis=1) if self.container.join == CONCAT else [dy] * len(self.networks)
        total: Array | None = None
        for network, tape, share in zip(self.networks, kept, shares, strict=True):
            dx = network.backward(tape, share, want_dx)
            total = dx if total is None or dx is None else total + dx
        return total if want_dx else None


Stage = NativeStage | NumpyStage | BranchStage


def stage_of(layer: Layer, name: str, parameters: Parameters) -> Stage:
    """One layer as a stage of its own."""
    if layer.native:
        return NativeStage([layer], parameters)
    return BranchStage(layer, name, parameters) if isinstance(layer, Container) else NumpyStage(layer, name)


class Network:
    """The stages of a model. Values go from stage to stage as NCHW arrays in the model's dtype."""

    def __init__(self, layers: Sequence[Layer], names: Sequence[str], parameters: Parameters) -> None:
        self.layers, self.names = list(layers), list(names)
        self.parameters, self.dtype = parameters, parameters.dtype
        self.stages: list[Stage] = []
        start = 0
        for i, layer in enumerate(layers):
            if not layer.native:
                self._add_native(start, i)
                self.stages.append(stage_of(layer, names[i], parameters))
                start = i + 1
        self._add_native(start, len(layers))

    def _add_native(self, start: int, end: int) -> None:
        if start < end:
            self.stages.append(NativeStage(self.layers[start:end], self.parameters))

    @property
    def native(self) -> bool:
        """Whether the whole model is one plan."""
        return len(self.stages) == 1 and isinstance(self.stages[0], NativeStage)

    def check_batch(self, n: int) -> None:
        """Raises ValueError if a batch of n examples is too small to train a layer with."""
        for layer, name in zip(self.layers, self.names, strict=True):
            if 0 < n < layer.least_examples:
                least = f"at least {layer.least_examples} examples in every batch of training"
                raise ValueError(f"{name}: expected {least}, got one of {n}: choose another batch_size")

    def predict(self, x: Array, num_threads: int | None = None) -> Array:
        """The outputs for x (n, ...), which may be uint8, float32 or float64; keeps nothing."""
        for stage in self.stages:
            x = stage.predict(x, num_threads)
        return x

    def forward(
        self,
        x: Array,
        num_threads: int | None = None,
        seed: int = 0,
        step: int = 0,
        numbers: Index | None = None,
    ) -> tuple[Array, list[Any]]:
        """The outputs for x as in training, and a list of what `backward` needs.

        numbers: of the examples in the data, which random masks of kernels depend on; None: 0 to len(x) - 1.
        """
        tape = []
        for stage in self.stages:
            x, kept = stage.forward(x, num_threads, seed, step, numbers)
            tape.append(kept)
        if self.stages and isinstance(self.stages[-1], NumpyStage):
            x = x.copy()  # a layer in NumPy may keep what it returns, and this one goes to the user
        return x, tape

    def release(self, tape: list[Any]) -> None:
        """Gives back the memory of a tape that is not needed any more."""
        for stage, kept in zip(self.stages, tape, strict=True):
            if isinstance(stage, NativeStage):
                stage.plan.release(kept)

    def backward(self, tape: list[Any], dy: Array, want_dx: bool) -> Array | None:
        """dx for the gradient dy of the outputs; the parameters' gradients, plain sums, go to `parameters.grads`."""
        wanted = want_dx
        below = []  # for each stage: whether anything below it wants a gradient
        for stage in self.stages:
            below.append(wanted)
            wanted = wanted or stage.has_params
        for stage, kept, stage_wants in reversed(list(zip(self.stages, tape, below, strict=True))):
            if not stage_wants and not stage.has_params:
                return None
            dx = stage.backward(kept, dy, stage_wants)
            if dx is None:
                return None
            dy = dx
        return dy


def _read_only(x: Array) -> Array:
    """x as a layer in NumPy may see it: it must not write into what another layer or the caller owns."""
    x = x.view()
    x.flags.writeable = False
    return x


def _rows(x: Array) -> Array:
    """x (n, ...) as (n, size), the same memory."""
    return x.reshape(len(x), math.prod(x.shape[1:]))
