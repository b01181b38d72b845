"""Export of layers that are not minidl's: their method `onnx` adds nodes, which are checked before they are used."""

from __future__ import annotations

import numpy as np

from minidl.engine.layer_list import from_spec, to_spec
from minidl.engine.state import copies, tensors
from minidl.layers.base import Layer
from minidl.layers.container import Container
from minidl.layers.fake_quantize import FakeQuantize, QuantizationAware
from minidl.onnx.file import model_file
from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.onnx.node_writer import NodeWriter
from minidl.sequential import Sequential
from minidl.utils.arrays import Array
from minidl.utils.errors import kind_of

BATCHES = (1, 3)  # numbers of random examples for which nodes are compared with the layer
TOLERANCE = 1e-4  # of the largest value


def write_custom(nodes: list[Node], layer: Layer, path: str, label: str, x: str) -> str:
    """Adds the nodes of a user's layer by its method `onnx(writer, x)`; returns the name of its output.

    label: the layer's name in errors. Raises ValueError for a layer without the method, for a method that changes
    parameters or buffers, and for nodes that are not valid ONNX, give another shape or other values than the layer;
    TypeError for another result; and what the method itself raises of the two.
    """
    write = getattr(layer, "onnx", None)
    if isinstance(layer, (FakeQuantize, QuantizationAware)):
        raise ValueError(
            f"{label}: expected a layer in float, got one of integers: export minidl.quantization.convert(model)"
        )
    if not callable(write):
        raise ValueError(
            f"{label}: expected a layer that has ONNX nodes, or one with a method onnx(writer, x), got one without it"
        )
    added: list[Node] = []
    state = copies([layer])
    try:
        try:
            end = write(NodeWriter(added, path, layer), x)
        finally:
            changed = _restore(layer, state)
        if changed:
            raise ValueError(f"onnx: expected a method that leaves the layer as it is, but it changed {changed}")
        if not isinstance(end, str):
            raise TypeError(f"onnx: expected the name of its output, got {end!r}")
        if end != x and all(end not in node.outputs for node in added):
            raise ValueError(f"onnx: expected the output of a node that it added, got {end!r}")
        graph = _graph_of(added, layer, path, x, end)
        model_file.check(graph)
        _check_values(graph, layer, state)
    except (TypeError, ValueError) as error:
        raise kind_of(error)(f"{label}: {error}") from error
    nodes += added
    return end


def _graph_of(nodes: list[Node], layer: Layer, path: str, x: str, end: str) -> Graph:
    """Returns the layer as a graph of its own, with x, its parameters and its buffers as inputs, in this order."""
    inputs = [ValueInfo(f"{path}{key[1:]}", layer.dtype, list(array.shape)) for key, array in tensors([layer]).items()]
    return Graph(
        [*nodes, Node("Identity", f"{path}.output", [end], [f"{path}.output"])],
        {},
        [ValueInfo(x, layer.dtype, ["N", *layer.in_shape]), *inputs],
        [ValueInfo(f"{path}.output", layer.dtype, ["N", *layer.out_shape])],
    )


def _restore(layer: Layer, state: dict[str, Array]) -> list[str]:
    """Returns the names of parameters and buffers that differ from the state, which become equal to it."""
    arrays = tensors([layer])
    changed = [key for key, array in arrays.items() if not np.array_equal(array, state[key], equal_nan=True)]
    for key in changed:
        arrays[key][...] = state[key]
    return [key.removeprefix("0.") for key in changed]


def _check_values(graph: Graph, layer: Layer, state: dict[str, Array]) -> None:
    """Raises ValueError unless the nodes give the layer's outputs, also for a batch of several examples.

    Values are not compared if the layer raises an error for random inputs, where its outputs are not finite, or if
    onnx's evaluator does not have an operator.
    """
    rng = np.random.default_rng(0)
    names = [value.name for value in graph.inputs]
    for n in BATCHES:
        x = rng.standard_normal((n, *layer.in_shape)).astype(layer.dtype)
        try:
            with np.errstate(all="ignore"):
                expected = _infer(layer, x.copy(), state)
        except Exception:  # it takes other inputs, such as indices
            return
        defined = np.isfinite(expected)
        try:
            found = model_file.evaluate(graph, dict(zip(names, [x, *state.values()], strict=True)))
        except ValueError:
            if defined.all():
                raise
            return
        if found is None:
            return
        batch = f"for a batch of {n} random example{'s' * (n > 1)}"
        if found.shape != expected.shape:
            raise ValueError(
                f"onnx: expected nodes with the layer's output {batch}, {expected.shape}, got {found.shape}"
            )
        with np.errstate(all="ignore"):
            error = np.abs(found - expected)[defined].max(initial=0)
        largest = np.abs(expected[defined]).max(initial=0)
        rounding = 8 * np.finfo(layer.dtype).eps * np.abs(x).max(initial=0)
        if not error <= TOLERANCE * largest + rounding:
            raise ValueError(
                f"onnx: expected nodes with the layer's values {batch}, got others: they differ by {error:.3g} "
                f"(the largest value is {largest:.3g})"
            )


def _infer(layer: Layer, x: Array, state: dict[str, Array]) -> Array:
    """Returns the layer's outputs in inference, by its forward in NumPy, or by a copy of it in a model."""
    if not layer.native and not isinstance(layer, Container):
        return np.asarray(layer.forward(x, False))
    copy = Sequential(from_spec(to_spec([layer])), None, 0, layer.dtype)
    copy.build_from(layer.in_shape, dict(state))
    return copy.predict(x)
