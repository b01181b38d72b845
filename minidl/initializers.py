"""Initial values of parameters. An initializer is any function of a random generator and a shape.

A shape is (outputs, inputs) or (filters, channels, height, width): all axes except the first feed one output. For a
kernel, fan-in is channels, and fan-out filters, times its pixels, as in torch.nn.init (_calculate_fan_in_and_fan_out).
With groups, as in a depthwise convolution, the inputs are those of one group and the outputs those of all groups.
A transposed convolution passes the shape of a convolution with the same channels and filters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minidl.utils.validation import Shape

Values = NDArray[np.float64]
Init = Callable[[np.random.Generator, Shape], ArrayLike]


def damped_he_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """he_uniform times (outputs / inputs)^(1/4) if a layer has fewer outputs than inputs: the default of the layers.

    Initial scores are then small, and training works at learning rates at which it fails with he_uniform. The factor is
    the geometric mean of that of He et al., 1, and of the spectral condition's, sqrt(outputs / inputs) (G. Yang,
    J. B. Simon, J. Bernstein, 2023, arXiv:2310.17813). docs/explanation/first-weights.md has the measurements.

    >>> weight = damped_he_uniform(np.random.default_rng(0), (16, 256))
    >>> bool((weight == he_uniform(np.random.default_rng(0), (16, 256)) / 2).all())
    True
    """
    outputs, inputs = _channels(shape)
    ratio = min(1.0, outputs / inputs)  # a kernel's pixels cancel
    return he_uniform(rng, shape) * math.sqrt(math.sqrt(ratio))


def he_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """Uniform with variance 2 / inputs, for layers before a ReLU (He et al., 2015, arXiv:1502.01852).

    >>> he_uniform(np.random.default_rng(0), (2, 6)).shape
    (2, 6)
    """
    limit = math.sqrt(6 / _fan_in(shape))
    return rng.uniform(-limit, limit, shape)


def he_normal(rng: np.random.Generator, shape: Shape) -> Values:
    """Normal with variance 2 / inputs; otherwise as he_uniform."""
    return rng.normal(0, math.sqrt(2 / _fan_in(shape)), shape)


def glorot_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """Uniform with variance 2 / (inputs + outputs), for layers before tanh or sigmoid (Glorot and Bengio, 2010)."""
    limit = math.sqrt(3) * _glorot_std(shape)
    return rng.uniform(-limit, limit, shape)


def glorot_normal(rng: np.random.Generator, shape: Shape) -> Values:
    """Normal with variance 2 / (inputs + outputs); otherwise as glorot_uniform."""
    return rng.normal(0, _glorot_std(shape), shape)


def lecun_normal(rng: np.random.Generator, shape: Shape) -> Values:
    """Normal with variance 1 / inputs, for layers before no activation or a smooth one (LeCun et al., 1998)."""
    return rng.normal(0, math.sqrt(1 / _fan_in(shape)), shape)


def orthogonal(rng: np.random.Generator, shape: Shape) -> Values:
    """Orthonormal rows, one for each output, or orthonormal columns if there are fewer of them (Saxe et al., 2014).

    Computed by LAPACK, so the last bits depend on its version.
    """
    inputs, outputs = _fan_in(shape), shape[0]
    q, r = np.linalg.qr(rng.standard_normal((max(outputs, inputs), min(outputs, inputs))))
    q *= np.where(np.diagonal(r) < 0, -1, 1)  # otherwise the factorization would determine the signs
    return np.ascontiguousarray(q if outputs > inputs else q.T).reshape(shape)


def _fan_in(shape: Shape) -> int:
    """Returns the number of inputs of an output; raises as `_channels`."""
    _channels(shape)
    return math.prod(shape[1:])


def _glorot_std(shape: Shape) -> float:
    return math.sqrt(2 / (math.prod(shape[2:]) * sum(_channels(shape))))


def _channels(shape: Shape) -> tuple[int, int]:
    """Returns outputs and inputs; raises ValueError for empty shapes, and without inputs, such as that of a bias."""
    if len(shape) < 2 or min(shape) < 1:
        raise ValueError(f"initializer: expected a shape (outputs, inputs, ...), got {shape}")
    return shape[0], shape[1]


# The initializers whose standard deviation decreases with the number of inputs.
FAN_IN_INITIALIZERS = (damped_he_uniform, he_uniform, he_normal, glorot_uniform, glorot_normal, lecun_normal)


def small_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """Uniform from -0.05 to 0.05, for the vectors of an Embedding, as in Keras."""
    return rng.uniform(-0.05, 0.05, shape)


def zeros(rng: np.random.Generator, shape: Shape) -> Values:
    """All zeros, for biases."""
    return np.zeros(shape)


def ones(rng: np.random.Generator, shape: Shape) -> Values:
    """All ones, for gains."""
    return np.ones(shape)


def check_initializer(name: str, init: Any) -> Init:
    """Returns `init` if it is a function of a random generator and a shape; raises TypeError naming the argument."""
    if not callable(init) or isinstance(init, type):
        raise TypeError(f"{name}: expected a function f(rng, shape), such as he_uniform, got {init!r}")
    function: Init = init
    return function
