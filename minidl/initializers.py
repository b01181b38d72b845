"""First values of parameters: functions of a random generator and a shape. Any such function is an initializer.

A shape is (outputs, inputs) or (filters, channels, height, width): all axes but the first feed one output. Of a kernel,
inputs are channels, and outputs filters, times its pixels, as in torch.nn.init (_calculate_fan_in_and_fan_out).
With groups, as in a depthwise convolution, the inputs are those of one group and the outputs those of all.
A transposed convolution asks for what a convolution with as many channels and filters would.
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
    """he_uniform, times (outputs / inputs)^(1/4) where a layer has fewer outputs than inputs: the layers' default.

    A net then begins with small scores, and trains at learning rates at which he_uniform fails. The factor is the
    geometric mean of that of He et al., 1, and of the spectral condition's, sqrt(outputs / inputs) (G. Yang,
    J. B. Simon, J. Bernstein, 2023, arXiv:2310.17813). docs/first-weights.md has the measurements.

    >>> weight = damped_he_uniform(np.random.default_rng(0), (16, 256))
    >>> bool((weight == he_uniform(np.random.default_rng(0), (16, 256)) / 2).all())
    True
    """
    outputs, inputs = _channels(shape)
    narrowing = min(1.0, outputs / inputs)  # a kernel's pixels count in both
    return he_uniform(rng, shape) * math.sqrt(math.sqrt(narrowing))


def he_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """Uniform with variance 2 / inputs, for layers before a ReLU (He et al., 2015, arXiv:1502.01852).

    >>> he_uniform(np.random.default_rng(0), (2, 6)).shape
    (2, 6)
    """
    limit = math.sqrt(6 / math.prod(shape[1:]))
    return rng.uniform(-limit, limit, shape)


def he_normal(rng: np.random.Generator, shape: Shape) -> Values:
    """Normal with variance 2 / inputs, as he_uniform."""
    return rng.normal(0, math.sqrt(2 / math.prod(shape[1:])), shape)


def glorot_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """Uniform with variance 2 / (inputs + outputs), for layers before tanh or sigmoid (Glorot and Bengio, 2010)."""
    limit = math.sqrt(3) * _glorot(shape)
    return rng.uniform(-limit, limit, shape)


def glorot_normal(rng: np.random.Generator, shape: Shape) -> Values:
    """Normal with variance 2 / (inputs + outputs), as glorot_uniform."""
    return rng.normal(0, _glorot(shape), shape)


def lecun_normal(rng: np.random.Generator, shape: Shape) -> Values:
    """Normal with variance 1 / inputs, for layers before nothing or a soft function (LeCun et al., 1998)."""
    return rng.normal(0, math.sqrt(1 / math.prod(shape[1:])), shape)


def orthogonal(rng: np.random.Generator, shape: Shape) -> Values:
    """Rows, one for each output, that are orthonormal, or columns if these are fewer (Saxe et al., 2014).

    They come from LAPACK, whose version decides on the last bits.
    """
    outputs, inputs = shape[0], math.prod(shape[1:])
    q, r = np.linalg.qr(rng.standard_normal((max(outputs, inputs), min(outputs, inputs))))
    q *= np.where(np.diagonal(r) < 0, -1, 1)  # else the factorisation would choose the signs
    return np.ascontiguousarray(q if outputs > inputs else q.T).reshape(shape)


def _glorot(shape: Shape) -> float:
    """The standard deviation."""
    return math.sqrt(2 / (math.prod(shape[2:]) * sum(_channels(shape))))


def _channels(shape: Shape) -> tuple[int, int]:
    """Outputs and inputs; raises ValueError for a bias, say, which has no inputs."""
    if len(shape) < 2:
        raise ValueError(f"initializer: expected a shape (outputs, inputs, ...), got {shape}")
    return shape[0], shape[1]


# smaller where more inputs add up
BY_INPUTS = (damped_he_uniform, he_uniform, he_normal, glorot_uniform, glorot_normal, lecun_normal)


def zeros(rng: np.random.Generator, shape: Shape) -> Values:
    """All zero, for biases."""
    return np.zeros(shape)


def ones(rng: np.random.Generator, shape: Shape) -> Values:
    """All one, for gains."""
    return np.ones(shape)


def checked(name: str, init: Any) -> Init:
    """`init`, a function of a random generator and a shape; raises TypeError naming the argument for anything else."""
    if not callable(init) or isinstance(init, type):
        raise TypeError(f"{name}: expected a function f(rng, shape), such as he_uniform, got {init!r}")
    function: Init = init
    return function
