"""Layers on copies, each a stage of its own, that are looked at while a batch goes forward and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.engine.network import Network, segment_of
from minidl.engine.segments import Segment, trains
from minidl.layers import ELU, GELU, Hardswish, ReLU, Sigmoid, SiLU, Tanh
from minidl.layers.base import Layer
from minidl.layers.container import ADD, CONCAT, Container, join_outputs
from minidl.utils.arrays import Array
from minidl.utils.data import Index

# Inputs below and above which a function is flat: its slope is 0, or a twentieth of its largest one and less.
FLAT = {
    ReLU: (0.0, math.inf), Hardswish: (-3.0, math.inf), ELU: (-3.0, math.inf), GELU: (-3.0, math.inf),
    SiLU: (-5.5, math.inf), Sigmoid: (-4.4, 4.4), Tanh: (-2.2, 2.2),
}  # fmt: skip


class Spread:
    """Mean and standard deviation of numbers that come by in blocks (n, ...): of each place, and of all of them."""

    def __init__(self) -> None:
        self.count, self.largest = 0, 0.0
        self.sums: NDArray[np.float64] = np.zeros(())
        self.squares: NDArray[np.float64] = np.zeros(())

    def add(self, x: Array) -> None:
        """Some more examples."""
        rows = x.reshape(len(x), -1).astype(np.float64)
        self.count += len(x)
        self.sums = self.sums + rows.sum(axis=0)
        self.squares = self.squares + (rows**2).sum(axis=0)
        self.largest = max(self.largest, float(np.abs(rows).max(initial=0)))

    @property
    def size(self) -> float:
        """The root of the mean square of all numbers."""
        return math.sqrt(self.squares.mean() / self.count)

    @property
    def centre(self) -> float:
        """The root mean square of the places' means."""
        return math.sqrt(((self.sums / self.count) ** 2).mean())

    @property
    def deviation(self) -> float:
        """The root mean square of the places' standard deviations over the examples."""
        variances = self.squares / self.count - (self.sums / self.count) ** 2
        return math.sqrt(max(variances.mean(), 0.0))


@dataclass
class Seen:
    """What was seen of a layer that is no container."""

    name: str
    layer: Layer
    learns: bool  # whether steps change parameters of it
    reads_data: bool = False  # whether it is a first one with weights: nothing in front of it has parameters
    input: Spread | None = None  # of one that reads data
    off: NDArray[np.bool_] | None = None  # of each unit (channel, feature): whether it was flat for every example
    flat: int = 0  # of `values` numbers, those at which its function is flat
    values: int = 0
    gradient: float | None = None  # root mean square, over the examples, of the norm of its output's gradient
    update: float | None = None  # norm of the change of its weights in a step, divided by theirs

    @property
    def weights(self) -> list[Array]:
        """Its parameters of two axes and more: what is neither a bias nor the gain of a norm."""
        return [param.value for param in self.layer.params.values() if param.value.ndim > 1]

    def look(self, x: Array) -> None:
        """Notes what goes into it."""
        if self.reads_data:
            self.input = self.input or Spread()
            self.input.add(x)
        ends = next((ends for kind, ends in FLAT.items() if isinstance(self.layer, kind)), None)
        if ends is not None:
            flat = ((x <= ends[0]) | (x >= ends[1])).reshape(len(x), x.shape[1] if x.ndim > 1 else 1, -1)
            off: NDArray[np.bool_] = np.asarray(flat.all(axis=(0, 2)))
            self.off = off if self.off is None else self.off & off
            self.flat, self.values = self.flat + int(flat.sum()), self.values + flat.size


@dataclass
class Call:
    """What every layer is told of a batch."""

    num_threads: int | None
    seed: int
    step: int
    numbers: Index


class Leaf:
    """A layer as a stage of its own that is looked at."""

    def __init__(self, stage: Segment, seen: Seen) -> None:
        self.stage, self.seen, self.trains = stage, seen, stage.trains

    def forward(self, x: Array, call: Call) -> tuple[Array, Any]:
        """The outputs, and what backward needs."""
        self.seen.look(x)
        return self.stage.forward(x, call.num_threads, call.seed, call.step, call.numbers, 0)

    def backward(self, kept: Any, dy: Array, want_dx: bool) -> Array | None:
        """The gradient of the input, if it is wanted."""
        rows = dy.reshape(len(dy), -1).astype(np.float64)
        self.seen.gradient = math.sqrt((rows**2).sum() / len(rows))
        return self.stage.backward(kept, dy, want_dx)


class Chain:
    """Layers one behind the other."""

    def __init__(self, parts: Sequence[Leaf | Fork]) -> None:
        self.parts = parts
        self.trains: bool = any(part.trains for part in parts)

    def forward(self, x: Array, call: Call) -> tuple[Array, Any]:
        """As Leaf.forward."""
        tape = []
        for part in self.parts:
            x, kept = part.forward(x, call)
            tape.append(kept)
        return x, tape

    def backward(self, tape: Any, dy: Array, want_dx: bool) -> Array | None:
        """As Leaf.backward: no gradient goes where nobody uses it, and layers in NumPy need not give one there."""
        dx: Array | None = dy
        for i in reversed(range(len(self.parts))):
            wanted = want_dx or any(part.trains for part in self.parts[:i])
            if dx is None or not (wanted or self.parts[i].trains):
                return None
            dx = self.parts[i].backward(tape[i], dx, wanted)
        return dx


class Fork:
    """A container: chains that part and meet."""

    def __init__(self, container: Container, ways: list[Chain]) -> None:
        self.container, self.ways, self.trains = container, ways, any(way.trains for way in ways)
        ends = [way[-1].out_shape if way else container.in_shape for way in container.named_branches().values()]
        self.cuts = np.cumsum([shape[0] for shape in ends])[:-1]

    def forward(self, x: Array, call: Call) -> tuple[Array, Any]:
        """As Leaf.forward."""
        found = [way.forward(x, call) for way in self.ways]
        return join_outputs(self.container.join, [y for y, _ in found]), [tape for _, tape in found]

    def backward(self, tape: Any, dy: Array, want_dx: bool) -> Array | None:
        """As Leaf.backward; the gradients of the branches are added up."""
        concat = self.container.join == CONCAT
        shares = np.split(dy, self.cuts, axis=1) if concat else [dy] * len(self.ways)
        found = [way.backward(kept, share, want_dx) for way, kept, share in zip(self.ways, tape, shares, strict=True)]
        return join_outputs(ADD, [dx for dx in found if dx is not None]) if want_dx else None


def watched(network: Network) -> tuple[Chain, list[Seen]]:
    """The layers of a network as a chain, and what will be seen of those that are no containers, in order."""
    seen: list[Seen] = []
    return _chain(network, network.layers, network.names, True, seen)[0], seen


def _chain(
    network: Network, layers: Sequence[Layer], names: Sequence[str], data: bool, found: list[Seen]
) -> tuple[Chain, bool]:
    """Layers as a chain, and whether what comes out of them is still data; `data`: whether that goes in."""
    parts: list[Leaf | Fork] = []
    for layer, name in zip(layers, names, strict=True):
        if isinstance(layer, Container):
            ways = [
                _chain(network, way, [f"{name}: {place}" for place in layer.child_names(branch)], data, found)
                for branch, way in layer.named_branches().items()
            ]
            parts.append(Fork(layer, [way for way, _ in ways]))
            data = all(still for _, still in ways)
            continue
        seen = Seen(name, layer, trains([layer], network.trained))
        seen.reads_data = data and bool(seen.weights)
        data = data and not layer.params and not layer.buffers
        found.append(seen)
        parts.append(Leaf(segment_of(layer, name, network.parameters, network.trained), seen))
    return Chain(parts), data
