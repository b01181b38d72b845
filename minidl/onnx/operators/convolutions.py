"""Conv2D, DepthwiseConv2D and ConvTranspose2D."""

from __future__ import annotations

from typing import Any

from minidl.layers import Conv2D, ConvTranspose2D, DepthwiseConv2D, Pad2D
from minidl.layers.base import Layer
from minidl.onnx.node_reader import Made, Operator, Read
from minidl.onnx.node_writer import Place, Write
from minidl.onnx.operators.windows import sides_around, told, whole_pair
from minidl.utils.validation import check_image_shape, check_pair, resolve_padding


def write_conv(at: Place, x: str) -> str:
    kernel, stride, dilation = (check_pair(name, at[name]) for name in ("kernel_size", "stride", "dilation"))
    top, bottom, left, right = resolve_padding(
        at["padding"], check_image_shape(at.in_shape)[1:], kernel, stride, dilation
    )
    window = {"kernel_shape": kernel, "strides": stride, "pads": (top, left, bottom, right), "dilations": dilation}
    groups = at.arguments.get("groups", at.in_shape[0])
    return at.node("Conv", x, *filter(None, (at.param("weight"), at.param("bias"))), **window, group=groups)


def read_conv(operator: Operator) -> list[Made]:
    """A DepthwiseConv2D where each channel is by itself, else a Conv2D; behind a Pad2D where sides differ."""
    weight, groups = operator.weight(1, None, None, None, None), operator.attribute("group", 1)
    filters, _, *kernel = weight.shape
    kernel = operator.expect("kernel_shape", tuple(kernel))
    stride, dilation = whole_pair(operator, "strides", 1), whole_pair(operator, "dilations", 1)
    top, bottom, left, right = sides = sides_around(operator, kernel, stride, dilation)
    front: list[Made] = []
    padding: Any = "same"
    if (top, left) == (bottom, right):
        padding = told((top, left))
    elif sides != resolve_padding("same", check_image_shape(operator.shape)[1:], kernel, stride, dilation):
        front, padding = [Made(Pad2D(sides))], 0
    use_bias, weights = operator.given(2), {"weight": weight}
    if use_bias:
        weights["bias"] = operator.weight(2, filters)
    window: dict[str, Any] = {
        "stride": told(stride),
        "padding": padding,
        "dilation": told(dilation),
        "use_bias": use_bias,
    }
    if groups == operator.shape[0] > 1:
        return [*front, Made(DepthwiseConv2D(told(kernel), depth_multiplier=filters // groups, **window), weights)]
    return [*front, Made(Conv2D(filters, told(kernel), groups=groups, **window), weights)]


def write_conv_transpose(at: Place, x: str) -> str:
    kernel, stride, dilation = (check_pair(name, at[name]) for name in ("kernel_size", "stride", "dilation"))
    padding, extra = (
        check_pair("padding", at["padding"], least=0),
        check_pair("output_padding", at["output_padding"], least=0),
    )
    window = {"kernel_shape": kernel, "strides": stride, "pads": padding * 2, "dilations": dilation}
    weights = filter(None, (at.param("weight"), at.param("bias")))
    return at.node("ConvTranspose", x, *weights, **window, output_padding=extra, group=at["groups"])


def read_conv_transpose(operator: Operator) -> list[Made]:
    weight, groups = operator.weight(1, operator.shape[0], None, None, None), operator.attribute("group", 1)
    kernel, filters = operator.expect("kernel_shape", weight.shape[2:]), weight.shape[1] * groups
    operator.expect("auto_pad", "NOTSET")
    stride, dilation = whole_pair(operator, "strides", 1), whole_pair(operator, "dilations", 1)
    top, bottom, left, right = sides_around(operator, kernel, stride, dilation)
    if (top, left) != (bottom, right):
        operator.refuse(f"expected as many pads on both sides, got {[top, left, bottom, right]}")
    weights = {"weight": weight}
    if operator.given(2):
        weights["bias"] = operator.weight(2, filters)
    window: dict[str, Any] = {"stride": told(stride), "padding": told((top, left)), "dilation": told(dilation)}
    window["output_padding"] = told(whole_pair(operator, "output_padding", 0))
    return [Made(ConvTranspose2D(filters, told(kernel), **window, groups=groups, use_bias=operator.given(2)), weights)]


WRITE: dict[type[Layer], Write] = {
    Conv2D: write_conv,
    ConvTranspose2D: write_conv_transpose,
    DepthwiseConv2D: write_conv,
}
READ: dict[str, Read] = {"Conv": read_conv, "ConvTranspose": read_conv_transpose}
