"""LocalResponseNorm: each number is divided by the energy of the neighbouring channels, as in AlexNet."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_int, check_real
from minidl_c.kernels.lrn import LRNOp


class LocalResponseNorm(Layer):
    """Local response normalization over neighbouring channels, as in AlexNet.

    Computes `y[c] = x[c] / (k + alpha / size * sum of x[j]**2)**beta` for each pixel, with the sum over the `size`
    channels around c that exist. Any shape whose first axis is the channels, which is unchanged.

    Parameters
    ----------
    size : int
        Number of channels in a sum, an odd number.
    alpha : float, default 1e-4
        Factor of the mean of squares.
    beta : float, default 0.75
        Exponent.
    k : float, default 1.0
        What is added to it, called bias in ONNX.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `size` is an odd number above 0, and the others are finite numbers.

    See Also
    --------
    GroupNorm, LayerNorm : Norms of nets that are trained from scratch today.

    Notes
    -----
    The arguments and the formula are those of torch.nn.LocalResponseNorm, which takes an even `size` too. TensorFlow
    and Caffe do not divide `alpha` by `size`, and TensorFlow calls `size // 2` depth_radius.

    References
    ----------
    Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep Convolutional Neural Networks", NIPS 2012.

    Examples
    --------
    The sums are 1 + 4, 1 + 4 + 9 and 4 + 9:

    >>> from minidl import Sequential
    >>> from minidl.layers import LocalResponseNorm
    >>> layer = LocalResponseNorm(3, alpha=3, beta=1, k=0)
    >>> Sequential([layer], input_shape=(3, 1, 1)).predict([[[[1]], [[2]], [[3]]]]).round(3).ravel()
    array([0.2  , 0.143, 0.231], dtype=float32)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def build(self, in_shape: Shape) -> Shape:
        alpha, beta, k = (check_real(name, getattr(self, name), self.dtype) for name in ("alpha", "beta", "k"))
        self.op = LRNOp(in_shape, check_int("size", self.size), alpha, beta, k, self.dtype)
        return in_shape
