"""Permute, ChannelShuffle, PixelShuffle and PixelUnshuffle: the same numbers in another order."""

from __future__ import annotations

from collections.abc import Sequence

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_choice, check_int
from minidl_c.kernels.permute import ChannelShuffleOp, PermuteOp, rearranging_ops


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


class PixelShuffle(Layer):
    """Depth to space: spreads groups of channels over blocks of pixels, as super-resolution networks do at their end.

    Maps (c * r * r, h, w) to (c, h * r, w * r), and a signal (c * r, length) to (c, length * r).

    Parameters
    ----------
    upscale_factor : int
        r, the height and width of a block.
    mode : "CRD" or "DCR", default "CRD"
        The order of the channels of x, in ONNX's words. "CRD": the r * r numbers of a block are neighbours, as in
        torch.nn.PixelShuffle. "DCR": those of a pixel in all blocks are neighbours, as in tf.nn.depth_to_space.

    Raises
    ------
    TypeError, ValueError
        In `build`, for another mode, an input that is neither an image nor a signal, or channels that r * r does not
        divide.

    See Also
    --------
    PixelUnshuffle : The inverse.

    References
    ----------
    Shi et al., "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
    Network" (2016), arXiv:1609.05158.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import PixelShuffle
    >>> x = np.array([[[[1]], [[2]], [[3]], [[4]]]])
    >>> Sequential([PixelShuffle(2)], input_shape=(4, 1, 1)).predict(x).tolist()
    [[[[1.0, 2.0], [3.0, 4.0]]]]
    """

    def __init__(self, upscale_factor: int, mode: str = "CRD") -> None:
        self.upscale_factor, self.mode = upscale_factor, mode

    def build(self, in_shape: Shape) -> Shape:
        factor, n, mode = _check_blocks("upscale_factor", self.upscale_factor, self.mode, in_shape)
        channels, rest = divmod(in_shape[0], factor**n)
        if rest:
            raise ValueError(f"upscale_factor: expected {factor**n} to divide {in_shape[0]} channels")
        block, image = (factor,) * n, in_shape[1:]
        sizes = (channels, *block, *image) if mode == "CRD" else (*block, channels, *image)
        first = 1 if mode == "CRD" else 0
        pixels = [axis for i in range(n) for axis in (1 + n + i, first + i)]
        out_shape = (channels, *(size * factor for size in image))
        self.op = rearranging_ops(in_shape, sizes, (n * (1 - first), *pixels), out_shape, self.dtype)
        return out_shape


class PixelUnshuffle(Layer):
    """Space to depth: stacks the pixels of a block as channels, as YOLO's Focus does at its beginning.

    Maps (c, h * r, w * r) to (c * r * r, h, w), and a signal (c, length * r) to (c * r, length).

    Parameters
    ----------
    downscale_factor : int
        r, the height and width of a block.
    mode : "CRD" or "DCR", default "CRD"
        The order of the channels of y, as in `PixelShuffle`. "CRD" is that of torch.nn.PixelUnshuffle, "DCR" that of
        ONNX's SpaceToDepth and tf.nn.space_to_depth.

    Raises
    ------
    TypeError, ValueError
        In `build`, for another mode, an input that is neither an image nor a signal, or sizes that r does not divide.

    See Also
    --------
    PixelShuffle : The inverse.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import PixelUnshuffle
    >>> Sequential([PixelUnshuffle(2)], input_shape=(3, 64, 48)).output_shape
    (12, 32, 24)
    """

    def __init__(self, downscale_factor: int, mode: str = "CRD") -> None:
        self.downscale_factor, self.mode = downscale_factor, mode

    def build(self, in_shape: Shape) -> Shape:
        factor, n, mode = _check_blocks("downscale_factor", self.downscale_factor, self.mode, in_shape)
        if any(size % factor for size in in_shape[1:]):
            raise ValueError(f"downscale_factor: expected a divisor of {in_shape[1:]}, got {factor}")
        image = [size // factor for size in in_shape[1:]]
        sizes = (in_shape[0], *(part for size in image for part in (size, factor)))
        block, pixels = range(2, 2 * n + 1, 2), range(1, 2 * n, 2)
        axes = (0, *block, *pixels) if mode == "CRD" else (*block, 0, *pixels)
        out_shape = (in_shape[0] * factor**n, *image)
        self.op = rearranging_ops(in_shape, sizes, axes, out_shape, self.dtype)
        return out_shape


def _check_blocks(name: str, factor: int, mode: str, shape: Shape) -> tuple[int, int, str]:
    """Returns the factor, the number of axes that it applies to, and the mode; raises TypeError or ValueError."""
    if len(shape) not in (2, 3):
        raise ValueError(f"expected (channels, height, width) or (channels, length), got {shape}")
    return check_int(name, factor), len(shape) - 1, check_choice("mode", mode, "CRD", "DCR")
