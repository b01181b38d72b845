"""Permute and ChannelShuffle: the same numbers in another order."""

from __future__ import annotations

from collections.abc import Sequence

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_int
from minidl_c.kernels.permute import ChannelShuffleOp, PermuteOp


class Permute(Layer):
    """Permutes the axes of an example: Permute((2, 0, 1)) turns an image (h, w, c) into (c, h, w).

    axes: for each axis of the output its index in the input, without the batch axis, from 0.

    Raises TypeError or ValueError in build unless these are all axes of the input, each once, at most 8.
    """

    def __init__(self, axes: Sequence[int]) -> None:
        self.axes = axes

    def build(self, in_shape: Shape) -> Shape:
        if not isinstance(self.axes, (tuple, list)):
            raise TypeError(f"axes: expected a tuple such as (2, 0, 1), got {self.axes!r}")
        axes = tuple(check_int("axes", axis, minimum=0) for axis in self.axes)
        if sorted(axes) != list(range(len(in_shape))):
            raise ValueError(f"axes: expected each of 0 to {len(in_shape) - 1} once, for {in_shape}, got {axes}")
        self.op = PermuteOp(in_shape, axes, self.dtype)
        return self.op.out_shape


class ChannelShuffle(Layer):
    """Interleaves groups of channels, for any shape: channel i of group g becomes channel i * groups + g.

    Raises TypeError or ValueError in build unless groups divides the channels.

    Zhang, Zhou, Lin, Sun: "ShuffleNet: An Extremely Efficient Convolutional Neural Network for Mobile Devices",
    arXiv:1707.01083.
    """

    def __init__(self, groups: int) -> None:
        self.groups = groups

    def build(self, in_shape: Shape) -> Shape:
        groups = check_int("groups", self.groups)
        if in_shape[0] % groups:
            raise ValueError(f"groups: expected a divisor of {in_shape[0]} channels, got {groups}")
        self.op = ChannelShuffleOp(in_shape, groups, self.dtype)
        return in_shape
