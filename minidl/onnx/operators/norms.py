"""Batch, group and layer norms."""

from __future__ import annotations

import numpy as np

from minidl.layers import BatchNorm1D, BatchNorm2D, GroupNorm, LayerNorm
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.utils.validation import Shape


def affine(writer: NodeWriter, shape: Shape) -> tuple[str, str]:
    """Returns the names of weight and bias, which ONNX requires; ones and zeros if the layer has none."""
    weight = writer.param_name("weight") or writer.add_constant("ones", np.ones(shape))
    return weight, writer.param_name("bias") or writer.add_constant("zeros", np.zeros(shape))


def write_batch_norm(writer: NodeWriter, x: str) -> str:
    """Writes BatchNormalization; ONNX's momentum is the weight of the old statistics, 1 - minidl's."""
    statistics = writer.param_name("running_mean"), writer.param_name("running_var")
    options = {"epsilon": float(writer["eps"]), "momentum": 1 - float(writer["momentum"])}
    return writer.add_node("BatchNormalization", x, *affine(writer, writer.in_shape[:1]), *statistics, **options)


def read_batch_norm(reader: NodeReader) -> list[LayerWithWeights]:
    reader.expect("training_mode", 0)
    if any(reader.node.outputs[1:]):
        reader.refuse("expected one output: several mean training mode, with the statistics of the batch")
    if len(reader.shape) not in (1, 3):
        reader.refuse(f"expected vectors or images, got {reader.shape}")
    cls = BatchNorm1D if len(reader.shape) == 1 else BatchNorm2D
    momentum = round(1 - reader.attribute("momentum", 0.9), 7)  # float32 has 7 digits
    names = ("weight", "bias", "running_mean", "running_var")
    weights = {name: reader.weight(place, reader.shape[0], trained=place < 3) for place, name in enumerate(names, 1)}
    weights["num_batches_tracked"] = np.zeros((), reader.dtype)
    return [LayerWithWeights(cls(eps=reader.attribute("epsilon", 1e-5), momentum=momentum), weights)]


def write_group_norm(writer: NodeWriter, x: str) -> str:
    """Writes GroupNormalization. stash_type makes its means float64, an option that LayerNormalization lacks."""
    options = {"num_groups": int(writer["groups"]), "epsilon": float(writer["eps"])}
    precision = {"stash_type": 11} if writer.dtype == "float64" else {}
    return writer.add_node("GroupNormalization", x, *affine(writer, writer.in_shape[:1]), **options, **precision)


def read_group_norm(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads GroupNormalization since opset 21: before, weights belonged to groups, whose channels were not defined."""
    if reader.opset < 21:
        reader.refuse(f"expected opset 21 or later, got {reader.opset}")
    reader.attribute("stash_type", 1)  # the precision of the means
    return group_norm(reader, reader.attribute("num_groups", 0))


def read_instance_norm(reader: NodeReader) -> list[LayerWithWeights]:
    return group_norm(reader, reader.shape[0])


def group_norm(reader: NodeReader, groups: int) -> list[LayerWithWeights]:
    weights = {name: reader.weight(place, reader.shape[0]) for place, name in enumerate(("weight", "bias"), 1)}
    return [LayerWithWeights(GroupNorm(groups, eps=reader.attribute("epsilon", 1e-5)), weights)]


def write_layer_norm(writer: NodeWriter, x: str) -> str:
    return writer.add_node(
        "LayerNormalization", x, *affine(writer, writer.in_shape), axis=1, epsilon=float(writer["eps"])
    )


def read_layer_norm(reader: NodeReader) -> list[LayerWithWeights]:
    reader.attribute("stash_type", 1)
    if (axis := reader.normalize_axis(reader.attribute("axis", -1))) != 1:
        reader.refuse(f"expected axis=1, all numbers of an example of {reader.shape}, got {axis}")
    weights = {"weight": reader.weight(1, *reader.shape)}
    weights["bias"] = reader.weight(2, *reader.shape) if reader.has_input(2) else np.zeros_like(weights["weight"])
    return [LayerWithWeights(LayerNorm(eps=reader.attribute("epsilon", 1e-5)), weights)]


WRITE: dict[type[Layer], WriteFunction] = {
    BatchNorm1D: write_batch_norm,
    BatchNorm2D: write_batch_norm,
    GroupNorm: write_group_norm,
    LayerNorm: write_layer_norm,
}
READ: dict[str, ReadFunction] = {
    "BatchNormalization": read_batch_norm,
    "GroupNormalization": read_group_norm,
    "InstanceNormalization": read_instance_norm,
    "LayerNormalization": read_layer_norm,
}
