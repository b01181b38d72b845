"""The graph of a model of images of any size: that of several sizes, if these differ in nothing but sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from minidl.engine.layer_paths import LayerPath, layer_paths
from minidl.engine.sizes import Sizes
from minidl.layers.base import Layer
from minidl.layers.container import title
from minidl.onnx.graph import Graph, Node, ValueInfo
from minidl.sequential import Sequential
from minidl.utils.validation import Shape

AXES = {1: ("length",), 2: ("height", "width")}  # names of free sizes in the file
MORE = ((0, 0), (64, 128), (1, 3), (2, 1), (3, 2), (7, 10), (16, 8))  # pixels more than the first size


def write_any_size(model: Sequential, sizes: Sizes[Sequential], write: Callable[[Sequence[Layer]], Graph]) -> Graph:
    """Returns the graph of a model of any size, with names for the sizes that are free.

    Raises ValueError, naming the layer, if its nodes are not the same for all sizes that the model can take.
    """
    models = list(_models(sizes))
    first, *others = (write(each.layers) for each in models)
    paths = layer_paths(model.layers)
    for other in others:
        pairs = itertools.zip_longest(first.nodes, other.nodes)
        first.nodes = [_common(a, b, paths, model) for a, b in pairs]
        for name, tensor in first.tensors.items():
            if not np.array_equal(tensor, other.tensors[name]):
                raise ValueError(f"{_refused(model)}, got {name!r}, which depends on the size")
    free = AXES[len(sizes.declared) - 1]
    inputs = [replace(first.inputs[0], shape=[first.inputs[0].shape[0], *_named(sizes.declared, free)])]  # type: ignore[index]
    return replace(first, inputs=inputs, outputs=[_output(value, model, models, free) for value in first.outputs])


def _models(sizes: Sizes[Sequential]) -> Any:
    """Yields the models of several sizes, of those that the layers can take."""
    for more in MORE:
        shape = tuple(sizes.first + more[i % 2] if size is None else size for i, size in enumerate(sizes.declared))
        try:
            yield sizes.at(shape)
        except ValueError:
            continue


def _common(node: Node | None, other: Node | None, paths: dict[str, LayerPath], model: Sequential) -> Node:
    """Returns a node that serves two sizes; raises ValueError, naming its layer, if there is none."""
    known = node or other
    assert known is not None
    path = known.name
    while path and path not in paths:
        path = path.rpartition(".")[0]
    layer = paths[path][-1] if path else None
    refused = ValueError(f"{_refused(model)}, got layer {f'{path}, {title(layer)}' if layer is not None else known}")
    if node is None or other is None:
        raise refused
    a, b = node.attributes, other.attributes
    same = (node.op, node.name, node.inputs, node.outputs) == (other.op, other.name, other.inputs, other.outputs)
    differ = {name for name in a.keys() | b.keys() if not _equal(a.get(name), b.get(name))}
    if same and not differ:
        return node
    dilated = max(a.get("dilations", (1,))) > 1  # which onnxruntime refuses with auto_pad
    if same and differ <= {"pads", "auto_pad"} and getattr(layer, "padding", None) == "same" and not dilated:
        return replace(node, attributes={k: v for k, v in a.items() if k != "pads"} | {"auto_pad": "SAME_UPPER"})
    raise refused


def _equal(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other))


def _refused(model: Sequential) -> str:
    shape = (model.input_shape[0], *[128] * (len(model.input_shape) - 1))
    return f"expected layers whose ONNX nodes serve images of any size, or a model of one size, model.at({shape})"


def _named(shape: Sequence[int | None], names: Sequence[str]) -> list[int | str | None]:
    return [shape[0], *(name if size is None else size for size, name in zip(shape[1:], names, strict=True))]


def _output(value: ValueInfo, model: Sequential, models: Sequence[Sequential], names: Sequence[str]) -> ValueInfo:
    """Returns an output with names for its free sizes: those of the input's axes where they are always equal to it."""
    assert value.shape is not None
    shape = model.output_shape[value.name] if isinstance(model.output_shape, dict) else model.output_shape
    found: list[int | str | None] = [value.shape[0]]
    for axis, size in enumerate(shape):
        if size is not None:
            found.append(size)
            continue
        equal = 0 < axis <= len(names) and all(_axis(each, value.name, axis) for each in models)
        found.append(names[axis - 1] if equal else f"{value.name}_{axis}")
    return replace(value, shape=found)


def _axis(model: Sequential, name: str, axis: int) -> bool:
    """Whether a size of an output is that of the input."""
    outputs: Shape | dict[str, Shape] = model.output_shape
    return (outputs[name] if isinstance(outputs, dict) else outputs)[axis] == model.input_shape[axis]
