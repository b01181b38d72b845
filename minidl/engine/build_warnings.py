"""Warnings when a model is built: arguments that are valid, but look as if another library's meaning was intended."""

from __future__ import annotations

from collections.abc import Sequence

from minidl.engine import channel_order
from minidl.layers.base import Layer
from minidl.layers.conv2d import Conv2D
from minidl.utils.hints import warn_caller
from minidl.utils.validation import Shape

USUAL_KERNELS = (3, 5, 7)
MIN_FILTERS = 6  # that of LeNet-5


def warn(layers: Sequence[tuple[Layer, str]], shape: Shape) -> None:
    """Warns, at the line outside of minidl, of channels last, and of a first convolution in PyTorch's order.

    layers: of a model, each with what errors call it, built up to a layer that fails; shape: of its input.
    """
    channel_order.warn(layers, shape)
    first = next(((layer, name) for layer, name in layers if isinstance(layer, Conv2D)), None)
    if first is not None and has_pytorchs_order(first[0], shape):
        (conv, name), does = first, "filters of {0}x{0} and stride"
        filters, kernel, stride = conv.filters, conv.kernel_size, conv.stride
        means = f"Conv2D({filters}, {kernel}, {stride}) has {filters} {does.format(kernel)} {stride}"
        warn_caller(f"{name}: {means}; PyTorch's order (in, out, kernel) is here Conv2D({kernel}, {stride})")


def has_pytorchs_order(conv: Conv2D, shape: Shape) -> bool:
    """True if a convolution of an input (c, h, w) looks like PyTorch's Conv2d(c, filters, kernel_size).

    >>> has_pytorchs_order(Conv2D(3, 16, 3), (3, 32, 32)), has_pytorchs_order(Conv2D(16, 3, 2), (3, 32, 32))
    (True, False)
    """
    kernel, stride = conv.kernel_size, conv.stride
    if type(kernel) is not int or type(stride) is not int or len(shape) != 3 or conv.filters != shape[0]:
        return False
    return stride in USUAL_KERNELS and kernel >= MIN_FILTERS and kernel > stride
