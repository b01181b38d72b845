"""Integers of other programs: a net of floats with a FakeQuantize for each pair of the file, as a QuantizedModel.

Scales, zero points, weights and biases are those of the file; the arithmetic is that of a Program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minidl.layers import MaxPool1D, MaxPool2D
from minidl.layers.base import Layer
from minidl.layers.fake_quantize import FakeQuantize
from minidl.onnx.constant_folding import Constants
from minidl.onnx.graph import Node, refuse
from minidl.onnx.passes.quantization import DEQUANTIZE
from minidl.quantization import QuantizedModel
from minidl.quantization.conversion import convert, quantizations_of
from minidl.quantization.graph import Integers, Product, in_order
from minidl.quantization.rules import TRANSLATIONS
from minidl.quantization.rules.copies import COPIES
from minidl.quantization.rules.products import PRODUCTS
from minidl.quantization.translation import CONTAINERS, Origin, translate
from minidl.sequential import Sequential
from minidl.utils.text import escape

Sources = Mapping[Layer, tuple[Node, Sequence[str]]]  # of each layer: its node, and the constants that it has learned


def quantized_model(model: Sequential, sources: Sources, constants: Constants) -> QuantizedModel:
    """Returns the integers of a model whose values are rounded by FakeQuantize layers, and float layers after them.

    Raises ValueError, naming the node, for what integers cannot compute, or not with the file's scales.
    """
    last, end = _integer_part(model.layers, sources)
    origins = {layer: Origin(_label(node)) for layer, (node, _) in sources.items()}
    for leaf in _leaves(model.layers[: last + 1]):
        if type(leaf) in PRODUCTS:
            node, names = sources[leaf]
            origins[leaf] = Origin(_label(node), _integers(leaf, node, names, constants))
    nodes = in_order(translate(model.manual.network, model.layers[: last + 1], None, origins))
    read = {x for node in nodes if isinstance(node, Product) for x in node.inputs}
    made = quantizations_of(nodes, {}, "QuantizeLinear")
    program, _ = convert(nodes, made, {x: np.zeros(x.shape) for x in read})
    after = model[last + 1 : end] if last + 1 < end else None
    return QuantizedModel(program, model.input_shape, model.layers[last].out_shape, after)


def _label(node: Node) -> str:
    return escape(f"{node.name or node.origin or node.outputs[0]}, {node.operator}")


def _leaves(layers: Sequence[Layer]) -> list[Layer]:
    return [leaf for layer in layers for leaf in layer.leaves()]


def _is_float(layer: Layer) -> bool:
    """True if integers cannot compute a layer."""
    return type(layer) not in TRANSLATIONS and type(layer) not in CONTAINERS


def _integer_part(layers: Sequence[Layer], sources: Sources) -> tuple[int, int]:
    """Returns the index of the last layer of the integers, and the end of the float layers after it.

    That is the last FakeQuantize before any float layer, or a copy or maximum after it. A FakeQuantize after the float
    layers is left out.
    """
    if layers[-1].ends_model:
        raise ValueError("expected one output of a net of integers, got several: name one by `outputs`")
    first = next((i for i, layer in enumerate(layers) if any(map(_is_float, layer.leaves()))), len(layers))
    last = max((i for i, layer in enumerate(layers[:first]) if isinstance(layer, FakeQuantize)), default=-1)
    while 0 <= last < first - 1 and isinstance(layers[last + 1], (*COPIES, MaxPool1D, MaxPool2D)):
        last += 1
    end = max(len(layers) - isinstance(layers[-1], FakeQuantize), last + 1)
    later = [leaf for leaf in _leaves(layers[last + 1 : end]) if isinstance(leaf, FakeQuantize)]
    if later:
        for leaf in filter(_is_float, _leaves(layers[first:])):
            refuse(sources[leaf][0], "expected an operator that integers can compute, or one after all quantized ones")
        refuse(sources[later[-1]][0], "expected a pair after each operator that follows it, got floats")
    if last < 0:
        raise ValueError("expected a QuantizeLinear of a value that all later ones are computed from, got none")
    return last, end


def _integers(layer: Layer, node: Node, names: Sequence[str], constants: Constants) -> Integers:
    """Returns the integers that the constants of a layer are dequantized from."""
    dequantized = {other.outputs[0]: other for other in constants.nodes if other.op == DEQUANTIZE}
    scales = biases = None
    outputs = len(layer.params["weight"].value)
    for origin in (constants.origin(name) for name in names):
        if origin not in dequantized:
            continue
        numbers, scale, *zero_point = (constants[name] for name in dequantized[origin].inputs if name)
        if numbers.dtype == np.int32 and numbers.size == outputs:
            biases = numbers.reshape(-1).astype(np.int64) - (zero_point[0].astype(np.int64) if zero_point else 0)
        else:
            if numbers.dtype not in (np.int8, np.uint8):
                refuse(node, f"expected weights of int8 or uint8, got {numbers.dtype}")
            if scale.size not in (1, outputs):
                refuse(node, f"expected one scale of its weights, or {outputs}, got shape {scale.shape}")
            scales = np.broadcast_to(scale.reshape(-1).astype(np.float64), (outputs,))
            if (wrong := scales[~((scales > 0) & (scales < np.inf))]).size:
                refuse(node, f"expected positive scales of its weights, got {wrong[0]}")
    if scales is None:
        refuse(node, "expected weights of int8 or uint8, got floats")
    return Integers(scales, biases)
