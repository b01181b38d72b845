"""Initial values of parameters. An initializer is any function of a random generator and a shape.

A shape is (outputs, inputs) or (filters, channels, height, width): all axes except the first feed one output. For a
kernel, fan-in is channels, and fan-out filters, times its pixels, as in torch.nn.init (_calculate_fan_in_and_fan_out).
With groups, as in a depthwise convolution, the inputs are those of one group and the outputs those of all groups.
A transposed convolution passes the shape of a convolution with the same channels and filters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from minidl.utils.arrays import as_array
from minidl.utils.data import as_numbers
from minidl.utils.hints import class_hint
from minidl.utils.validation import Pair, Shape, check_int, check_pair, check_positive

__all__ = [
    "damped_he_uniform",
    "dirac",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "ones",
    "orthogonal",
    "small_uniform",
    "unit_forget_bias",
    "whitening",
    "zeros",
]

CHUNK = 2**16  # positions of a patch that are read at a time
MAX_PATCH = 256  # numbers in a patch, whose eigenvectors are in files: of 9x9 pixels of three channels
MAX_SWEEPS = 50  # of Jacobi's method, which needs about ten
EPS = float(np.finfo(np.float64).eps)

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


def unit_forget_bias(rng: np.random.Generator, shape: Shape) -> Values:
    """Returns the first bias of an LSTM: ones for the gate that keeps the memory, zeros for the others.

    The memory then fades slowly from the first step of training on.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of random numbers; not used.
    shape : tuple of int
        (4 units,), for the gates i, f, g, o.

    Returns
    -------
    array of float64
        Values of this shape.

    Raises
    ------
    ValueError
        For a shape that is not that of four gates.

    References
    ----------
    Jozefowicz, Zaremba and Sutskever, "An Empirical Exploration of Recurrent Network Architectures", ICML 2015. Keras
    has it as `unit_forget_bias=True`.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl.initializers import unit_forget_bias
    >>> unit_forget_bias(np.random.default_rng(0), (8,)).tolist()
    [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """
    if len(shape) != 1 or shape[0] % 4:
        raise ValueError(f"unit_forget_bias: expected the shape (4 units,) of the gates of an LSTM, got {shape}")
    return np.repeat([0.0, 1.0, 0.0, 0.0], shape[0] // 4)


def _rest(name: str, rest: Init, rng: np.random.Generator, shape: Shape) -> Values:
    """Returns new values of the initializer of the other filters; raises ValueError for those of another shape."""
    values = np.array(as_array(rest(rng, shape), f"{name}: rest"), np.float64)
    if values.shape != shape:
        raise ValueError(f"{name}: rest: expected values of shape {shape}, got {values.shape}")
    return values


def _name(init: Init) -> str:
    return getattr(init, "__name__", repr(init))


class Dirac:
    """Filters that are the identity, and others from another initializer: see `dirac`."""

    def __init__(self, groups: int = 1, rest: Init = zeros) -> None:
        self.groups, self.rest = check_int("groups", groups), check_initializer("rest", rest)

    def __call__(self, rng: np.random.Generator, shape: Shape) -> Values:
        """Returns values of a shape: see `dirac`."""
        outputs, inputs = _channels(shape)
        per_group, left = divmod(outputs, self.groups)
        if left:
            raise ValueError(f"dirac: expected filters in a multiple of {self.groups} groups, got {outputs}")
        values = _rest("dirac", self.rest, rng, shape)
        centre = [size // 2 for size in shape[2:]]
        for first in range(0, outputs, per_group):
            for i in range(min(per_group, inputs)):
                values[first + i] = 0
                values[(first + i, i, *centre)] = 1
        return values

    def __repr__(self) -> str:
        return f"dirac(groups={self.groups}, rest={_name(self.rest)})"


def dirac(groups: int = 1, rest: Init = zeros) -> Dirac:
    """Returns an initializer of filters that are the identity: with "same" padding, filter i returns channel i.

    There are as many as channels, or as filters if these are fewer; they are the first ones. Others, in a layer with
    more filters than channels, come from `rest`.

    Parameters
    ----------
    groups : int, default 1
        Number of groups of the convolution. Filter i of each group returns channel i of the group.
    rest : callable, default zeros
        Initializer of the other filters, such as `he_uniform`. Filters of zeros before a ReLU have no gradient, and
        stay zeros, unless a bias or a norm is between.

    Returns
    -------
    callable
        An initializer, which files can hold.

    Raises
    ------
    TypeError, ValueError
        For a number of groups below 1, and a `rest` that is not an initializer. In the layer, unless the groups divide
        the filters.

    Notes
    -----
    The identity is a one at the centre of the kernel; in kernels of even sizes, after the middle. In a `Dense` layer,
    the weight begins as the identity matrix.

    References
    ----------
    `torch.nn.init.dirac_` has the same formula, and zeros for the rest. Jordan, "94% on CIFAR-10 in 3.29 Seconds on a
    Single GPU" (2024), arXiv:2404.00498, keeps the usual random values there.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.initializers import damped_he_uniform, dirac
    >>> from minidl.layers import Conv2D
    >>> first = Conv2D(4, 3, padding="same", kernel_initializer=dirac(rest=damped_he_uniform))
    >>> model = Sequential([first], input_shape=(2, 5, 5))
    >>> x = np.arange(50).reshape(1, 2, 5, 5)
    >>> bool((model.predict(x)[:, :2] == x).all())
    True
    """
    return Dirac(groups, rest)


class Whitening:
    """Given filters, followed by their negatives: see `whitening`, which returns it.

    filters: nested lists or an array, (filters, channels, ...). rest: the initializer of the filters after both.
    """

    def __init__(self, filters: ArrayLike, rest: Init | None = None) -> None:
        self._values = as_array(filters, "filters").astype(np.float64)
        _channels(self._values.shape)
        self.filters = self._values.tolist()
        self.rest = None if rest is None else check_initializer("rest", rest)

    def __call__(self, rng: np.random.Generator, shape: Shape) -> Values:
        """Returns the first filters and their negatives, then those of `rest`; raises ValueError for other patches."""
        most, *patch = 2 * len(self._values), *self._values.shape[1:]
        if shape[1:] != tuple(patch) or (shape[0] > most and self.rest is None):
            filters = f"{most} or fewer" if self.rest is None else "filters"
            expected = f"expected a weight of shape ({filters}, {', '.join(map(str, patch))})"
            more = "; more filters need `rest`" if shape[1:] == tuple(patch) else ""
            raise ValueError(f"whitening: {expected}, of the data's patches, got {shape}{more}")
        count = min(shape[0], most)
        values = np.concatenate([self._values[: (count + 1) // 2], -self._values[: count // 2]])
        if self.rest is None or shape[0] == count:
            return values
        weight = _rest("whitening", self.rest, rng, shape)
        weight[:count] = values
        return weight

    def __repr__(self) -> str:
        rest = "" if self.rest is None else f", rest={_name(self.rest)}"
        return f"Whitening({len(self._values)} filters of {self._values.shape[1:]}{rest})"


def whitening(X: Any, kernel_size: int | Pair = 2, eps: float = 5e-4, rest: Init | None = None) -> Whitening:
    """Returns an initializer that whitens patches of X: the outputs of a first convolution are uncorrelated.

    The filters are eigenvectors of the covariance of all patches of X, each divided by `sqrt(eigenvalue + eps)`, that
    of the largest eigenvalue first. Their negatives follow, so that a ReLU keeps both signs. A layer has as many
    filters as there are of both, `2 * channels * height * width` of the kernel, or fewer: then half of them are those
    of the largest eigenvalues, and half are their negatives.

    Parameters
    ----------
    X : array of shape (n, channels, h, w) or (n, channels, length)
        Images, or signals, as the layer gets them: after a `Normalize` or `Rescale` that comes before it. A few
        thousand are enough. An array, a memory map or a lazy array, which is never copied as a whole.
    kernel_size : int or (int, int), default 2
        Size of the kernel; a pair is (vertical, horizontal).
    eps : float, default 5e-4
        Added to the eigenvalues, so that directions without variance are not magnified. Above 0.
    rest : callable or None, default None
        Initializer of the filters of a layer that has more than there are of both; None: such a layer is refused.

    Returns
    -------
    callable
        An initializer. Files hold its filters: the model is whole without X.

    Raises
    ------
    TypeError, ValueError
        Unless X holds finite real numbers, whose squares float64 can hold, for a kernel that is larger than an image or
        has more than 256 numbers, and for an invalid `eps` or `rest`. In the layer, for more filters without a `rest`,
        or another kernel or number of channels.

    Notes
    -----
    The mean of a patch counts as zero: standardize X. Neighbours in a patch are adjacent; a dilated convolution gets
    the same filters.

    The layer usually stays as it is, except for its bias: `model.set_param_group("1.weight", lr_mult=0)`, or
    `layer.trainable = False` for both.

    The eigenvectors are computed by Jacobi's method in NumPy's elementwise operations: unlike those of LAPACK, they
    have the same bits on each machine.

    References
    ----------
    Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (2024), arXiv:2404.00498, with the first 5,000 images,
    2x2 pixels and this `eps`; after Page, "How to Train Your ResNet 8: Bag of Tricks" (2019), without the negatives.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.initializers import whitening
    >>> from minidl.layers import Conv2D, Normalize
    >>> X = np.random.default_rng(0).integers(0, 256, (100, 3, 8, 8)).cumsum(axis=3)  # neighbours are similar
    >>> before = Sequential([Normalize.from_data(X)], input_shape=(3, 8, 8))
    >>> first = Conv2D(24, 2, kernel_initializer=whitening(before.predict(X), 2))
    >>> model = Sequential([before.as_layer(), first], input_shape=(3, 8, 8))
    >>> model.set_param_group("1.weight", lr_mult=0)
    >>> y = model.predict(X)[:, :12].transpose(1, 0, 2, 3).reshape(12, -1)
    >>> bool(np.allclose(y @ y.T / y.shape[1], np.eye(12), atol=0.05))
    True
    """
    array, eps = as_numbers(X, "X"), check_positive("eps", eps)
    channels, *sizes = array.shape[1:]
    if len(sizes) not in (1, 2) or 0 in array.shape:
        raise ValueError(f"X: expected images (n, c, h, w) or signals (n, c, length), at least one, got {array.shape}")
    if array.dtype.kind != "f":
        expected = "expected floats, as a Normalize or Rescale passes them to the layer"
        raise TypeError(f"X: {expected}, got {array.dtype}; if the layer gets X itself, X.astype('float32')")
    kernel = (check_int("kernel_size", kernel_size),) if len(sizes) == 1 else check_pair("kernel_size", kernel_size)
    if any(k > size for k, size in zip(kernel, sizes, strict=True)):
        raise ValueError(f"kernel_size: expected at most {tuple(sizes)}, the size in X, got {kernel}")
    patch = channels, *kernel
    if math.prod(patch) > MAX_PATCH:
        raise ValueError(f"kernel_size: expected patches of at most {MAX_PATCH} numbers, got {patch}")
    values, vectors = _eigenvectors(_patch_covariance(array, patch))
    scaled = vectors / np.sqrt(np.maximum(values, 0) + eps)[:, np.newaxis]
    return Whitening(scaled.reshape(-1, *patch), rest)


def _patch_covariance(array: Any, patch: Shape) -> Values:
    """Returns the mean products of any two numbers of a patch; raises ValueError for what float64 cannot hold."""
    positions = [size - k + 1 for size, k in zip(array.shape[2:], patch[1:], strict=True)]
    places = list(itertools.product(*map(range, patch)))
    sums = np.zeros((len(places), len(places)))
    rows = max(1, CHUNK // math.prod(positions))
    for start in range(0, len(array), rows):
        chunk = array[start : start + rows].astype(np.float64)
        if not np.isfinite(chunk).all():
            raise ValueError("X: expected finite values, got NaN or infinity")
        shifted = [
            chunk[(slice(None), c, *(slice(at, at + n) for at, n in zip(place, positions, strict=True)))]
            for c, *place in places
        ]
        with np.errstate(over="ignore", invalid="ignore"):
            for i, j in itertools.combinations_with_replacement(range(len(places)), 2):
                sums[i, j] += _sum((shifted[i] * shifted[j]).reshape(-1))
    if not np.isfinite(sums).all():
        raise ValueError("X: expected values whose squares float64 can hold, got larger ones")
    return (sums + np.triu(sums, 1).T) / (len(array) * math.prod(positions))


def _sum(numbers: Values) -> float:
    """Returns the sum of numbers, which it overwrites, by halving: the order of np.sum depends on NumPy's version."""
    n = len(numbers)
    while n > 1:
        n, rest = (n + 1) // 2, n // 2
        numbers[:rest] += numbers[n : n + rest]
    return float(numbers[0])


def _eigenvectors(matrix: Values) -> tuple[Values, Values]:
    """Returns the eigenvalues of a symmetric matrix, the largest first, and its eigenvectors, as rows.

    By the cyclic Jacobi method (Golub and Van Loan, "Matrix Computations", 8.5), whose operations IEEE 754 rounds alike
    on each machine.
    """
    n = len(matrix)
    a, vectors = matrix.copy(), np.eye(n)
    for _ in range(MAX_SWEEPS):
        if np.abs(np.triu(a, 1)).max() <= EPS * np.abs(np.diagonal(a)).max():
            break
        for p, q in itertools.combinations(range(n), 2):
            if a[p, q] == 0:
                continue
            slope = (float(a[q, q]) - float(a[p, p])) / (2 * float(a[p, q]))
            t = math.copysign(1, slope) / (abs(slope) + math.sqrt(slope * slope + 1))
            c = 1 / math.sqrt(t * t + 1)
            for rows in (a, a.T, vectors):
                rows[p], rows[q] = c * rows[p] - t * c * rows[q], t * c * rows[p] + c * rows[q]
            a[p, q] = a[q, p] = 0
    order = np.argsort(-np.diagonal(a), kind="stable")
    return np.diagonal(a)[order], vectors[order]


def check_initializer(name: str, init: Any) -> Init:
    """Returns `init` if it is a function of a random generator and a shape; raises TypeError naming the argument."""
    expected = f"{name}: expected a function f(rng, shape), such as he_uniform, got {init!r}"
    if init is dirac or init is whitening:
        raise TypeError(f"{expected}; call it, {init.__name__}(...)")
    if not callable(init) or isinstance(init, type):
        is_name = isinstance(init, str) and init in __all__
        call = "(...)" if is_name and init in ("dirac", "whitening") else ""
        raise TypeError(expected + (f"; use minidl.initializers.{init}{call}" if is_name else class_hint(init)))
    function: Init = init
    return function
