"""GroupNorm: normalization of groups of channels of one example, independent of the batch."""

from __future__ import annotations

from minidl.initializers import ones, zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_bool, check_int, check_real
from minidl_c.kernels.groupnorm import GroupNormOp


class GroupNorm(Layer):
    """Group normalization: each group of channels of an example gets mean 0 and variance 1.

    Computes `y = weight * (x - mean) / sqrt(variance + eps) + bias`, with mean and variance over a group of channels of
    one example. The shape (channels, ...), that of an image, a signal or a vector, is unchanged.

    Parameters
    ----------
    groups : int
        Number of groups of channels, a divisor of the number of channels. With one group per channel, this is instance
        normalization, which has no class of its own.
    eps : float, default 1e-5
        Added to the variance, above 0.
    affine : bool, default True
        Whether to learn a weight and a bias.

    Raises
    ------
    TypeError, ValueError
        In `build`, for groups that do not divide the channels, or an `eps` that is not above 0.

    Notes
    -----
    Learned parameters: `weight` (channels,), one; `bias` (channels,), zero.

    Training and inference are the same, and examples are independent. The variance is divided by n, as in PyTorch; a
    group of equal values becomes the bias.

    References
    ----------
    Wu and He, "Group Normalization" (2018), arXiv:1803.08494.

    Ulyanov, Vedaldi and Lempitsky, "Instance Normalization" (2016), arXiv:1607.08022.

    Examples
    --------
    Two groups of two channels, which differ in mean and scale:

    >>> from minidl import Sequential
    >>> from minidl.layers import GroupNorm
    >>> model = Sequential([GroupNorm(2)], input_shape=(4,))
    >>> model.predict([[1, 3, 10, 30]]).round(3).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """

    takes_images = True

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
