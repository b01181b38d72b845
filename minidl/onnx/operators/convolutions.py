"""Conv2D, DepthwiseConv2D and ConvTranspose2D."""

from __future__ import annotations

from typing import Any

from minidl.layers import Conv2D, ConvTranspose2D, DepthwiseConv2D, Pad2D
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, NodeReader, ReadFunction
from minidl.onnx.node_writer import NodeWriter, WriteFunction
from minidl.onnx.operators.windows import collapse_pair, collapse_sides, int_pair, resolve_pads
from minidl.utils.validation import check_image_shape, check_pair, check_sides, resolve_padding


def write_conv(writer: NodeWriter, x: str) -> str:
    kernel, stride, dilation = (check_pair(name, writer[name]) for name in ("kernel_size", "stride", "dilation"))
    top, bottom, left, right = resolve_padding(
        writer["padding"], check_image_shape(writer.in_shape)[1:], kernel, stride, dilation
    )
    window = {"kernel_shape": kernel, "strides": stride, "pads": (top, left, bottom, right), "dilations": dilation}
    groups = writer.arguments.get("groups", writer.in_shape[0])
    return writer.add_node(
        "Conv", x, *filter(None, (writer.param_name("weight"), writer.param_name("bias"))), **window, group=groups
    )


def read_conv(reader: NodeReader) -> list[LayerWithWeights]:
    """Reads a DepthwiseConv2D if each channel is its own group, else a Conv2D; after a Pad2D if pads are asymmetric."""
    weight, groups = reader.weight(1, None, None, None, None), reader.attribute("group", 1)
    filters, _, *kernel = weight.shape
    kernel = reader.expect_attribute("kernel_shape", tuple(kernel))
    stride, dilation = int_pair(reader, "strides", 1), int_pair(reader, "dilations", 1)
    top, bottom, left, right = pads = resolve_pads(reader, kernel, stride, dilation)
    before: list[LayerWithWeights] = []
    padding: Any = "same"
    if (top, left) == (bottom, right):
        padding = collapse_pair((top, left))
    elif pads != resolve_padding("same", check_image_shape(reader.shape)[1:], kernel, stride, dilation):
        before, padding = [LayerWithWeights(Pad2D(pads))], 0
    use_bias, weights = reader.has_input(2), {"weight": weight}
    if use_bias:
        weights["bias"] = reader.weight(2, filters)
    window: dict[str, Any] = {
        "stride": collapse_pair(stride),
        "padding": padding,
        "dilation": collapse_pair(dilation),
        "use_bias": use_bias,
    }
    if groups == reader.shape[0] > 1:
        return [
            *before,
            LayerWithWeights(
                DepthwiseConv2D(collapse_pair(kernel), depth_multiplier=filters // groups, **window), weights
            ),
        ]
    return [*before, LayerWithWeights(Conv2D(filters, collapse_pair(kernel), groups=groups, **window), weights)]


def write_conv_transpose(writer: NodeWriter, x: str) -> str:
    kernel, stride, dilation = (check_pair(name, writer[name]) for name in ("kernel_size", "stride", "dilation"))
    top, bottom, left, right = check_sides("padding", writer["padding"])
    extra = check_pair("output_padding", writer["output_padding"], minimum=0)
    window = {"kernel_shape": kernel, "strides": stride, "pads": (top, left, bottom, right), "dilations": dilation}
    weights = filter(None, (writer.param_name("weight"), writer.param_name("bias")))
    return writer.add_node("ConvTranspose", x, *weights, **window, output_padding=extra, group=writer["groups"])


def read_conv_transpose(reader: NodeReader) -> list[LayerWithWeights]:
    weight, groups = reader.weight(1, reader.shape[0], None, None, None), reader.attribute("group", 1)
    kernel, filters = reader.expect_attribute("kernel_shape", weight.shape[2:]), weight.shape[1] * groups
    reader.expect_attribute("auto_pad", "NOTSET")
    stride, dilation = int_pair(reader, "strides", 1), int_pair(reader, "dilations", 1)
    sides = resolve_pads(reader, kernel, stride, dilation)
    weights = {"weight": weight}
    if reader.has_input(2):
        weights["bias"] = reader.weight(2, filters)
    window: dict[str, Any] = {
        "stride": collapse_pair(stride),
        "padding": collapse_sides(sides),
        "dilation": collapse_pair(dilation),
    }
    window["output_padding"] = collapse_pair(int_pair(reader, "output_padding", 0))
    return [
        LayerWithWeights(
            ConvTranspose2D(filters, collapse_pair(kernel), **window, groups=groups, use_bias=reader.has_input(2)),
            weights,
        )
    ]


WRITE_FUNCTIONS: dict[type[Layer], WriteFunction] = {
    Conv2D: write_conv,
    ConvTranspose2D: write_conv_transpose,
    DepthwiseConv2D: write_conv,
}
READ_FUNCTIONS: dict[str, ReadFunction] = {"Conv": read_conv, "ConvTranspose": read_conv_transpose}
