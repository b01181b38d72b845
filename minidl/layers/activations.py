"""Element-wise activations without parameters, for any shape; all of them share one kernel.

NaN stays NaN. At infinity functions and derivatives equal their limits; in GELU, SiLU, Hardswish, Mish and Softsign
PyTorch multiplies infinity by 0, or divides it by itself, instead. At a kink, the derivative is PyTorch's.
"""

from __future__ import annotations

import math
from typing import ClassVar

from minidl.layers.base import Layer
from minidl.utils.constructors import constructor_arguments
from minidl.utils.validation import Shape, check_choice, check_real
from minidl_c.kernels.activations import ActivationOp


class _Activation(Layer):
    """A function of the kernel's table; its arguments are those of the constructor, in order."""

    function: ClassVar[str]  # its name in the table

    def build(self, in_shape: Shape) -> Shape:
        arguments = (check_real(name, value, self.dtype) for name, value in constructor_arguments(self).items())
        self.op = ActivationOp(in_shape, self.function, *arguments, dtype=self.dtype)
        return in_shape


class LeakyReLU(_Activation):
    """y = x if x > 0 else negative_slope * x, for any shape. The derivative at 0 is negative_slope.

    Raises TypeError or ValueError in build unless negative_slope is a finite number.

    Maas, Hannun, Ng: "Rectifier Nonlinearities Improve Neural Network Acoustic Models", ICML 2013.
    """

    function = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope


class ReLU6(Layer):
    """y = min(max(x, 0), 6), for any shape. The derivative at 0 and at 6 is 0.

    Howard et al.: "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision", arXiv:1704.04861.
    """

    def build(self, in_shape: Shape) -> Shape:
        self.op = ActivationOp(in_shape, "hardtanh", 0.0, 6.0, self.dtype)
        return in_shape


class Hardtanh(Layer):
    """y = min(max(x, min_val), max_val), for any shape. The derivative at both bounds is 0.

    min_val, max_val: a finite number, or None for no bound.

    Raises TypeError or ValueError in build for other bounds, and unless min_val is below max_val.

    Formula: torch.nn.Hardtanh.
    """

    def __init__(self, min_val: float | None = -1.0, max_val: float | None = 1.0) -> None:
        self.min_val = min_val
        self.max_val = max_val

    def build(self, in_shape: Shape) -> Shape:
        bounds = {"min_val": self.min_val, "max_val": self.max_val}
        low, high = (math.nan if v is None else check_real(name, v, self.dtype) for name, v in bounds.items())
        self.op = ActivationOp(in_shape, "hardtanh", low, high, self.dtype)
        return in_shape


class HardSigmoid(_Activation):
    """y = min(max(alpha * x + beta, 0), 1), for any shape. The derivative where y is 0 or 1 is 0.

    The default is that of PyTorch and Keras 3; Keras 2 has alpha=0.2, Keras's sparse_sigmoid alpha=0.5.

    Raises TypeError or ValueError in build unless alpha and beta are finite numbers.

    Courbariaux, Bengio, David: "BinaryConnect: Training Deep Neural Networks with binary weights during propagations",
    arXiv:1511.00363.
    """

    function = "hard_sigmoid"

    def __init__(self, alpha: float = 1 / 6, beta: float = 0.5) -> None:
        self.alpha = alpha
        self.beta = beta


class Hardswish(_Activation):
    """y = x * min(max(x + 3, 0), 6) / 6, for any shape. The derivative at -3 is 0, at 3 it is 1.

    Howard et al.: "Searching for MobileNetV3", arXiv:1905.02244.
    """

    function = "hardswish"


class Threshold(_Activation):
    """y = x if x > threshold else value, for any shape. The derivative at the threshold is 0.

    Raises TypeError or ValueError in build unless threshold and value are finite numbers.

    Formula: torch.nn.Threshold; ONNX's ThresholdedRelu has the value 0.
    """

    function = "threshold"

    def __init__(self, threshold: float, value: float) -> None:
        self.threshold = threshold
        self.value = value


class Hardshrink(_Activation):
    """y = x if |x| > lambd else 0, for any shape. The derivative at -lambd and lambd is 0.

    Raises TypeError or ValueError in build unless lambd is a finite number of at least 0.

    Formula: torch.nn.Hardshrink.
    """

    function = "hardshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd


class Softshrink(_Activation):
    """y = x - lambd for x > lambd, x + lambd for x < -lambd, else 0; for any shape. The derivative at the kinks is 0.

    Raises TypeError or ValueError in build unless lambd is a finite number of at least 0.

    Donoho: "De-noising by soft-thresholding", IEEE Transactions on Information Theory 41, 1995.
    """

    function = "softshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd


class SparsePlus(_Activation):
    """y = 0 for x <= -1, x for x >= 1, else (x + 1)**2 / 4; for any shape.

    Formula: keras.activations.sparse_plus.
    """

    function = "sparse_plus"


class Softsign(_Activation):
    """y = x / (1 + |x|), for any shape.

    Glorot, Bengio: "Understanding the difficulty of training deep feedforward neural networks", AISTATS 2010.
    """

    function = "softsign"


class Squareplus(_Activation):
    """y = (x + sqrt(x**2 + b)) / 2, for any shape.

    Raises TypeError or ValueError in build unless b is a finite number of at least the smallest normal float32.

    Barron: "Squareplus: A Softplus-Like Algebraic Rectifier", arXiv:2112.11687.
    """

    function = "squareplus"

    def __init__(self, b: float = 4.0) -> None:
        self.b = b


class ELU(_Activation):
    """y = x if x > 0 else alpha * (exp(x) - 1), for any shape. The derivative at 0 is alpha.

    Raises TypeError or ValueError in build unless alpha is a finite number of at least 0.

    Clevert, Unterthiner, Hochreiter: "Fast and Accurate Deep Network Learning by Exponential Linear Units (ELUs)",
    arXiv:1511.07289.
    """

    function = "elu"

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha


class SELU(_Activation):
    """y = 1.0507 * (x if x > 0 else 1.67326 * (exp(x) - 1)), for any shape. The derivative at 0 is that from below.

    Klambauer, Unterthiner, Mayr, Hochreiter: "Self-Normalizing Neural Networks", arXiv:1706.02515, has all digits.
    """

    function = "selu"


class CELU(_Activation):
    """y = x if x > 0 else alpha * (exp(x / alpha) - 1), for any shape.

    Raises TypeError or ValueError in build unless alpha is a finite number of at least the smallest normal float32.

    Barron: "Continuously Differentiable Exponential Linear Units", arXiv:1704.07483.
    """

    function = "celu"

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha


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


class SiLU(_Activation):
    """y = x / (1 + exp(-x)), for any shape; also known as Swish.

    Elfwing, Uchibe, Doya: "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in Reinforcement
    Learning", arXiv:1702.03118.
    """

    function = "silu"


class Mish(_Activation):
    """y = x * tanh(log(1 + exp(x))), for any shape.

    Misra: "Mish: A Self Regularized Non-Monotonic Activation Function", arXiv:1908.08681.
    """

    function = "mish"


class Softplus(_Activation):
    """y = log(1 + exp(beta * x)) / beta, for any shape.

    PyTorch returns x where beta * x is above 20, its argument `threshold`, with an error of at most 2e-9 / beta.

    Raises TypeError or ValueError in build unless beta is a finite number of at least the smallest normal float32.

    Dugas, Bengio, Belisle, Nadeau, Garcia: "Incorporating Second-Order Functional Knowledge for Better Option Pricing",
    NIPS 2000.
    """

    function = "softplus"

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = beta


class LogSigmoid(_Activation):
    """y = log(1 / (1 + exp(-x))), for any shape; finite for all finite x."""

    function = "log_sigmoid"


class Sigmoid(_Activation):
    """y = 1 / (1 + exp(-x)), for any shape."""

    function = "sigmoid"


class Tanh(_Activation):
    """y = tanh(x), for any shape."""

    function = "tanh"


class Tanhshrink(_Activation):
    """y = x - tanh(x), for any shape."""

    function = "tanhshrink"


class Exp(_Activation):
    """y = exp(x), for any shape; Keras's "exponential"."""

    function = "exp"
