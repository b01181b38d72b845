"""GroupNorm: normalization of groups of channels of one example, independent of the batch."""

from __future__ import annotations

from minidl.initializers import ones, zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_bool, check_int, check_real
from minidl_c.kernels.groupnorm import GroupNormOp


class GroupNorm(Layer):
    """y = weight * (x - mean) / sqrt(variance + eps) + bias, mean and variance over a group of channels of one example.

    The shape (channels, ...), an image or a vector, is unchanged. Training and inference are the same, and examples are
    independent. The variance is divided by n, as in PyTorch; a group of equal values becomes the bias.

    groups: the number of groups of channels. GroupNorm(groups=channels) is instance norm, which has no class of its
        own.
    eps: above 0.
    affine: whether to learn a weight and a bias.

    Parameters: weight (channels,), one; bias (channels,), zero.
    Raises TypeError or ValueError in build for groups that do not divide the channels, or an eps that is not above 0.

    Wu, He: "Group Normalization", arXiv:1803.08494; Ulyanov, Vedaldi, Lempitsky: "Instance Normalization",
    arXiv:1607.08022.
    """

    def __init__(self, groups: int, *, eps: float = 1e-5, affine: bool = True) -> None:
        self.groups = groups
        self.eps = eps
        self.affine = affine

    def build(self, in_shape: Shape) -> Shape:
        groups, channels = check_int("groups", self.groups), in_shape[0]
        if channels % groups:
            raise ValueError(f"groups: expected a divisor of {channels} channels, got {groups}")
        eps = check_real("eps", self.eps, self.dtype)
        self.op = GroupNormOp(in_shape, groups, channels, eps, check_bool("affine", self.affine), self.dtype)
        if self.affine:
            self.weight = self.param("weight", (channels,), ones)
            self.bias = self.param("bias", (channels,), zeros)
        return in_shape
