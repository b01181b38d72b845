"""Batch, group and layer norms."""

from __future__ import annotations

import numpy as np

from minidl.layers import BatchNorm1D, BatchNorm2D, GroupNorm, LayerNorm
from minidl.layers.base import Layer
from minidl.onnx.node_reader import Made, Operator, Read
from minidl.onnx.node_writer import Place, Write
from minidl.utils.validation import Shape


def affine(at: Place, shape: Shape) -> tuple[str, str]:
    """Weight and bias; ONNX knows no norm without."""
    weight = at.param("weight") or at.constant("ones", np.ones(shape))
    return weight, at.param("bias") or at.constant("zeros", np.zeros(shape))


def write_batch_norm(at: Place, x: str) -> str:
    """ONNX's momentum is the share of the old statistics."""
    statistics = at.param("running_mean"), at.param("running_var")
    options = {"epsilon": float(at["eps"]), "momentum": 1 - float(at["momentum"])}
    return at.node("BatchNormalization", x, *affine(at, at.in_shape[:1]), *statistics, **options)


def read_batch_norm(operator: Operator) -> list[Made]:
    operator.expect("training_mode", 0)
    if any(operator.node.outputs[1:]):
        operator.refuse("expected one output: with others it is the norm of training, by the statistics of a batch")
    if len(operator.shape) not in (1, 3):
        operator.refuse(f"expected vectors or images, got {operator.shape}")
    cls = BatchNorm1D if len(operator.shape) == 1 else BatchNorm2D
    momentum = round(1 - operator.attribute("momentum", 0.9), 7)  # as exact as a float32 tells it
    names = ("weight", "bias", "running_mean", "running_var")
    weights = {
        name: operator.weight(place, operator.shape[0], trained=place < 3) for place, name in enumerate(names, 1)
    }
    weights["num_batches_tracked"] = np.zeros((), operator.dtype)
    return [Made(cls(eps=operator.attribute("epsilon", 1e-5), momentum=momentum), weights)]


def write_group_norm(at: Place, x: str) -> str:
    """Its means are computed in float32, if it is not told to take float64; LayerNormalization cannot be told."""
    options = {"num_groups": int(at["groups"]), "epsilon": float(at["eps"])}
    precision = {"stash_type": 11} if at.dtype == "float64" else {}
    return at.node("GroupNormalization", x, *affine(at, at.in_shape[:1]), **options, **precision)


def read_group_norm(operator: Operator) -> list[Made]:
    """Before opset 21 weights belonged to groups, and ONNX did not say which channels are in one."""
    if operator.opset < 21:
        operator.refuse(f"expected opset 21 or later, got {operator.opset}")
    operator.attribute("stash_type", 1)  # in which precision means are computed
    return group_norm(operator, operator.attribute("num_groups", 0))


def read_instance_norm(operator: Operator) -> list[Made]:
    return group_norm(operator, operator.shape[0])


def group_norm(operator: Operator, groups: int) -> list[Made]:
    weights = {name: operator.weight(place, operator.shape[0]) for place, name in enumerate(("weight", "bias"), 1)}
    return [Made(GroupNorm(groups, eps=operator.attribute("epsilon", 1e-5)), weights)]


def write_layer_norm(at: Place, x: str) -> str:
    return at.node("LayerNormalization", x, *affine(at, at.in_shape), axis=1, epsilon=float(at["eps"]))


def read_layer_norm(operator: Operator) -> list[Made]:
    operator.attribute("stash_type", 1)
    if (axis := operator.axis(operator.attribute("axis", -1))) != 1:
        operator.refuse(f"expected axis=1, all numbers of an example of {operator.shape}, got {axis}")
    weights = {"weight": operator.weight(1, *operator.shape)}
    weights["bias"] = operator.weight(2, *operator.shape) if operator.given(2) else np.zeros_like(weights["weight"])
    return [Made(LayerNorm(eps=operator.attribute("epsilon", 1e-5)), weights)]


WRITE: dict[type[Layer], Write] = {
    BatchNorm1D: write_batch_norm,
    BatchNorm2D: write_batch_norm,
    GroupNorm: write_group_norm,
    LayerNorm: write_layer_norm,
}
READ: dict[str, Read] = {
    "BatchNormalization": read_batch_norm,
    "GroupNormalization": read_group_norm,
    "InstanceNormalization": read_instance_norm,
    "LayerNormalization": read_layer_norm,
}
