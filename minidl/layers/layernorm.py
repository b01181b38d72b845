"""LayerNorm and RMSNorm: normalization of an example, or of each of its pixels, independent of the batch."""

from __future__ import annotations

import math

from minidl.initializers import ones, zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_bool, check_real
from minidl_c.kernels.layernorm import LayerNormOp


class LayerNorm(Layer):
    """Layer normalization: each example, or each of its pixels, gets mean 0 and variance 1.

    Computes `y = weight * (x - mean) / sqrt(variance + eps) + bias`, with mean and variance over one example, or over
    the channels of one pixel. Any shape, which is unchanged.

    Parameters
    ----------
    eps : float, default 1e-5
        Added to the variance, above 0.
    affine : bool, default True
        Whether to learn a weight and a bias.
    axis : None or "channels", default None
        None: over all elements of an example, of which each has its own weight and bias. This is PyTorch's LayerNorm
        over the whole shape of an example. "channels": each pixel of an image, or step of a signal, is normalized over
        its channels, which have a weight and a bias each. This is torchvision's LayerNorm2d, as in ConvNeXt. For
        vectors, both are the same.

    Raises
    ------
    TypeError, ValueError
        In `build`, for an `eps` that is not above 0, or another axis.

    Notes
    -----
    Learned parameters: `weight`, one, and `bias`, zero, both of the shape of an example, or (channels,).

    Training and inference are the same, and examples are independent. The variance is divided by n, as in PyTorch;
    equal values become the bias.

    References
    ----------
    Ba, Kiros and Hinton, "Layer Normalization" (2016), arXiv:1607.06450.

    Liu et al., "A ConvNet for the 2020s" (2022), arXiv:2201.03545.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import LayerNorm
    >>> Sequential([LayerNorm()], input_shape=(4,)).predict([[1, 1, 3, 3]]).round(3).tolist()
    [[-1.0, -1.0, 1.0, 1.0]]

    The axis decides how many weights there are:

    >>> norms = LayerNorm(), LayerNorm(axis="channels")
    >>> [Sequential([norm], input_shape=(16, 8, 8)).params["0.weight"].value.shape for norm in norms]
    [(16, 8, 8), (16,)]
    """

    def __init__(self, *, eps: float = 1e-5, affine: bool = True, axis: str | None = None) -> None:
        self.eps = eps
        self.affine = affine
        self.axis = axis

    def build(self, in_shape: Shape) -> Shape:
        shape, eps, affine = _weight_shape(self.axis, in_shape), check_real("eps", self.eps, self.dtype), self.affine
        self.op = LayerNormOp(in_shape, math.prod(shape), eps, True, check_bool("affine", affine), self.dtype)
        if affine:
            self.weight, self.bias = self.param("weight", shape, ones), self.param("bias", shape, zeros)
        return in_shape


class RMSNorm(Layer):
    """Root-mean-square normalization: a LayerNorm that neither subtracts the mean nor adds a bias.

    Computes `y = weight * x / sqrt(mean of x^2 + eps)`, with the mean over one example, or over the channels of one
    pixel. Any shape, which is unchanged.

    Parameters
    ----------
    eps : float, default 1e-5
        Added to the mean of squares, above 0. The default is that of ONNX; that of `torch.nn.RMSNorm` is
        `np.finfo(dtype).eps`.
    affine : bool, default True
        Whether to learn a weight.
    axis : None or "channels", default None
        None: over all elements of an example, of which each has its own weight. "channels": each pixel of an image, or
        step of a signal, is normalized over its channels, which have a weight each. For vectors, both are the same.

    Raises
    ------
    TypeError, ValueError
        In `build`, for an `eps` that is not above 0, or another axis.

    Notes
    -----
    Learned parameters: `weight`, one, of the shape of an example, or (channels,).

    References
    ----------
    Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019), arXiv:1910.07467.

    Examples
    --------
    The mean of 1 and 49 is 25, and its root 5:

    >>> from minidl import Sequential
    >>> from minidl.layers import RMSNorm
    >>> Sequential([RMSNorm()], input_shape=(2,), dtype="float64").predict([[1, 7]]).round(3).tolist()
    [[0.2, 1.4]]
    """

    def __init__(self, *, eps: float = 1e-5, affine: bool = True, axis: str | None = None) -> None:
        self.eps = eps
        self.affine = affine
        self.axis = axis

    def build(self, in_shape: Shape) -> Shape:
        shape, eps, affine = _weight_shape(self.axis, in_shape), check_real("eps", self.eps, self.dtype), self.affine
        self.op = LayerNormOp(in_shape, math.prod(shape), eps, False, check_bool("affine", affine), self.dtype)
        if affine:
            self.weight = self.param("weight", shape, ones)
        return in_shape


def _weight_shape(axis: str | None, in_shape: Shape) -> Shape:
    """Returns the shape of the weights of a norm over `axis`; raises ValueError for an unknown one."""
    if axis is not None and not (isinstance(axis, str) and axis == "channels"):
        raise ValueError(f"axis: expected None or 'channels', got {axis!r}")
    return in_shape if axis is None else in_shape[:1]
