"""BatchNorm2D and BatchNorm1D: normalization of each channel to mean 0 and variance 1 over the batch."""

from __future__ import annotations

import math

from minidl.initializers import ones, zeros
from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_bool, check_image_shape, check_real
from minidl_c.kernels.batchnorm import BatchNormOp
from minidl_c.kernels.batchnorm_statistics import BatchStatisticsOp


class BatchNorm2D(Layer):
    """Batch normalization: y = weight * (x - mean) / sqrt(variance + eps) + bias, for each channel of (c, h, w).

    In training, mean and variance are those of all pixels of the whole batch. In inference they are running averages:
    after each training step, new = (1 - momentum) * old + momentum * batch (with the unbiased variance).

    eps: added to the variance, to keep the root above 0.
    momentum: the weight of the new batch in the running statistics, as in PyTorch; other libraries write 1 - momentum.
    affine: whether to learn a weight and a bias.

    Parameters: weight, ones, and bias, zeros; both (c,). Buffers: running_mean, zeros, and running_var, ones, both
    (c,); num_batches_tracked, the number of batches in them.

    Raises TypeError or ValueError in build for eps of 0 or less, or a momentum outside [0, 1]. Training rejects a batch
    with only one value per channel.

    Ioffe and Szegedy: "Batch Normalization", ICML 2015. Results equal those of torch.nn.BatchNorm2d.
    """

    def __init__(self, *, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        self.eps = eps
        self.momentum = momentum
        self.affine = affine

    def build(self, in_shape: Shape) -> Shape:
        channels, height, width = check_image_shape(in_shape)
        return self._build(in_shape, channels, height * width)

    def _build(self, in_shape: Shape, channels: int, pixels: int) -> Shape:
        eps, momentum = check_real("eps", self.eps), check_real("momentum", self.momentum)
        if eps <= 0:
            raise ValueError(f"eps: expected a number above 0, got {eps}")
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
    """Batch normalization of each feature of a vector (features,), or each channel of a signal (c, length).

    Otherwise as BatchNorm2D: the statistics of a signal's channel are over all its steps. Results equal those of
    torch.nn.BatchNorm1d.
    """

    def build(self, in_shape: Shape) -> Shape:
        if len(in_shape) not in (1, 2):
            raise ValueError(f"expected (features,) or (c, length), got {in_shape}: BatchNorm2D is for images")
        return self._build(in_shape, in_shape[0], math.prod(in_shape[1:]))
