"""BatchNorm2D and BatchNorm1D: normalization of each channel to mean 0 and variance 1 over the batch."""

from __future__ import annotations

import math

from minidl.initializers import ones, zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_bool, check_image_shape, check_real
from minidl_c.kernels.batchnorm import BatchNormOp
from minidl_c.kernels.batchnorm_statistics import BatchStatisticsOp


class BatchNorm2D(Layer):
    """Batch normalization of each channel of an image, with statistics of the batch.

    Maps (c, h, w) to (c, h, w), by `y = weight * (x - mean) / sqrt(variance + eps) + bias` for each channel. In
    training, mean and variance are those of all pixels of the whole batch. In inference they are running averages:
    after each training step, `new = (1 - momentum) * old + momentum * batch`, with the unbiased variance.

    Parameters
    ----------
    eps : float, default 1e-5
        Is added to the variance, to keep the root above 0. With 0, a channel whose variance is 0 becomes NaN.
    momentum : float, default 0.1
        Weight of the new batch in the running statistics, as in PyTorch; other libraries write 1 - momentum.
    affine : bool, default True
        Whether to learn a weight and a bias.

    Raises
    ------
    TypeError, ValueError
        In `build`, for an `eps` below 0, a `momentum` outside [0, 1], or an input of another shape.
    ValueError
        In training, for a batch with only one value per channel.

    Notes
    -----
    Learned parameters: `weight` (c,), ones; `bias` (c,), zeros. Buffers: `running_mean` (c,), zeros; `running_var`
    (c,), ones; `num_batches_tracked`, the number of batches in them. Results equal those of torch.nn.BatchNorm2d.

    References
    ----------
    Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift",
    ICML 2015.

    Examples
    --------
    One example of two channels, with means of 2 and 10:

    >>> from minidl import Sequential
    >>> from minidl.layers import BatchNorm2D
    >>> model = Sequential([BatchNorm2D()], input_shape=(2, 1, 2))
    >>> print(model.forward([[[[0, 4]], [[5, 15]]]], training=True).round(3)[0, :, 0])
    [[-1.  1.]
     [-1.  1.]]
    >>> print(model.state_dict()["0.running_mean"].round(3))  # 0.9 * 0 + 0.1 * mean
    [0.2 1. ]
    """

    takes_images = True

    def __init__(self, *, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        self.eps = eps
        self.momentum = momentum
        self.affine = affine

    def build(self, in_shape: Shape) -> Shape:
        channels, height, width = check_image_shape(in_shape)
        return self._build(in_shape, channels, height * width)

    def _build(self, in_shape: Shape, channels: int, pixels: int) -> Shape:
        eps, momentum = check_real("eps", self.eps), check_real("momentum", self.momentum)
        if eps < 0:
            raise ValueError(f"eps: expected a number of at least 0, got {eps}")
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum: expected a number in [0, 1], got {momentum}")
        arguments = (in_shape, eps, momentum, check_bool("affine", self.affine), self.dtype)
        self.op = (BatchStatisticsOp(*arguments), BatchNormOp(*arguments))
        self.min_batch_size = 2 if pixels == 1 else 1
        if self.affine:
            self.weight, self.bias = self.param("weight", (channels,), ones), self.param("bias", (channels,), zeros)
        self.buffer("running_mean", (channels,), zeros)
        self.buffer("running_var", (channels,), ones)
        self.buffer("num_batches_tracked", (), zeros)
        return in_shape


class BatchNorm1D(BatchNorm2D):
    """Batch normalization of each feature of a vector, or of each channel of a signal.

    Maps (features,) to (features,), or (c, length) to (c, length), as BatchNorm2D. The statistics of a signal's channel
    are over all its steps.

    Parameters
    ----------
    eps : float, default 1e-5
        Is added to the variance, to keep the root above 0. With 0, a channel whose variance is 0 becomes NaN.
    momentum : float, default 0.1
        Weight of the new batch in the running statistics, as in PyTorch; other libraries write 1 - momentum.
    affine : bool, default True
        Whether to learn a weight and a bias.

    Raises
    ------
    TypeError, ValueError
        In `build`, for an `eps` below 0, a `momentum` outside [0, 1], or an input of another shape.
    ValueError
        In training, for a batch with only one value per feature or channel.

    Notes
    -----
    Learned parameters and buffers are those of BatchNorm2D, of shape (features,) or (c,). Results equal those of
    torch.nn.BatchNorm1d.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import BatchNorm1D
    >>> model = Sequential([BatchNorm1D()], input_shape=(2,))
    >>> print(model.forward([[1, 10], [3, 30]], training=True).round(3))
    [[-1. -1.]
     [ 1.  1.]]
    >>> print(model.state_dict()["0.running_var"].round(3))  # 0.9 * 1 + 0.1 * variance, 2 and 200
    [ 1.1 20.9]
    """

    def build(self, in_shape: Shape) -> Shape:
        if len(in_shape) not in (1, 2):
            raise ValueError(f"expected (features,) or (c, length), got {in_shape}: BatchNorm2D is for images")
        return self._build(in_shape, in_shape[0], math.prod(in_shape[1:]))
