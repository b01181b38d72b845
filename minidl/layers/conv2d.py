"""Conv2D: a 2-D convolution."""

from __future__ import annotations

from minidl.initializers import he_uniform, zeros
from minidl.layer import Layer
from minidl.shapes import Pair, Shape, image, pair, whole
from minidl_c.conv2d import Conv2DOp


class Conv2D(Layer):
    """Convolution (cross-correlation, as everywhere in deep learning) with `filters` learned kernels and a bias.

    (c, h, w) becomes (filters, oh, ow) with oh = (h + padding - dilation * (kernel - 1) - 1) // stride + 1.

    filters: number of output channels.
    kernel_size, stride, dilation: a number, or a (vertical, horizontal) pair.
    padding: zeros on each side, a number or pair; "valid" is 0; "same" makes oh = ceil(h / stride), the odd zero going
        behind (as TensorFlow does, and PyTorch for stride 1).
    groups: input and output channels are cut into so many groups that do not see each other.

    Parameters: weight (filters, c / groups, kernel height, kernel width), He-uniform; bias (filters,), zero.
    Raises TypeError or ValueError in build for arguments or input shapes that make no sense.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair | str = "valid",
        dilation: int | Pair = 1,
        groups: int = 1,
    ) -> None:
        self.filters = filters
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups

    def build(self, in_shape: Shape) -> Shape:
        channels, height, width = image(in_shape)
        filters, groups = whole("filters", self.filters), whole("groups", self.groups)
        kernel, stride = pair("kernel_size", self.kernel_size), pair("stride", self.stride)
        dilation = pair("dilation", self.dilation)
        padding = (
            *self._around(0, height, kernel, stride, dilation),
            *self._around(1, width, kernel, stride, dilation),
        )
        self.op = Conv2DOp(in_shape, filters, kernel, stride, padding, dilation, groups, self.dtype)
        self.weight = self.param("weight", (filters, channels // groups, *kernel), he_uniform)
        self.bias = self.param("bias", (filters,), zeros)
        return self.op.out_shape

    def _around(self, axis: int, size: int, kernel: Pair, stride: Pair, dilation: Pair) -> Pair:
        """The zeros in front of and behind one axis."""
        if self.padding == "valid":
            return 0, 0
        if self.padding == "same":
            windows = -(-size // stride[axis])
            total = max((windows - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1 - size, 0)
            return total // 2, total - total // 2
        if isinstance(self.padding, str):
            raise ValueError(f"padding: expected a number, a pair, 'same' or 'valid', got {self.padding!r}")
        return (pair("padding", self.padding, least=0)[axis],) * 2
