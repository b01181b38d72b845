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

from minidl.utils.hints import class_hint
from minidl.utils.validation import Shape

__all__ = [
    "damped_he_uniform",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "ones",
    "orthogonal",
    "small_uniform",
    "zeros",
]

Values = NDArray[np.float64]
Init = Callable[[np.random.Generator, Shape], ArrayLike]


def damped_he_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """Draws as `he_uniform`, with smaller values for layers with fewer outputs than inputs: the default of the layers.

    The values are those of `he_uniform` times `min(1, outputs / inputs)^(1/4)`. Initial scores are then small, and
    training works at learning rates at which it fails with `he_uniform`. docs/explanation/first-weights.md has the
    measurements.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    shape : tuple of int
        (outputs, inputs), or (filters, channels, ...) of a kernel.

    Returns
    -------
    array of float64
        Values of this shape.

    Raises
    ------
    ValueError
        For a shape of fewer than two axes, such as that of a bias, or an empty one.

    Notes
    -----
    The factor is the geometric mean of that of He et al., 1, and of the spectral condition's, `sqrt(outputs / inputs)`.

    With groups, as in a depthwise convolution, the inputs are those of one group and the outputs those of all groups. A
    transposed convolution passes the shape of a convolution with the same channels and filters.

    References
    ----------
    Yang, Simon and Bernstein, "A Spectral Condition for Feature Learning" (2023), arXiv:2310.17813.

    Examples
    --------
    A layer from 256 inputs to 16 outputs starts with weights half as large:

    >>> import numpy as np
    >>> from minidl.initializers import damped_he_uniform, he_uniform
    >>> damped, full = (init(np.random.default_rng(0), (16, 256)) for init in (damped_he_uniform, he_uniform))
    >>> bool((damped == full / 2).all())
    True
    """
    outputs, inputs = _channels(shape)
    ratio = min(1.0, outputs / inputs)  # a kernel's pixels cancel
    return he_uniform(rng, shape) * math.sqrt(math.sqrt(ratio))


def he_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """Draws uniform values with variance 2 / fan-in, for layers before a ReLU.

    Fan-in is the number of inputs of one output, `prod(shape[1:])`. The values are from `-sqrt(6 / fan_in)` to
    `sqrt(6 / fan_in)`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    shape : tuple of int
        (outputs, inputs), or (filters, channels, ...) of a kernel.

    Returns
    -------
    array of float64
        Values of this shape.

    Raises
    ------
    ValueError
        For a shape of fewer than two axes, such as that of a bias, or an empty one.

    References
    ----------
    He, Zhang, Ren and Sun, "Delving Deep into Rectifiers" (2015), arXiv:1502.01852.

    Examples
    --------
    A kernel of 3x3 pixels and 6 channels has a fan-in of 54, and weights of at most sqrt(6 / 54) = 1 / 3:

    >>> import numpy as np
    >>> from minidl.initializers import he_uniform
    >>> weight = he_uniform(np.random.default_rng(0), (64, 6, 3, 3))
    >>> round(float(abs(weight).max()), 3), round(float(weight.std() ** 2 * 54), 1)
    (0.333, 2.0)
    """
    limit = math.sqrt(6 / _fan_in(shape))
    return rng.uniform(-limit, limit, shape)


def he_normal(rng: np.random.Generator, shape: Shape) -> Values:
    """Draws normal values with variance 2 / fan-in, for layers before a ReLU.

    Fan-in is the number of inputs of one output, `prod(shape[1:])`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    shape : tuple of int
        (outputs, inputs), or (filters, channels, ...) of a kernel.

    Returns
    -------
    array of float64
        Values of this shape.

    Raises
    ------
    ValueError
        For a shape of fewer than two axes, such as that of a bias, or an empty one.

    References
    ----------
    He, Zhang, Ren and Sun, "Delving Deep into Rectifiers" (2015), arXiv:1502.01852.

    Examples
    --------
    The outputs of the layer, after a ReLU, keep the mean square of its inputs:

    >>> import numpy as np
    >>> from minidl.initializers import he_normal
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((100, 200))
    >>> y = np.maximum(x @ he_normal(rng, (300, 200)).T, 0)
    >>> round(float((y**2).mean()), 1)
    1.0
    """
    return rng.normal(0, math.sqrt(2 / _fan_in(shape)), shape)


def glorot_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """Draws uniform values with variance 2 / (fan-in + fan-out), for layers before tanh or sigmoid.

    Fan-in is the number of inputs of one output, `prod(shape[1:])`; fan-out is `shape[0] * prod(shape[2:])`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    shape : tuple of int
        (outputs, inputs), or (filters, channels, ...) of a kernel.

    Returns
    -------
    array of float64
        Values of this shape.

    Raises
    ------
    ValueError
        For a shape of fewer than two axes, such as that of a bias, or an empty one.

    References
    ----------
    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010).

    Examples
    --------
    It is an argument of layers:

    >>> from minidl import Sequential
    >>> from minidl.initializers import glorot_uniform
    >>> from minidl.layers import Dense, Tanh
    >>> model = Sequential([Dense(100, kernel_initializer=glorot_uniform), Tanh()], input_shape=(300,))
    >>> round(float(model.params["0.weight"].value.std() ** 2 * 400), 1)  # fan-in and fan-out are 300 and 100
    2.0
    """
    limit = math.sqrt(3) * _glorot_std(shape)
    return rng.uniform(-limit, limit, shape)


def glorot_normal(rng: np.random.Generator, shape: Shape) -> Values:
    """Draws normal values with variance 2 / (fan-in + fan-out), for layers before tanh or sigmoid.

    Fan-in is the number of inputs of one output, `prod(shape[1:])`; fan-out is `shape[0] * prod(shape[2:])`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    shape : tuple of int
        (outputs, inputs), or (filters, channels, ...) of a kernel.

    Returns
    -------
    array of float64
        Values of this shape.

    Raises
    ------
    ValueError
        For a shape of fewer than two axes, such as that of a bias, or an empty one.

    References
    ----------
    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010).

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.initializers import glorot_normal
    >>> weight = glorot_normal(np.random.default_rng(0), (100, 300))
    >>> round(float(weight.std() ** 2 * 400), 1)
    2.0
    """
    return rng.normal(0, _glorot_std(shape), shape)


def lecun_normal(rng: np.random.Generator, shape: Shape) -> Values:
    """Draws normal values with variance 1 / fan-in, for layers before a smooth activation such as tanh, or before none.

    Fan-in is the number of inputs of one output, `prod(shape[1:])`.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    shape : tuple of int
        (outputs, inputs), or (filters, channels, ...) of a kernel.

    Returns
    -------
    array of float64
        Values of this shape.

    Raises
    ------
    ValueError
        For a shape of fewer than two axes, such as that of a bias, or an empty one.

    References
    ----------
    LeCun, Bottou, Orr and Müller, "Efficient BackProp" (1998).

    Examples
    --------
    The outputs of a layer without an activation keep the variance of its inputs:

    >>> import numpy as np
    >>> from minidl.initializers import lecun_normal
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((100, 200))
    >>> y = x @ lecun_normal(rng, (300, 200)).T
    >>> round(float(y.std()), 1)
    1.0
    """
    return rng.normal(0, math.sqrt(1 / _fan_in(shape)), shape)


def orthogonal(rng: np.random.Generator, shape: Shape) -> Values:
    """Draws orthonormal rows, one for each output, or orthonormal columns if there are fewer of them.

    A row has `prod(shape[1:])` elements.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    shape : tuple of int
        (outputs, inputs), or (filters, channels, ...) of a kernel.

    Returns
    -------
    array of float64
        Values of this shape.

    Raises
    ------
    ValueError
        For a shape of fewer than two axes, such as that of a bias, or an empty one.

    Notes
    -----
    Computed by LAPACK, so the last bits depend on its version.

    References
    ----------
    Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks"
    (2014), arXiv:1312.6120.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.initializers import orthogonal
    >>> weight = orthogonal(np.random.default_rng(0), (4, 6))
    >>> np.allclose(weight @ weight.T, np.eye(4))
    True
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
    """Draws uniform values from -0.05 to 0.05, for the vectors of an Embedding, as in Keras.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers.
    shape : tuple of int
        Shape of the parameter.

    Returns
    -------
    array of float64
        Values of this shape.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.initializers import small_uniform
    >>> vectors = small_uniform(np.random.default_rng(0), (1000, 8))
    >>> round(float(vectors.min()), 3), round(float(vectors.max()), 3)
    (-0.05, 0.05)
    """
    return rng.uniform(-0.05, 0.05, shape)


def zeros(rng: np.random.Generator, shape: Shape) -> Values:
    """Returns all zeros, for biases.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers; not used.
    shape : tuple of int
        Shape of the parameter.

    Returns
    -------
    array of float64
        Values of this shape.

    Examples
    --------
    A last layer of zeros makes a residual block the identity:

    >>> from minidl import Sequential
    >>> from minidl.initializers import zeros
    >>> from minidl.layers import Dense, Residual, ReLU
    >>> block = Residual(Dense(8), ReLU(), Dense(3, kernel_initializer=zeros))
    >>> Sequential([block], input_shape=(3,)).predict([[1, 2, 3]]).tolist()
    [[1.0, 2.0, 3.0]]
    """
    return np.zeros(shape)


def ones(rng: np.random.Generator, shape: Shape) -> Values:
    """Returns all ones, for gains.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers; not used.
    shape : tuple of int
        Shape of the parameter.

    Returns
    -------
    array of float64
        Values of this shape.

    Examples
    --------
    Weights of ones make a dense layer a sum:

    >>> from minidl import Sequential
    >>> from minidl.initializers import ones
    >>> from minidl.layers import Dense
    >>> Sequential([Dense(1, kernel_initializer=ones)], input_shape=(3,)).predict([[1, 2, 3]]).tolist()
    [[6.0]]
    """
    return np.ones(shape)


def check_initializer(name: str, init: Any) -> Init:
    """Returns `init` if it is a function of a random generator and a shape; raises TypeError naming the argument."""
    if not callable(init) or isinstance(init, type):
        is_name = isinstance(init, str) and init in __all__
        meant = f"; use minidl.initializers.{init}" if is_name else class_hint(init)
        raise TypeError(f"{name}: expected a function f(rng, shape), such as he_uniform, got {init!r}{meant}")
    function: Init = init
    return function
