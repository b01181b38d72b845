"""The QuantizedModel in a file that minidl exported: its program is in the metadata, and in constants of the graph.

The metadata has what the graph does not say: the scales in float64, multipliers and shifts, and the layout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minidl.onnx.constant_folding import tensors_of_nodes
from minidl.onnx.exporting import INTEGERS_KEY, write_layers
from minidl.onnx.graph import Graph
from minidl.onnx.restoring import serialize_nodes
from minidl.quantization import QuantizedModel, program_file
from minidl.quantization import program as p
from minidl.quantization.program import LOW
from minidl.saving.safetensors_file import MAX_HEADER
from minidl.sequential import Sequential
from minidl.utils.arrays import Array

CONFIG = {"program", "arrays", "float_layers", "input_shape", "output_shape"}


def restore_integers(graph: Graph) -> QuantizedModel | None:
    """Returns the model in the metadata if it computes the same as the graph, else None.

    The metadata is not trusted: exporting the model again must give the same graph, with its constants.
    """
    declared = graph.metadata.get(INTEGERS_KEY, "")
    if not declared or len(declared) > MAX_HEADER or len(graph.inputs) != 1:
        return None
    try:
        config = json.loads(declared)
        if set(config) != CONFIG:
            return None
        program = program_file.decode(config["program"], _arrays(graph, config))
        in_shape, out_shape = (program_file.tupled(config[name]) for name in ("input_shape", "output_shape"))
        model = QuantizedModel(program, in_shape, out_shape, _float_layers(graph, config["float_layers"]))
        again = write_layers(model.layers, graph.inputs[0].dtype)
        same = again.tensors.keys() == graph.tensors.keys() and serialize_nodes(again) == serialize_nodes(graph)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError):
        return None
    return model if same else None


def _arrays(graph: Graph, config: Mapping[str, Any]) -> dict[str, Array]:
    """Returns the arrays of a program by name, such as "0.weights", in their shapes."""
    held = dict(tensors_of_nodes(graph.nodes))
    found = {name: np.array(numbers, np.int32) for name, numbers in config["arrays"].items()}
    for name in ("input.factors", "input.offsets"):
        found[name] = held[f"0.{name}"].reshape(-1)
    values = [tuple(value[:3]) for value in config["program"]["values"]]
    for k, operation in enumerate(config["program"]["operations"]):
        kind, shape = program_file.KINDS[operation["kind"]], values[operation["inputs"][0]]
        if kind is p.SumOfProducts:
            weights = held[f"0.{k}.weights"]
            found[f"{k}.weights"] = weights.reshape(len(weights), *shape) if weights.ndim == 2 else weights
            found[f"{k}.biases"] = held[f"0.{k}.biases"]
        elif kind is p.Lookup:
            found[f"{k}.table"] = (held[f"0.{k}.table"].astype(np.int16) + LOW).astype(np.int8)
        elif kind is p.Rearrange:
            index = held.get(f"0.{k}.index")
            size = _size(values[k + 1])
            found[f"{k}.index"] = np.arange(size, dtype=np.int32) if index is None else index.astype(np.int32)
    return found


def _size(shape: Sequence[int]) -> int:
    """Returns the number of elements, of which a copy in order has no index; raises ValueError if they are too many."""
    if not 0 < (size := math.prod(shape)) <= program_file.MOST_NUMBERS:
        raise ValueError(f"expected at most {program_file.MOST_NUMBERS} numbers in a value, got {size}")
    return size


def _float_layers(graph: Graph, config: Any) -> Sequential | None:
    """Returns the layers after the integers, whose parameters have the numbers of the places that they had."""
    if config is None:
        return None
    state = {}
    for name, array in graph.tensors.items():
        place, _, own = name.partition(".")
        state[f"{int(place) - 1}.{own}"] = array
    return Sequential.from_config(config, state, {})
