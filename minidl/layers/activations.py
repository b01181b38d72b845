"""Element-wise activations without parameters, for any shape; all of them share one kernel.

NaN stays NaN. At infinity functions and derivatives equal their limits; in GELU, SiLU and Hardswish PyTorch multiplies
infinity by 0 instead. At a kink, the derivative is PyTorch's.
"""

from __future__ import annotations

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_choice, check_real
from minidl_c.kernels.activations import ActivationOp


class LeakyReLU(Layer):
    """y = x if x > 0 else negative_slope * x, for any shape. The derivative at 0 is negative_slope.

    Raises TypeError or ValueError in build unless negative_slope is a finite number.

    Maas, Hannun, Ng: "Rectifier Nonlinearities Improve Neural Network Acoustic Models", ICML 2013.
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def build(self, in_shape: Shape) -> Shape:
        slope = check_real("negative_slope", self.negative_slope, self.dtype)
        self.op = ActivationOp(in_shape, "leaky_relu", slope, self.dtype)
        return in_shape


class ELU(Layer):
    """y = x if x > 0 else alpha * (exp(x) - 1), for any shape. The derivative at 0 is alpha.

    Raises TypeError or ValueError in build unless alpha is a finite number of at least 0.

    Clevert, Unterthiner, Hochreiter: "Fast and Accurate Deep Network Learning by Exponential Linear Units (ELUs)",
    arXiv:1511.07289.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def build(self, in_shape: Shape) -> Shape:
        self.op = ActivationOp(in_shape, "elu", check_real("alpha", self.alpha, self.dtype), self.dtype)
        return in_shape


class GELU(Layer):
    """y = x * P(Z < x) with Z standard normal, for any shape.

    approximate: "none", or "tanh" for y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), which is faster,
        with an error of up to 5e-4.

    Raises ValueError in build for any other `approximate`.

    Hendrycks, Gimpel: "Gaussian Error Linear Units (GELUs)", arXiv:1606.08415.
    """

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def build(self, in_shape: Shape) -> Shape:
        approximate = check_choice("approximate", self.approximate, "none", "tanh")
        function = "gelu_tanh" if approximate == "tanh" else "gelu"
        self.op = ActivationOp(in_shape, function, dtype=self.dtype)
        return in_shape


class SiLU(Layer):
    """y = x / (1 + exp(-x)), for any shape; also known as Swish.

    Elfwing, Uchibe, Doya: "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in Reinforcement
    Learning", arXiv:1702.03118.
    """

    def build(self, in_shape: Shape) -> Shape:
        self.op = ActivationOp(in_shape, "silu", dtype=self.dtype)
        return in_shape


class Sigmoid(Layer):
    """y = 1 / (1 + exp(-x)), for any shape."""

    def build(self, in_shape: Shape) -> Shape:
        self.op = ActivationOp(in_shape, "sigmoid", dtype=self.dtype)
        return in_shape


class Tanh(Layer):
    """y = tanh(x), for any shape."""

    def build(self, in_shape: Shape) -> Shape:
        self.op = ActivationOp(in_shape, "tanh", dtype=self.dtype)
        return in_shape


class Hardswish(Layer):
    """y = x * min(max(x + 3, 0), 6) / 6, for any shape. The derivative at -3 is 0, at 3 it is 1.

    Howard et al.: "Searching for MobileNetV3", arXiv:1905.02244.
    """

    def build(self, in_shape: Shape) -> Shape:
        self.op = ActivationOp(in_shape, "hardswish", dtype=self.dtype)
        return in_shape
