"""The model in a file that minidl exported: its layers are in the metadata, its state in the graph."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from minidl.engine.layer_list import build, from_config, unbuild
from minidl.engine.sizes import MOST_PIXELS, FreeShape, check_free_shape
from minidl.engine.state import check_dtype
from minidl.layers.base import Layer
from minidl.onnx.any_size import write_any_size
from minidl.onnx.exporting import COUNTERS_KEY, METADATA_KEY, write_layers
from minidl.onnx.file import model_file
from minidl.onnx.graph import Graph
from minidl.saving.safetensors_file import MAX_HEADER
from minidl.sequential import Sequential
from minidl.utils.arrays import Array, zeros_view
from minidl.utils.validation import Shape

DTYPES = ("float32", "float64")
MORE_LAYERS = 64  # than two for each node: dropout and the like have none, and many would take long to build


def restore_exported(graph: Graph) -> ImportedLayers | None:
    """Returns the model in the metadata if it computes the same as the graph, else None.

    The metadata is not trusted: exporting the model again must give the same graph. That is tried with zeros as its
    state, since the tensors of the graph are its state whatever their values are.
    """
    declared = graph.metadata.get(METADATA_KEY, "")
    if len(declared) > MAX_HEADER or len(graph.inputs) != 1:
        return None
    try:
        config = json.loads(declared)
        if config["dtype"] not in DTYPES or len(config["layers"]) > 2 * len(graph.nodes) + MORE_LAYERS:
            return None
        counters = {name: np.array(number, config["dtype"]) for name, number in config.pop(COUNTERS_KEY).items()}
        state = {**counters, **graph.tensors}
        zeros = {name: zeros_view(array.shape, str(array.dtype)) for name, array in state.items()}
        check_dtype(state, config["dtype"])
        limit, layers = config.get("max_pixels", MOST_PIXELS), from_config(config["layers"], {})
        model = Sequential(layers, None, config["seed"], config["dtype"], limit)
        model.lr_mult = config.get("lr_mult", 1.0)
        in_shape = check_free_shape("input_shape", config["input_shape"])
        again = _written(model, in_shape, zeros, graph.inputs[0].dtype)
        same = again.tensors.keys() == graph.tensors.keys() and serialize_nodes(again) == serialize_nodes(graph)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError):
        return None
    if not same:
        return None
    return ImportedLayers(list(layers), in_shape, model.dtype, state, model.seed, model.lr_mult, limit)


def _written(model: Sequential, shape: FreeShape, state: dict[str, Array], input_dtype: str) -> Graph:
    """Returns the graph of a model that is not built, of this state, which stays so."""
    write = partial(write_layers, input_dtype=input_dtype)
    if None not in shape:
        build(model.layers, cast(Shape, shape), model.dtype, model.seed, state)
        graph = write(model.layers)
        unbuild(model.layers)
        return graph
    model.build_from(shape, state)
    assert model.sizes is not None
    graph = write_any_size(model, model.sizes, write)
    model.discard()
    return graph


def serialize_nodes(graph: Graph) -> bytes:
    """Returns the graph as bytes without its tensors, and its metadata, which other programs may have changed."""
    return model_file.to_bytes(replace(graph, tensors={}, metadata={}))


@dataclass
class ImportedLayers:
    """The layers of a model that is not built yet, and its state by name."""

    layers: list[Layer]
    in_shape: FreeShape
    dtype: str
    state: dict[str, Array]
    seed: int = 0
    lr_mult: float = 1.0
    max_pixels: int = MOST_PIXELS

    def build(self) -> Sequential:
        """Returns the model, and empties `state`."""
        model = Sequential(self.layers, None, self.seed, self.dtype, self.max_pixels)
        model.lr_mult = self.lr_mult
        model.build_from(self.in_shape, self.state)
        return model
