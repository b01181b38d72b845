"""Site: a layer at its place in the net, as the functions that translate layers get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from minidl.engine.layer_list import from_spec, to_spec
from minidl.engine.network import Network, segment_of
from minidl.layers.base import Layer
from minidl.quantization.graph import Evaluate, Image, Integers, Node, image_of
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape


@dataclass(frozen=True)
class Site:
    """A layer, its input in the graph, and the label of what comes from it. integers: of its weights, if given."""

    layer: Layer
    x: Node
    label: str
    network: Network
    integers: Integers | None = None

    @property
    def shape(self) -> Image:
        """The shape of the output in the graph."""
        return image_of(self.layer.out_shape)

    def array(self, name: str, size: int) -> Array:
        """Returns a parameter in float64; zeros if the layer has none of this name."""
        param = self.layer.params.get(name)
        return np.zeros(size) if param is None else np.array(param.value, np.float64)

    @property
    def evaluate(self) -> Evaluate:
        """The layer's own function of a value."""
        segment = cache(lambda: segment_of(self.layer, self.label, self.network.parameters, self.network.trained))

        def evaluate(x: Array) -> Array:
            y = segment().predict(np.ascontiguousarray(x, self.layer.dtype).reshape(len(x), *self.layer.in_shape), None)
            return y.reshape(len(x), *self.shape)

        return evaluate

    def alone(self, in_shape: Shape, dtype: str) -> Callable[[Array], Array]:
        """Returns the function of a copy of the layer for another shape and dtype, of one example."""
        model = Sequential([from_spec(to_spec(self.layer))], dtype=dtype)
        arrays = {name: param.value for name, param in self.layer.params.items()} | self.layer.buffers
        model.build_from(in_shape, {f"0.{name}": np.array(array) for name, array in arrays.items()})
        return lambda x: model.forward(x.reshape(1, *in_shape)).reshape(-1)


Translate = Callable[[Site], Node]  # from a layer and its input to its output
