"""The two forms of QuantizationAware layers: rounded weights in training, and integers everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.network import Network
from minidl.layers.fake_quantize import QuantizationAware
from minidl.quantization.conversion import convert, quantizations_of
from minidl.quantization.graph import Node, Product, in_order
from minidl.quantization.integer_net import IntegerNet
from minidl.quantization.program import Program
from minidl.quantization.rules.products import PRODUCTS
from minidl.quantization.translation import translate
from minidl.quantization.weights import fake_quantized
from minidl.sequential import Sequential
from minidl.utils.arrays import Array, memory_order, with_memory_order
from minidl.utils.errors import kind_of


class RoundedParameters(FlatParameters):
    """The parameters of a model, of which some layers have rounded weights; the gradients are the model's own.

    They are copies, so that the optimizer, files and averages have the weights themselves.
    """

    def __init__(self, owner: FlatParameters, container: QuantizationAware) -> None:
        self.dtype, self.values, self.offsets, self._made = owner.dtype, owner.values, owner.offsets, owner._made
        self.owner = owner
        self._rounded_of: Array | None = None
        self._weights = [
            (self.offsets[id(leaf)], leaf.params["weight"]) for leaf in container.leaves() if type(leaf) in PRODUCTS
        ]

    def refresh(self) -> None:
        """Rounds the weights again if they have changed, into a new array: other threads may read the one before."""
        current = self.owner.values
        if self._rounded_of is not None and np.array_equal(self._rounded_of, current):
            return
        values, rounded_of = current.copy(), current.copy()
        for start, weight in self._weights:
            own = values[start : start + weight.value.size]
            with_memory_order(own, weight.value.shape, memory_order(weight.value))[...] = fake_quantized(weight.value)
        self.values, self._rounded_of = values, rounded_of


class IntegerForm:
    """The integers of QuantizationAware layers, made again when a weight has changed."""

    def __init__(self, container: QuantizationAware, inner: Network, parameters: FlatParameters) -> None:
        self.container, self.inner, self.parameters = container, inner, parameters
        self._made: tuple[Array, Network] | None = None  # the parameters, and the net of integers

    def network(self) -> Network:
        """Returns the net of integers; raises TypeError or ValueError, naming the layer, if there is none."""
        made = self._made
        if made is None or not np.array_equal(made[0], self.parameters.values):
            net = IntegerNet(program_of(self.container, self.inner), self.container.out_shape)
            network = Sequential([net], self.container.in_shape).network
            assert network is not None
            made = self._made = self.parameters.values.copy(), network
        return made[1]


@contextmanager
def errors_inside() -> Iterator[None]:
    """Returns a context whose TypeErrors and ValueErrors say that the layers they name are in a QuantizationAware."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise kind_of(error)(f"QuantizationAware: {error}") from error


def nodes_of(container: QuantizationAware, inner: Network) -> list[Node]:
    """Returns the graph of layers in order. inner: their network."""
    return in_order(translate(inner, container.layers))


def program_of(container: QuantizationAware, inner: Network) -> Program:
    """Returns the integers of layers with a FakeQuantize after each value.

    No bias is corrected: what was trained is what is converted.
    """
    with errors_inside():
        nodes = nodes_of(container, inner)
        read: dict[Node, None] = {x: None for node in nodes if isinstance(node, Product) for x in node.inputs}
        program, _ = convert(nodes, quantizations_of(nodes, {}), {x: np.zeros(x.shape) for x in read})
    return program
