"""GaussianNoise: adds normally distributed numbers in training."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_non_negative
from minidl_c.kernels.noise import NoiseOp


class GaussianNoise(Layer):
    """Gaussian noise: adds normally distributed numbers in training, nothing in inference.

    Computes `y = x + noise` in training, with noise of mean 0 and standard deviation `std`, and `y = x` in inference.
    Any shape, which is unchanged. As the first layer, it augments data; between layers, it regularizes. In Keras, this
    is `GaussianNoise(stddev)`.

    Parameters
    ----------
    std : float
        Standard deviation of the noise, at least 0.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `std` is at least 0, and ten times its value can be held by the dtype.

    Notes
    -----
    The noise depends only on the run's seed, the layer's path in the model, the step, the example's row in the data and
    the element's index in the example. Threads, batch size and processor do not change it; the dtype only rounds it.

    References
    ----------
    Box and Muller, "A Note on the Generation of Random Normal Deviates", Annals of Mathematical Statistics 29 (1958).

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import GaussianNoise
    >>> model = Sequential([GaussianNoise(0.1)], input_shape=(1000,))
    >>> X = np.ones((1, 1000))
    >>> [round(float(y.std()), 1) for y in (model.predict(X), model.forward(X, training=True))]
    [0.0, 0.1]
    """

    def __init__(self, std: float) -> None:
        self.std = std

    def build(self, in_shape: Shape) -> Shape:
        self.op = NoiseOp(in_shape, check_non_negative("std", self.std), self._path, self.dtype)
        return in_shape
