"""Convolutions over images and signals: Conv2D, DepthwiseConv2D, ConvTranspose2D, and those of one dimension."""

from __future__ import annotations

import math
from typing import Any

from minidl.layers import (
    Conv1D,
    Conv2D,
    ConvTranspose1D,
    ConvTranspose2D,
    DepthwiseConv1D,
    DepthwiseConv2D,
    Pad2D,
)
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.windows import (
    collapse,
    collapse_sides,
    int_axes,
    layer_axes,
    layer_sides,
    pads_attribute,
    resolve_layer_padding,
    resolve_pads,
)
from minidl.utils.validation import Shape


def write_conv(writer: NodeWriter, x: str) -> str:
    kernel, stride, dilation = (layer_axes(writer, name) for name in ("kernel_size", "stride", "dilation"))
    sides = resolve_layer_padding(writer["padding"], writer.in_shape, kernel, stride, dilation)
    window = {"kernel_shape": kernel, "strides": stride, "pads": pads_attribute(sides), "dilations": dilation}
    groups = writer.arguments.get("groups", writer.in_shape[0])
    return writer.add_node(
        "Conv", x, *filter(None, (writer.param_name("weight"), writer.param_name("bias"))), **window, group=groups
    )


def read_conv(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a depthwise layer if each channel is its own group, else a plain one; after a Pad2D if need be."""
    weight, groups = reader.weight(1, None, None, *(None,) * (len(reader.shape) - 1)), reader.attribute("group", 1)
    filters, _, *kernel = weight.shape
    kernel = reader.expect_attribute("kernel_shape", tuple(kernel))
    stride, dilation = int_axes(reader, "strides", 1), int_axes(reader, "dilations", 1)
    sides = resolve_pads(reader, kernel, stride, dilation)
    before, padding = fit_padding(reader.shape, kernel, stride, dilation, sides)
    use_bias, weights = reader.has_input(2), {"weight": weight}
    if use_bias:
        weights["bias"] = reader.weight(2, filters)
    window: dict[str, Any] = {
        "stride": collapse(stride),
        "padding": padding,
        "dilation": collapse(dilation),
        "use_bias": use_bias,
    }
    size, is_signal = collapse(kernel), len(kernel) == 1
    layer: Layer
    if groups == reader.shape[0] > 1:
        depthwise = DepthwiseConv1D if is_signal else DepthwiseConv2D
        layer = depthwise(size, depth_multiplier=filters // groups, **window)
    else:
        layer = (Conv1D if is_signal else Conv2D)(filters, size, groups=groups, **window)
    return [*before, LayerWithWeights(layer, weights)]


def fit_padding(
    shape: Shape, kernel: Shape, stride: Shape, dilation: Shape, sides: Shape
) -> tuple[list[LayerWithWeights], Any]:
    """Returns the padding argument that means these sides, after a Pad2D for an image if there is none."""
    if sides[::2] == sides[1::2]:
        return [], collapse_sides(sides)
    words = ("same", "causal") if len(shape) == 2 else ("same",)
    for word in words:
        if sides == resolve_layer_padding(word, shape, kernel, stride, dilation):
            return [], word
    return ([], sides) if len(shape) == 2 else ([LayerWithWeights(Pad2D((sides[0], sides[1], sides[2], sides[3])))], 0)


def read_tensordot(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a product over the last axis of channels-last images, whose Transposes are gone: a kernel of 1.

    Refuses other shapes than those of a matrix with a row per pixel, and of the product, in the axes of the file.
    """
    axes = reader.attribute("axes", ())
    weight = reader.weight(1, reader.shape[0], None).T
    filters, channels = weight.shape
    pixels, sizes = math.prod(reader.shape[1:]), [reader.shape[axis - 1] for axis in axes[1:-1]]
    for i, rows, rest in ((2, pixels, [channels]), (3, 1, [*sizes, filters])):
        for batch, found in reader.constants_by_batch(i).items():
            shape, expected = found.tolist(), [batch * rows, *rest]
            if shape not in (expected, [-1, *rest]):
                reader.refuse(f"expected a product over the last axis, with shape {expected}, got {shape}")
    conv = Conv1D if len(reader.shape) == 2 else Conv2D
    kernel = weight.reshape(*weight.shape, *(1,) * (len(reader.shape) - 1))
    return [LayerWithWeights(conv(filters, 1, use_bias=False), {"weight": kernel})]


def write_conv_transpose(writer: NodeWriter, x: str) -> str:
    names = ("kernel_size", "stride", "dilation", "output_padding")
    kernel, stride, dilation, extra = (layer_axes(writer, name) for name in names)
    pads = pads_attribute(layer_sides(writer))
    window = {"kernel_shape": kernel, "strides": stride, "pads": pads, "dilations": dilation}
    weights = filter(None, (writer.param_name("weight"), writer.param_name("bias")))
    return writer.add_node("ConvTranspose", x, *weights, **window, output_padding=extra, group=writer["groups"])


def read_conv_transpose(reader: NodeReader) -> list[LayerWithWeights]:
    axes = len(reader.shape) - 1
    weight, groups = reader.weight(1, reader.shape[0], None, *(None,) * axes), reader.attribute("group", 1)
    kernel, filters = reader.expect_attribute("kernel_shape", weight.shape[2:]), weight.shape[1] * groups
    reader.expect_attribute("auto_pad", "NOTSET")
    stride, dilation = int_axes(reader, "strides", 1), int_axes(reader, "dilations", 1)
    sides = resolve_pads(reader, kernel, stride, dilation)
    weights = {"weight": weight}
    if reader.has_input(2):
        weights["bias"] = reader.weight(2, filters)
    window: dict[str, Any] = {
        "stride": collapse(stride),
        "padding": collapse_sides(sides),
        "dilation": collapse(dilation),
        "output_padding": collapse(int_axes(reader, "output_padding", 0)),
    }
    transposed = ConvTranspose1D if axes == 1 else ConvTranspose2D
    layer = transposed(filters, collapse(kernel), **window, groups=groups, use_bias=reader.has_input(2))
    return [LayerWithWeights(layer, weights)]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    Conv1D: write_conv,
    Conv2D: write_conv,
    ConvTranspose1D: write_conv_transpose,
    ConvTranspose2D: write_conv_transpose,
    DepthwiseConv1D: write_conv,
    DepthwiseConv2D: write_conv,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {"Conv": read_conv, "ConvTranspose": read_conv_transpose}
