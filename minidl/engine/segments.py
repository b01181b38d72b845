"""Segments of a model: layers with kernels, run as one plan, and layers in NumPy. Values are NCHW arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.lowering import plan_of
from minidl.engine.param_groups import ParamGroup
from minidl.layers.base import Layer
from minidl.utils.arrays import Array, as_array
from minidl.utils.data import Index
from minidl.utils.validation import Shape

ParamGroups = Mapping[int, ParamGroup]  # by the id of a layer


def trains(layers: Sequence[Layer], trained: ParamGroups) -> bool:
    """Whether a step changes a parameter of these layers."""
    return any(leaf.params and not trained[id(leaf)].frozen for layer in layers for leaf in layer.leaves())


class Segment(Protocol):
    """A run of layers. in_shape, out_shape: without the batch axis; trains: whether a step changes its parameters."""

    in_shape: Shape
    out_shape: Shape
    trains: bool

    def predict(self, x: Array, num_threads: int | None) -> Array:
        """Returns the outputs for x; keeps nothing."""

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, example_ids: Index | None, part: int
    ) -> tuple[Array, Any]:
        """Returns y, and the context of backward. example_ids: indices in the data; part: index of the micro-batch."""

    def backward(self, context: Any, dy: Array, want_dx: bool) -> Array | None:
        """Returns dx, or None without want_dx; writes the gradients of the parameters into the flat buffer."""

    def release(self, context: Any) -> None:
        """Releases the memory of a context that forward returned."""


class NativeSegment:
    """Layers with kernels: one plan, run inside one parallel region."""

    def __init__(self, layers: Sequence[Layer], parameters: FlatParameters, trained: ParamGroups) -> None:
        self.layers = list(layers)
        self.in_shape, self.out_shape = layers[0].in_shape, layers[-1].out_shape
        self.trains = trains(layers, trained)
        self.plan = plan_of(layers, parameters.offsets, trained)
        self.parameters = parameters

    def predict(self, x: Array, num_threads: int | None) -> Array:
        """See Segment."""
        y = np.empty((len(x), *self.out_shape), self.plan.dtype)
        self.plan.predict(np.ascontiguousarray(x), None, self.parameters.values, y, num_threads)
        return y

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, example_ids: Index | None, part: int
    ) -> tuple[Array, Any]:
        """See Segment."""
        y = np.empty((len(x), *self.out_shape), self.plan.dtype)
        context = self.plan.forward(
            np.ascontiguousarray(x), self.parameters.values, y, num_threads, seed, step, example_ids
        )
        return y, context

    def backward(self, context: Any, dy: Array, want_dx: bool) -> Array | None:
        """See Segment."""
        dy, dx = np.require(dy, requirements=["C_CONTIGUOUS", "ALIGNED"]), self._dx(dy, want_dx)
        self.plan.backward(context, dy, dx, self.parameters.values, self.parameters.grads)
        return dx

    def backward_examples(self, context: Any, dy: Array, want_dx: bool, outputs: Sequence[Any]) -> Array | None:
        """As `backward`, with the gradients of each example; outputs: those of Plan.backward_examples."""
        dy, dx = np.require(dy, requirements=["C_CONTIGUOUS", "ALIGNED"]), self._dx(dy, want_dx)
        self.plan.backward_examples(context, dy, dx, self.parameters.values, outputs)
        return dx

    def release(self, context: Any) -> None:
        """See Segment."""
        self.plan.release(context)

    def _dx(self, dy: Array, wanted: bool) -> Array | None:
        return np.empty((len(dy), *self.in_shape), self.plan.dtype) if wanted else None


class NumpySegment:
    """One layer in NumPy. Its results are checked, so that an error names this layer and not the next one."""

    def __init__(self, layer: Layer, name: str, trained: ParamGroups) -> None:
        self.layer, self.layers, self.name = layer, [layer], name
        self.in_shape, self.out_shape = layer.in_shape, layer.out_shape
        self.trains, self.frozen = trains([layer], trained), trained[id(layer)].frozen

    def predict(self, x: Array, num_threads: int | None) -> Array:
        """See Segment."""
        return self._checked("forward", self.layer.forward(self._real(x), False), x, self.out_shape)

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, example_ids: Index | None, part: int
    ) -> tuple[Array, Any]:
        """See Segment. The layer itself keeps what it needs, and draws its random numbers batch by batch."""
        self.layer.begin_step(step, seed, part)
        before = {name: buffer.copy() for name, buffer in self.layer.buffers.items()} if self.frozen else {}
        y = self.layer.forward(self._real(x), True)
        for name, buffer in before.items():
            self.layer.buffers[name][...] = buffer
        return self._checked("forward", y, x, self.out_shape), None

    def backward(self, context: Any, dy: Array, want_dx: bool) -> Array | None:
        """See Segment."""
        self.layer.needs_dx = want_dx
        dx = self.layer.backward(_read_only(dy))
        for param in self.layer.params.values() if self.frozen else ():
            param.grad[...] = 0
        return self._checked("backward", dx, dy, self.in_shape) if want_dx else None

    def release(self, context: Any) -> None:
        """See Segment: there is nothing to release."""

    def _real(self, x: Array) -> Array:
        return _read_only(np.asarray(x, self.layer.dtype))

    def _checked(self, method: str, y: Any, x: Array, shape: Shape) -> Array:
        if not isinstance(y, np.ndarray) or y.shape != (len(x), *shape):
            got = y.shape if isinstance(y, np.ndarray) else type(y).__name__
            raise ValueError(f"{self.name}: expected {method} to return shape {(len(x), *shape)}, got {got}")
        array = as_array(y, f"{self.name}: what {method} returns")
        return np.require(array, self.layer.dtype, ["C_CONTIGUOUS", "ALIGNED"])  # a view is copied: plans read rows


class CheckedSegment(NumpySegment):
    """A layer in NumPy in inference. Its backward follows its training forward, so both have to compute the same."""

    def forward(
        self, x: Array, num_threads: int | None, seed: int, step: int, example_ids: Index | None, part: int
    ) -> tuple[Array, Any]:
        """See Segment. The context is whether backward can follow."""
        expected = self.predict(x, num_threads).copy()  # the next forward may write into the same array
        y, _ = super().forward(x, num_threads, seed, step, example_ids, part)
        near = math.sqrt(np.finfo(y.dtype).eps)  # the two may round differently
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=0)
        is_same = np.allclose(y, expected, rtol=near, atol=near * scale, equal_nan=True)
        return (y if is_same else expected), is_same

    def backward(self, kept: Any, dy: Array, want_dx: bool) -> Array | None:
        """See Segment. Raises ValueError, naming the layer, if it computes something else in training."""
        if not kept:
            expected = "expected a layer in NumPy that computes the same in training and in inference"
            raise ValueError(f"{self.name}: {expected}: its backward follows its training forward")
        return super().backward(None, dy, want_dx)


def _read_only(x: Array) -> Array:
    """Returns a read-only view: a layer in NumPy must not write into the arrays of other layers or of the caller."""
    x = x.view()
    x.flags.writeable = False
    return x
