"""Instrumented copies of layers: each is a segment of its own, with statistics of a batch's forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.engine.network import Network, segment_of
from minidl.engine.segments import Segment, trains
from minidl.layers.base import Layer
from minidl.layers.container import Container
from minidl.layers.join import ADD, join_gradients, join_outputs
from minidl.utils.arrays import Array
from minidl.utils.data import Index


class Spread:
    """Running mean and standard deviation of arrays (n, ...), of each element and of all."""

    def __init__(self) -> None:
        self.count, self.largest = 0, 0.0
        self.sums: NDArray[np.float64] = np.zeros(())
        self.squares: NDArray[np.float64] = np.zeros(())

    def add(self, x: Array) -> None:
        """Adds more examples."""
        rows = x.reshape(len(x), -1).astype(np.float64)
        self.count += len(x)
        self.sums = self.sums + rows.sum(axis=0)
        self.squares = self.squares + (rows**2).sum(axis=0)
        self.largest = max(self.largest, float(np.abs(rows).max(initial=0)))

    @property
    def size(self) -> float:
        """The root mean square of all values."""
        return math.sqrt(self.squares.mean() / self.count)

    @property
    def centre(self) -> float:
        """The root mean square of the elements' means."""
        return math.sqrt(((self.sums / self.count) ** 2).mean())

    @property
    def deviation(self) -> float:
        """The root mean square of the elements' standard deviations over the examples."""
        variances = self.squares / self.count - (self.sums / self.count) ** 2
        return math.sqrt(max(variances.mean(), 0.0))


@dataclass
class LayerStats:
    """Statistics of a layer that is not a container."""

    name: str
    layer: Layer
    learns: bool  # whether steps change its parameters
    reads_data: bool = False  # whether it has weights, and no layer before it has parameters
    input: Spread | None = None  # if it reads data
    off: NDArray[np.bool_] | None = None  # by unit (channel, feature): whether it was flat for all examples
    flat: int = 0  # the number of `values` at which its function is flat
    values: int = 0
    gradient: float | None = None  # root mean square, over the examples, of the norm of its output's gradient
    update: float | None = None  # norm of the change of its weights in a step, divided by that of the weights

    @property
    def weights(self) -> list[Array]:
        """The layer's parameters with at least two axes: neither biases nor the scales of norms."""
        return [param.value for param in self.layer.params.values() if param.value.ndim > 1]

    def add_input(self, x: Array) -> None:
        """Adds an input of the layer."""
        if self.reads_data:
            self.input = self.input or Spread()
            self.input.add(x)
        if self.layer.active_range is not None:
            low, high = self.layer.active_range
            flat = ((x <= low) | (x >= high)).reshape(len(x), x.shape[1] if x.ndim > 1 else 1, -1)
            off: NDArray[np.bool_] = np.asarray(flat.all(axis=(0, 2)))
            self.off = off if self.off is None else self.off & off
            self.flat, self.values = self.flat + int(flat.sum()), self.values + flat.size


@dataclass
class BatchArgs:
    """The arguments that every layer is given with a batch."""

    num_threads: int | None
    seed: int
    step: int
    example_ids: Index


class InstrumentedLayer:
    """A layer as a segment of its own, with statistics."""

    def __init__(self, segment: Segment, stats: LayerStats) -> None:
        self.segment, self.stats, self.trains = segment, stats, segment.trains

    def forward(self, x: Array, args: BatchArgs) -> tuple[Array, Any]:
        """Returns the outputs, and the context of backward."""
        self.stats.add_input(x)
        return self.segment.forward(x, args.num_threads, args.seed, args.step, args.example_ids, 0)

    def backward(self, context: Any, dy: Array, want_dx: bool) -> Array | None:
        """Returns the gradient of the input, or None without want_dx."""
        rows = dy.reshape(len(dy), -1).astype(np.float64)
        self.stats.gradient = math.sqrt((rows**2).sum() / len(rows))
        return self.segment.backward(context, dy, want_dx)


class InstrumentedSeries:
    """Layers in order."""

    def __init__(self, parts: Sequence[InstrumentedLayer | InstrumentedBranches]) -> None:
        self.parts = parts
        self.trains: bool = any(part.trains for part in parts)

    def forward(self, x: Array, args: BatchArgs) -> tuple[Array, Any]:
        """See InstrumentedLayer."""
        tape = []
        for part in self.parts:
            x, context = part.forward(x, args)
            tape.append(context)
        return x, tape

    def backward(self, tape: Any, dy: Array, want_dx: bool) -> Array | None:
        """See InstrumentedLayer. No gradient is computed where it is not needed: layers in NumPy need not return it."""
        dx: Array | None = dy
        for i in reversed(range(len(self.parts))):
            wanted = want_dx or any(part.trains for part in self.parts[:i])
            if dx is None or not (wanted or self.parts[i].trains):
                return None
            dx = self.parts[i].backward(tape[i], dx, wanted)
        return dx


class InstrumentedBranches:
    """A container: branches from its input that are joined."""

    def __init__(self, container: Container, branches: list[InstrumentedSeries]) -> None:
        self.container, self.branches = container, branches
        self.trains = any(branch.trains for branch in branches)

    def forward(self, x: Array, args: BatchArgs) -> tuple[Array, Any]:
        """See InstrumentedLayer."""
        results = [branch.forward(x, args) for branch in self.branches]
        outputs, tapes = [y for y, _ in results], [tape for _, tape in results]
        return join_outputs(self.container.join, outputs, self.container.axis), (outputs, tapes)

    def backward(self, tape: Any, dy: Array, want_dx: bool) -> Array | None:
        """See InstrumentedLayer. The gradients of the branches are added."""
        outputs, tapes = tape
        parts = zip(
            self.branches, tapes, join_gradients(self.container.join, dy, outputs, self.container.axis), strict=True
        )
        gradients = [branch.backward(context, share, want_dx) for branch, context, share in parts]
        return join_outputs(ADD, [dx for dx in gradients if dx is not None]) if want_dx else None


def instrumented(network: Network) -> tuple[InstrumentedSeries, list[LayerStats]]:
    """Returns the layers of a network with statistics, and these: of all layers that are not containers, in order."""
    seen: list[LayerStats] = []
    return _instrumented(network, network.layers, network.names, True, seen)[0], seen


def _instrumented(
    network: Network, layers: Sequence[Layer], names: Sequence[str], data: bool, found: list[LayerStats]
) -> tuple[InstrumentedSeries, bool]:
    """Returns layers with statistics, and whether their output is still data; `data`: whether their input is."""
    parts: list[InstrumentedLayer | InstrumentedBranches] = []
    for layer, name in zip(layers, names, strict=True):
        if isinstance(layer, Container):
            branches = [
                _instrumented(network, branch, [f"{name}: {child}" for child in layer.child_names(key)], data, found)
                for key, branch in layer.named_branches().items()
            ]
            parts.append(InstrumentedBranches(layer, [branch for branch, _ in branches]))
            data = all(still for _, still in branches)
            continue
        seen = LayerStats(name, layer, trains([layer], network.trained))
        seen.reads_data = data and bool(seen.weights)
        data = data and not layer.params and not layer.buffers
        found.append(seen)
        parts.append(InstrumentedLayer(segment_of(layer, name, network.parameters, network.trained), seen))
    return InstrumentedSeries(parts), data
