"""Batch, group, layer and RMS norms."""

from __future__ import annotations

import math

import numpy as np

from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    GroupNorm,
    LayerNorm,
    LocalResponseNorm,
    Permute,
    Reshape,
    RMSNorm,
)
from minidl.layers.base import Layer
from minidl.onnx.node_reader import (
    LayerWithWeights,
    NodeReader,
    ReadFunction,
    broadcast_to_channels,
    per_channel_constant,
)
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape


def affine_inputs(writer: NodeWriter, shape: Shape) -> tuple[str, str]:
    """Returns the names of weight and bias, which ONNX's norms require."""
    weight = writer.param_name("weight") or writer.add_constant("ones", np.ones(shape))
    return weight, writer.param_name("bias") or writer.add_constant("zeros", np.zeros(shape))


def write_batch_norm(writer: NodeWriter, x: str) -> str:
    """Writes 1 - momentum, since ONNX's momentum is the weight of the old statistics."""
    statistics = writer.param_name("running_mean"), writer.param_name("running_var")
    options = {"epsilon": float(writer["eps"]), "momentum": 1 - float(writer["momentum"])}
    return writer.add_node("BatchNormalization", x, *affine_inputs(writer, writer.in_shape[:1]), *statistics, **options)


def read_batch_norm(reader: NodeReader) -> list[LayerWithWeights]:
    reader.expect_attribute("training_mode", 0)
    reader.expect_attribute("is_test", 1)  # before opset 7
    reader.expect_attribute("spatial", 1)  # before opset 9
    if any(reader.node.outputs[1:]):
        reader.refuse("expected one output, got more: that is training mode, with the statistics of the batch")
    if len(reader.shape) not in (1, 2, 3):
        reader.refuse(f"expected vectors, signals or images, got {reader.shape}")
    cls = BatchNorm2D if len(reader.shape) == 3 else BatchNorm1D
    momentum = round(1 - reader.attribute("momentum", 0.9), 7)  # the digits of a float32
    names = ("weight", "bias", "running_mean", "running_var")
    weights = {name: reader.weight(i, reader.shape[0], trainable=i < 3) for i, name in enumerate(names, 1)}
    weights["num_batches_tracked"], eps = np.zeros((), reader.dtype), reader.attribute("epsilon", 1e-5)
    if eps == 0 and not (weights["running_var"] > 0).all():
        reader.refuse("expected variances above 0 with epsilon=0, got 0 or less")
    return [LayerWithWeights(cls(eps=eps, momentum=momentum), weights)]


def write_group_norm(writer: NodeWriter, x: str) -> str:
    """Writes stash_type for float64, since means are float32 by default; LayerNormalization has no such option."""
    options = {"num_groups": int(writer["groups"]), "epsilon": float(writer["eps"])}
    precision = {"stash_type": 11} if writer.dtype == "float64" else {}
    return writer.add_node("GroupNormalization", x, *affine_inputs(writer, writer.in_shape[:1]), **options, **precision)


def read_group_norm(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads opset 21 and later; before, weights were per group, and ONNX did not define the channels of a group."""
    if reader.opset < 21:
        reader.refuse(f"expected opset 21 or later, got {reader.opset}")
    reader.attribute("stash_type", 1)  # precision of the means
    return make_group_norm(reader, reader.attribute("num_groups", 0))


def read_instance_norm(reader: NodeReader) -> list[LayerWithWeights]:
    return make_group_norm(reader, reader.shape[0])


def make_group_norm(reader: NodeReader, groups: int) -> list[LayerWithWeights]:
    """Returns a GroupNorm with the node's weights."""
    weights = {name: reader.weight(i, reader.shape[0]) for i, name in enumerate(("weight", "bias"), 1)}
    return [LayerWithWeights(GroupNorm(groups, eps=reader.attribute("epsilon", 1e-5)), weights)]


def write_layer_norm(writer: NodeWriter, x: str) -> str:
    """Writes LayerNormalization; over the channels of an image or signal, between Transposes: it wants them last."""
    over_channels, rank = writer["axis"] == "channels", len(writer.in_shape)
    affine = affine_inputs(writer, writer.in_shape[:1] if over_channels else writer.in_shape)
    eps = float(writer["eps"])
    if not over_channels or rank == 1:
        return writer.add_node("LayerNormalization", x, *affine, axis=1, epsilon=eps)
    x = writer.add_node("Transpose", x, perm=[0, *range(2, rank + 1), 1])
    y = writer.add_node("LayerNormalization", x, *affine, axis=-1, epsilon=eps)
    return writer.add_node("Transpose", y, perm=[0, rank, *range(1, rank)])


def read_layer_norm(reader: NodeReader) -> list[LayerWithWeights]:
    weight = _weight_of_last_axes(reader, 1)
    bias = _weight_of_last_axes(reader, 2) if reader.has_input(2) else np.zeros_like(weight)
    return _norm_of_last_axes(reader, LayerNorm, {"weight": weight, "bias": bias})


def read_rms_norm(reader: NodeReader) -> list[LayerWithWeights]:
    return _norm_of_last_axes(reader, RMSNorm, {"weight": _weight_of_last_axes(reader, 1)})


def _weight_of_last_axes(reader: NodeReader, index: int) -> Array:
    """Returns a weight of all axes from `axis` on, over which a layer or RMS norm is."""
    axis = reader.normalize_axis(reader.node.attributes.get("axis", -1))
    if axis == 0:
        reader.refuse("expected an axis after the batch, got 0")
    return reader.weight(index, *reader.shape[axis - 1 :])


def _norm_of_last_axes(
    reader: NodeReader, norm: type[LayerNorm] | type[RMSNorm], weights: dict[str, Array]
) -> list[LayerWithWeights]:
    """Returns a norm of the whole example; over its last axes, of a table whose columns become channels.

    The precision of the means, stash_type, may be any.
    """
    reader.attribute("axis", -1)
    reader.attribute("stash_type", 1)
    eps, n = reader.attribute("epsilon", 1e-5), weights["weight"].size
    if weights["weight"].shape == reader.shape:
        return [LayerWithWeights(norm(eps=eps), weights)]
    table = (math.prod(reader.shape) // n, n)
    flat = {name: array.reshape(n) for name, array in weights.items()}
    before, after = ([] if table == reader.shape else [LayerWithWeights(Reshape(s))] for s in (table, reader.shape))
    normed = LayerWithWeights(norm(eps=eps, axis="channels"), flat)
    return [*before, LayerWithWeights(Permute((1, 0))), normed, LayerWithWeights(Permute((1, 0))), *after]


def read_channel_norm(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a norm over the channels: of channels-last images whose Transposes are gone, or written as several nodes.

    `rank` is that of constants inside, and `view` the shape in which the means are subtracted.
    """
    reader.attribute("stash_type", 1)
    eps, rank = reader.attribute("epsilon", 1e-5), len(reader.shape) + 1
    if (axis := reader.normalize_axis(reader.attribute("axis", -1))) != 1:
        reader.refuse(f"expected a norm over axis 1, the channels of {reader.shape}, got {axis}")
    if (inner := reader.attribute("rank", 0)) > rank:
        reader.refuse(f"expected constants of at most {rank} axes, got {inner}")
    view, same = reader.attribute("view", ()), (1, *reader.shape[1:])
    if view and (view[0] not in (-1, reader.batch) or view[1:] != same):
        reader.refuse(f"expected means of {reader.shape} in shape {same} per example, got {view}")
    over = "channels" if rank > 2 else None
    if len(reader.node.inputs) == 1:
        return [LayerWithWeights(LayerNorm(eps=eps, affine=False, axis=over))]
    weights = {"weight": np.ones(reader.shape[:1], reader.dtype), "bias": np.zeros(reader.shape[:1], reader.dtype)}
    for i, name in enumerate(weights, 1):
        if reader.has_input(i):
            if (values := per_channel_constant(reader, i)) is None:
                reader.refuse(f"expected one number per channel of {reader.shape}, got {reader.constant(i).shape}")
            weights[name] = broadcast_to_channels(values, reader.shape[0])
    return [LayerWithWeights(LayerNorm(eps=eps, axis=over), weights)]


def write_rms_norm(writer: NodeWriter, x: str) -> str:
    """Writes the formula, since RMSNormalization is younger than the opset of exported files.

    With x * x, because onnxruntime fuses a Pow and what follows, and then ignores an eps in float64.
    """
    over_channels, rank = writer["axis"] == "channels", len(writer.in_shape)
    axes = writer.add_int_constant("axes", [1] if over_channels else range(1, rank + 1))
    mean = writer.add_node("ReduceMean", writer.add_node("Mul", x, x), axes, keepdims=1)
    shifted = writer.add_node("Add", mean, writer.add_constant("eps", writer["eps"]))
    y = writer.add_node("Div", x, writer.add_node("Sqrt", shifted))
    if not writer["affine"]:
        return y
    return writer.add_node("Mul", y, writer.column("weight") if over_channels else writer.param_name("weight"))


LRN = {"alpha": "alpha", "beta": "beta", "k": "bias"}  # names of arguments, in ONNX's attributes


def write_local_response_norm(writer: NodeWriter, x: str) -> str:
    """Writes an LRN of images, which onnxruntime wants: others are images of one column."""
    options = {name: float(writer[argument]) for argument, name in LRN.items()}
    if len(writer.in_shape) == 3:
        return writer.add_node("LRN", x, size=int(writer["size"]), **options)
    channels = writer.in_shape[0]
    x = writer.add_node("Reshape", x, writer.add_int_constant("image", (0, channels, -1, 1)))
    x = writer.add_node("LRN", x, size=int(writer["size"]), **options)
    return writer.add_node("Reshape", x, writer.add_int_constant("shape", (0, *writer.in_shape)))


def read_local_response_norm(reader: NodeReader) -> list[LayerWithWeights]:
    alpha, beta, k = (
        reader.attribute(name, default) for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    return [LayerWithWeights(LocalResponseNorm(reader.attribute("size", 0), alpha, beta, k))]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    BatchNorm1D: write_batch_norm,
    BatchNorm2D: write_batch_norm,
    GroupNorm: write_group_norm,
    LayerNorm: write_layer_norm,
    LocalResponseNorm: write_local_response_norm,
    RMSNorm: write_rms_norm,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {
    "BatchNormalization": read_batch_norm,
    "GroupNormalization": read_group_norm,
    "InstanceNormalization": read_instance_norm,
    "LRN": read_local_response_norm,
    "LayerNormalization": read_layer_norm,
    "RMSNormalization": read_rms_norm,
}
