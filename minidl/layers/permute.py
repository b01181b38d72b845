"""Permute and ChannelShuffle: the same numbers in another order."""

from __future__ import annotations

from collections.abc import Sequence

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_int
from minidl_c.kernels.permute import ChannelShuffleOp, PermuteOp


class Permute(Layer):
    """Permutes the axes of an example, as `np.transpose`.

    Maps (h, w, c) to (c, h, w) if `axes` is (2, 0, 1), for instance.

    Parameters
    ----------
    axes : sequence of int
        For each axis of the output its index in the input, without the batch axis, from 0.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless these are all axes of the input, each once, at most 8.

    Examples
    --------
    A model that takes images with channels last, as Pillow and OpenCV return them:

    >>> from minidl import Sequential
    >>> from minidl.layers import Conv2D, Permute
    >>> model = Sequential([Permute((2, 0, 1)), Conv2D(8, 3)], input_shape=(28, 32, 3))
    >>> [layer.out_shape for layer in model.layers]
    [(3, 28, 32), (8, 26, 30)]
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
    """Interleaves groups of channels.

    Channel i of group g becomes channel `i * groups + g`. Any shape, which is unchanged. Between grouped convolutions,
    it passes channels of each group to the others.

    Parameters
    ----------
    groups : int
        Number of groups, a divisor of the number of channels.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `groups` divides the channels.

    References
    ----------
    Zhang, Zhou, Lin and Sun, "ShuffleNet: An Extremely Efficient Convolutional Neural Network for Mobile Devices"
    (2017), arXiv:1707.01083.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import ChannelShuffle
    >>> Sequential([ChannelShuffle(2)], input_shape=(6,)).predict([[0, 1, 2, 10, 11, 12]]).tolist()
    [[0.0, 10.0, 1.0, 11.0, 2.0, 12.0]]
    """

    def __init__(self, groups: int) -> None:
        self.groups = groups

    def build(self, in_shape: Shape) -> Shape:
        groups = check_int("groups", self.groups)
        if in_shape[0] % groups:
            raise ValueError(f"groups: expected a divisor of {in_shape[0]} channels, got {groups}")
        self.op = ChannelShuffleOp(in_shape, groups, self.dtype)
        return in_shape
