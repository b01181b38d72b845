"""GaussianNoise: adds normally distributed numbers in training."""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_non_negative
from minidl_c.kernels.noise import NoiseOp


class GaussianNoise(Layer):
    """y = x + noise in training, of a normal distribution of mean 0 and this standard deviation; y = x in inference.

    Any shape. As the first layer, it augments data; between layers, it regularizes. Keras: GaussianNoise(stddev).

    The noise depends only on the run's seed, the layer's path in the model, the step, the example's row in the data and
    the element's index in the example. Threads, batch size and processor do not change it, the dtype only rounds it.

    Raises TypeError or ValueError in build unless std is at least 0, and ten times its value can be held by the dtype.

    Box, Muller: "A Note on the Generation of Random Normal Deviates", Annals of Mathematical Statistics 29 (1958).
    """

    def __init__(self, std: float) -> None:
        self.std = std

    def build(self, in_shape: Shape) -> Shape:
        self.op = NoiseOp(in_shape, check_non_negative("std", self.std), self._path, self.dtype)
        return in_shape
