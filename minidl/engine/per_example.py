"""A network whose backward computes the gradients of single examples, where that of a training step sums them.

Kernels tell them from a batch: see runtime/per_example.pyx. Where a layer cannot, one in NumPy, say, each example goes
through it alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.engine.network import BranchSegment, Network
from minidl.engine.segments import NativeSegment, NumpySegment, Segment
from minidl.layers.base import Layer
from minidl.layers.container import named_leaves
from minidl.layers.param import Param
from minidl.utils.arrays import Array, memory_order, with_memory_order
from minidl.utils.data import Index


@dataclass
class GradRequest:
    """A request for the gradients of one parameter, example by example: one of the two arrays, OUT.

    offset: where the parameter begins in the flat buffer. grads (n, size): in the order of memory; squares (n,):
    the sums of their squares.
    """

    param: Param
    offset: int
    grads: Array | None = None
    squares: NDArray[np.float64] | None = None

    def part(self, here: slice) -> GradRequest:
        """Returns the request for some of the examples."""
        return GradRequest(
            self.param,
            self.offset,
            None if self.grads is None else self.grads[here],
            None if self.squares is None else self.squares[here],
        )

    def shaped(self, grads: Array) -> Array:
        """Returns gradients (n, size) in the parameter's shape, (n, *shape), in the same memory."""
        return with_memory_order(grads, self.param.value.shape, memory_order(self.param.value))

    def put(self, i: int, grad: Array) -> None:
        """Returns the gradient of example i, in the parameter's shape."""
        flat = grad.ravel("K")
        if self.grads is not None:
            self.grads[i] = flat
        if self.squares is not None:
            self.squares[i] = np.square(flat, dtype=np.float64).sum()


class LaneSegment:
    """A segment of kernels whose backward writes the gradients of single examples, and no others."""

    def __init__(self, segment: NativeSegment, wanted: Sequence[GradRequest]) -> None:
        self.segment, self.trains = segment, bool(wanted)
        self.in_shape, self.out_shape = segment.in_shape, segment.out_shape
        self.predict, self.forward, self.release = segment.predict, segment.forward, segment.release
        self.outputs = [(one.offset, one.param.value.size, one.grads, one.squares) for one in wanted]

    def backward(self, context: Any, dy: Array, want_dx: bool) -> Array | None:
        """See Segment."""
        return self.segment.backward_examples(context, dy, want_dx, self.outputs)


class LoopSegment:
    """A segment through which each example goes alone: forward, and again forward and backward for its gradients."""

    def __init__(self, segment: Segment, wanted: Sequence[GradRequest]) -> None:
        self.segment, self.trains, self.wanted = segment, bool(wanted), wanted
        self.in_shape, self.out_shape = segment.in_shape, segment.out_shape
        self.predict = segment.predict

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, example_ids: Index | None, part: int
    ) -> tuple[Array, Any]:
        """See Segment."""

        def alone(i: int) -> tuple[Array, Any]:
            example_id = None if example_ids is None else example_ids[i : i + 1]
            return self.segment.forward(x[i : i + 1], num_threads, seed, step, example_id, part)

        y = np.empty((len(x), *self.out_shape), x.dtype)
        for i in range(len(x)):
            y[i : i + 1], context = alone(i)
            self.segment.release(context)
        return y, alone

    def backward(self, context: Any, dy: Array, want_dx: bool) -> Array | None:
        """See Segment."""
        dx = np.empty((len(dy), *self.in_shape), dy.dtype) if want_dx else None
        for i in range(len(dy)):
            _, own_context = context(i)
            found = self.segment.backward(own_context, dy[i : i + 1], want_dx)
            self.segment.release(own_context)
            if dx is not None:
                dx[i : i + 1] = found
            for one in self.wanted:
                one.put(i, one.param.grad)
        return dx

    def release(self, context: Any) -> None:
        """See Segment: there is nothing to release."""


def with_per_example_grads(network: Network, wanted: Sequence[GradRequest]) -> Network:
    """Returns the network with other segments: its backward fills the requests, and writes no sums of kernels."""
    twin = copy.copy(network)
    twin.segments = [_per_example_segment(segment, wanted) for segment in network.segments]
    return twin


def _per_example_segment(segment: Segment, wanted: Sequence[GradRequest]) -> Segment:
    if isinstance(segment, BranchSegment):
        twin = copy.copy(segment)
        twin.networks = [with_per_example_grads(branch, wanted) for branch in segment.networks]
        twin.trains = any(inner.trains for branch in twin.networks for inner in branch.segments)
        return twin
    assert isinstance(segment, (NativeSegment, NumpySegment))
    ours = {id(one.param): one for one in wanted}
    leaves = [leaf for layer in segment.layers for leaf in layer.leaves()]
    holders = [leaf for leaf in leaves if any(id(param) in ours for param in leaf.params.values())]
    here = [ours[id(param)] for leaf in holders for param in leaf.params.values() if id(param) in ours]
    if isinstance(segment, NativeSegment) and all(map(has_per_example_grad, holders)):
        return LaneSegment(segment, here)
    return LoopSegment(segment, here) if here else segment


def has_per_example_grad(leaf: Layer) -> bool:
    """Whether a layer has kernels with gradients of single examples."""
    return leaf.native and all(op.has_per_example_grad for op in leaf.ops)


def grad_requests(network: Network, params: Iterable[Param], n: int, norms: bool) -> list[GradRequest]:
    """Allocates the gradients of n examples for these parameters, or the squares of their norms."""
    found = []
    for param in params:
        offset, size = network.parameters.param_offsets[id(param)], param.value.size
        grads = None if norms else np.empty((n, size), network.dtype)
        found.append(GradRequest(param, offset, grads, np.empty(n) if norms else None))
    return found


def check_no_coupling(network: Network) -> None:
    """Raises ValueError, naming the layer, if one couples the examples: then none has a gradient of its own."""
    named = zip(network.layers, network.names, strict=True)
    for leaf, name in (pair for layer, title in named for pair in named_leaves(layer, title)):
        expected = "expected layers that see each example alone; this one"
        lost = "so no example has a gradient of its own"
        if leaf.native and any(op.couples_examples for op in leaf.ops) and not network.trained[id(leaf)].frozen:
            hint = "freeze it (trainable = False), or take GroupNorm"
            raise ValueError(f"{name}: {expected} computes with the statistics of a batch, {lost}: {hint}")
        if not leaf.native and leaf.min_batch_size > 1:  # frozen or not, its forward is that of training
            raise ValueError(f"{name}: {expected} has min_batch_size={leaf.min_batch_size}, {lost}")
