"""Element-wise activations without parameters, for any shape; all of them share one kernel.

NaN stays NaN. At infinity functions and derivatives equal their limits; in GELU, SiLU, Hardswish, Mish and Softsign
PyTorch multiplies infinity by 0, or divides it by itself, instead. (A slope of 0 in LeakyReLU or HardSigmoid times
infinity is NaN.) At a kink, the derivative is PyTorch's.
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
    """Leaky ReLU: a ReLU with a small slope below 0, where its gradient therefore does not vanish.

    Computes `y = x if x > 0 else negative_slope * x`, for any shape. The derivative at 0 is `negative_slope`.

    Parameters
    ----------
    negative_slope : float, default 0.01
        The slope below 0.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `negative_slope` is a finite number.

    References
    ----------
    Maas, Hannun, Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models", ICML 2013.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import LeakyReLU
    >>> model = Sequential([LeakyReLU(0.25)], input_shape=(3,))
    >>> print(model.predict([[-2, 0, 2]]))
    [[-0.5  0.   2. ]]
    >>> print(model.input_gradient([[-2, 0, 2]], dscores=[[1, 1, 1]]))
    [[0.25 0.25 1.  ]]
    """

    function = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope


class ReLU6(Layer):
    """ReLU that is bounded at 6, as in MobileNets.

    Computes `y = min(max(x, 0), 6)`, for any shape. The derivative at 0 and at 6 is 0.

    References
    ----------
    Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications",
    arXiv:1704.04861.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import ReLU6
    >>> model = Sequential([ReLU6()], input_shape=(4,))
    >>> print(model.predict([[-1, 3, 6, 9]]))
    [[0. 3. 6. 6.]]
    >>> print(model.input_gradient([[-1, 3, 6, 9]], dscores=[[1, 1, 1, 1]]))
    [[0. 1. 0. 0.]]
    """

    active_range = (0.0, 6.0)

    def build(self, in_shape: Shape) -> Shape:
        self.op = ActivationOp(in_shape, "hardtanh", 0.0, 6.0, self.dtype)
        return in_shape


class Hardtanh(Layer):
    """Clips each number to an interval.

    Computes `y = min(max(x, min_val), max_val)`, for any shape. The derivative at both bounds is 0.

    Parameters
    ----------
    min_val : float or None, default -1.0
        The lower bound; None for no bound.
    max_val : float or None, default 1.0
        The upper bound; None for no bound.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless each bound is a finite number or None, and `min_val` is below `max_val`.

    References
    ----------
    The formula is that of torch.nn.Hardtanh.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Hardtanh
    >>> print(Sequential([Hardtanh()], input_shape=(3,)).predict([[-4, 0.5, 4]]))
    [[-1.   0.5  1. ]]
    >>> print(Sequential([Hardtanh(0, None)], input_shape=(3,)).predict([[-4, 0.5, 4]]))  # ReLU
    [[0.  0.5 4. ]]
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
    """Sigmoid of three straight pieces, without an exponential.

    Computes `y = min(max(alpha * x + beta, 0), 1)`, for any shape. The derivative where `y` is 0 or 1 is 0.

    Parameters
    ----------
    alpha : float, default 1 / 6
        The slope between the two bounds. The default is that of PyTorch and Keras 3. Keras 2 has 0.2, and the
        sparse_sigmoid of Keras 0.5.
    beta : float, default 0.5
        The value at 0.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `alpha` and `beta` are finite numbers.

    References
    ----------
    Courbariaux, Bengio, David, "BinaryConnect: Training Deep Neural Networks with binary weights during propagations",
    arXiv:1511.00363.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import HardSigmoid
    >>> print(Sequential([HardSigmoid(alpha=0.5)], input_shape=(4,)).predict([[-2, 0, 0.5, 2]]))
    [[0.   0.5  0.75 1.  ]]
    >>> model = Sequential([HardSigmoid()], input_shape=(3,))
    >>> print(model.predict([[-3, 0, 3]]).round(3))  # the kinks are at -3 and 3
    [[0.  0.5 1. ]]
    """

    function = "hard_sigmoid"

    def __init__(self, alpha: float = 1 / 6, beta: float = 0.5) -> None:
        self.alpha = alpha
        self.beta = beta


class Hardswish(_Activation):
    """SiLU with a hard sigmoid in place of the sigmoid, as in MobileNetV3.

    Computes `y = x * min(max(x + 3, 0), 6) / 6`, for any shape. The derivative at -3 is 0; at 3 it is 1.

    Notes
    -----
    At infinity, `y` and its derivative equal their limits, where PyTorch multiplies infinity by 0, which is NaN.

    References
    ----------
    Howard et al., "Searching for MobileNetV3", arXiv:1905.02244.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Hardswish
    >>> model = Sequential([Hardswish()], input_shape=(4,))
    >>> print(model.predict([[-4, -1.5, 1.5, 4]]).round(3))  # 1.5 * 4.5 / 6 = 1.125
    [[ 0.    -0.375  1.125  4.   ]]
    """

    function = "hardswish"
    active_range = (-3.0, math.inf)


class Threshold(_Activation):
    """Replaces each number that is not above a threshold by a constant.

    Computes `y = x if x > threshold else value`, for any shape. The derivative at the threshold is 0.

    Parameters
    ----------
    threshold : float
        The largest number that is replaced.
    value : float
        What replaces it.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `threshold` and `value` are finite numbers.

    Notes
    -----
    NaN stays NaN.

    References
    ----------
    The formula is that of torch.nn.Threshold. ONNX's ThresholdedRelu has the value 0.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Threshold
    >>> print(Sequential([Threshold(0.5, value=-1)], input_shape=(3,)).predict([[0.25, 0.5, 0.75]]))
    [[-1.   -1.    0.75]]
    """

    function = "threshold"

    def __init__(self, threshold: float, value: float) -> None:
        self.threshold = threshold
        self.value = value


class Hardshrink(_Activation):
    """Replaces small numbers by 0 and leaves the others as they are.

    Computes `y = x if |x| > lambd else 0`, for any shape. The derivative at `-lambd` and `lambd` is 0.

    Parameters
    ----------
    lambd : float, default 0.5
        The largest absolute value that becomes 0.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `lambd` is a finite number of at least 0.

    See Also
    --------
    Softshrink : Also moves the other numbers towards 0, and is continuous.

    References
    ----------
    The formula is that of torch.nn.Hardshrink.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Hardshrink
    >>> print(Sequential([Hardshrink()], input_shape=(4,)).predict([[-2, -0.5, 0.25, 0.75]]))
    [[-2.    0.    0.    0.75]]
    """

    function = "hardshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd


class Softshrink(_Activation):
    """Moves each number towards 0 by `lambd`, and small numbers to 0: soft-thresholding.

    Computes `y = x - lambd` for `x > lambd`, `x + lambd` for `x < -lambd`, else 0; for any shape. The derivative at
    the kinks is 0.

    Parameters
    ----------
    lambd : float, default 0.5
        The largest absolute value that becomes 0, and the distance by which other numbers move.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `lambd` is a finite number of at least 0.

    See Also
    --------
    Hardshrink : Leaves large numbers as they are.

    References
    ----------
    Donoho, "De-noising by soft-thresholding", IEEE Transactions on Information Theory 41, 1995.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Softshrink
    >>> print(Sequential([Softshrink()], input_shape=(4,)).predict([[-2, -0.5, 0.25, 0.75]]))
    [[-1.5   0.    0.    0.25]]
    """

    function = "softshrink"

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd


class SparsePlus(_Activation):
    """ReLU whose kink is replaced by a parabola from -1 to 1.

    Computes `y = 0` for `x <= -1`, `x` for `x >= 1`, else `(x + 1)**2 / 4`; for any shape. The derivative is
    continuous.

    References
    ----------
    The formula is that of keras.activations.sparse_plus.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import SparsePlus
    >>> model = Sequential([SparsePlus()], input_shape=(4,))
    >>> print(model.predict([[-1, 0, 1, 2]]))
    [[0.   0.25 1.   2.  ]]
    >>> print(model.input_gradient([[-1, 0, 1, 2]], dscores=[[1, 1, 1, 1]]))
    [[0.  0.5 1.  1. ]]
    """

    function = "sparse_plus"


class Softsign(_Activation):
    """Maps to the interval from -1 to 1 like tanh, but approaches its bounds more slowly.

    Computes `y = x / (1 + |x|)`, for any shape.

    Notes
    -----
    At infinity, `y` and its derivative equal their limits, where PyTorch divides infinity by itself, which is NaN.

    References
    ----------
    Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural networks", AISTATS 2010.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Softsign
    >>> print(Sequential([Softsign()], input_shape=(4,)).predict([[-3, 0, 1, 9]]).round(3))
    [[-0.75  0.    0.5   0.9 ]]
    """

    function = "softsign"


class Squareplus(_Activation):
    """Smooth ReLU of a square root instead of the exponential of softplus.

    Computes `y = (x + sqrt(x**2 + b)) / 2`, for any shape.

    Parameters
    ----------
    b : float, default 4.0
        The larger it is, the wider the smooth region around 0. The value at 0 is `sqrt(b) / 2`.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `b` is a finite number of at least the smallest normal float32.

    References
    ----------
    Barron, "Squareplus: A Softplus-Like Algebraic Rectifier", arXiv:2112.11687.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Squareplus
    >>> model = Sequential([Squareplus()], input_shape=(3,))
    >>> print(model.predict([[-1.5, 0, 1.5]]).round(3))  # sqrt(1.5**2 + 4) = 2.5
    [[0.5 1.  2. ]]
    """

    function = "squareplus"

    def __init__(self, b: float = 4.0) -> None:
        self.b = b


class ELU(_Activation):
    """Exponential linear unit: the identity above 0; below, it falls exponentially to `-alpha`.

    Computes `y = x if x > 0 else alpha * (exp(x) - 1)`, for any shape. The derivative at 0 is `alpha`.

    Parameters
    ----------
    alpha : float, default 1.0
        The negative of the limit at minus infinity. With 1, the derivative is continuous.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `alpha` is a finite number of at least 0.

    See Also
    --------
    CELU : Its derivative is continuous for each `alpha`.

    References
    ----------
    Clevert, Unterthiner, Hochreiter, "Fast and Accurate Deep Network Learning by Exponential Linear Units (ELUs)",
    arXiv:1511.07289.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import ELU
    >>> print(Sequential([ELU()], input_shape=(4,)).predict([[-100, -1, 0, 2]]).round(3))
    [[-1.    -0.632  0.     2.   ]]
    """

    function = "elu"
    active_range = (-3.0, math.inf)

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha


class SELU(_Activation):
    """Scaled ELU: it keeps activations near mean 0 and variance 1 from layer to layer.

    Computes `y = 1.0507 * (x if x > 0 else 1.67326 * (exp(x) - 1))`, for any shape. The derivative at 0 is that from
    below.

    Notes
    -----
    The paper assumes weights of `minidl.initializers.lecun_normal`. It has all digits of the two constants.

    References
    ----------
    Klambauer, Unterthiner, Mayr, Hochreiter, "Self-Normalizing Neural Networks", arXiv:1706.02515.

    Examples
    --------
    Standard normal inputs have outputs of mean 0 and variance 1:

    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import SELU
    >>> x = np.random.default_rng(0).standard_normal((1, 10_000))
    >>> y = Sequential([SELU()], input_shape=(10_000,)).predict(x)
    >>> bool(abs(y.mean()) < 0.05), bool(abs(y.var() - 1) < 0.05)
    (True, True)
    """

    function = "selu"
    active_range = (-3.0, math.inf)


class CELU(_Activation):
    """ELU whose derivative is continuous for each `alpha`.

    Computes `y = x if x > 0 else alpha * (exp(x / alpha) - 1)`, for any shape.

    Parameters
    ----------
    alpha : float, default 1.0
        The negative of the limit at minus infinity. With 1, it is ELU.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `alpha` is a finite number of at least the smallest normal float32.

    See Also
    --------
    ELU : Has a derivative of `alpha` at 0.

    References
    ----------
    Barron, "Continuously Differentiable Exponential Linear Units", arXiv:1704.07483.

    Examples
    --------
    The derivative at 0 is 1, where that of ELU is `alpha`:

    >>> from minidl import Sequential
    >>> from minidl.layers import CELU, ELU
    >>> for layer in CELU(2), ELU(2):
    ...     model = Sequential([layer], input_shape=(2,))
    ...     print(model.predict([[-100, 0]]), model.input_gradient([[-100, 0]], dscores=[[1, 1]]))
    [[-2.  0.]] [[0. 1.]]
    [[-2.  0.]] [[0. 2.]]
    """

    function = "celu"

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha


class GELU(Layer):
    """Gaussian error linear unit: `x` times the probability that a standard normal number is below `x`.

    Computes `y = x * P(Z < x)` with Z standard normal, for any shape.

    Parameters
    ----------
    approximate : "none" or "tanh", default "none"
        With "tanh", `y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))`, which is faster, with an error of
        up to 5e-4.

    Raises
    ------
    ValueError
        In `build`, for any other `approximate`.

    Notes
    -----
    At infinity, `y` and its derivative equal their limits, where PyTorch multiplies infinity by 0, which is NaN.

    References
    ----------
    Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", arXiv:1606.08415.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import GELU
    >>> print(Sequential([GELU()], input_shape=(3,)).predict([[-1, 0, 1]]).round(4))  # P(Z < 1) = 0.8413
    [[-0.1587  0.      0.8413]]
    >>> print(Sequential([GELU("tanh")], input_shape=(3,)).predict([[-1, 0, 1]]).round(4))
    [[-0.1588  0.      0.8412]]
    """

    active_range = (-3.0, math.inf)

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def build(self, in_shape: Shape) -> Shape:
        approximate = check_choice("approximate", self.approximate, "none", "tanh")
        function = "gelu_tanh" if approximate == "tanh" else "gelu"
        self.op = ActivationOp(in_shape, function, dtype=self.dtype)
        return in_shape


class SiLU(_Activation):
    """Sigmoid linear unit, also known as Swish: `x` times its sigmoid.

    Computes `y = x / (1 + exp(-x))`, for any shape.

    Notes
    -----
    At infinity, `y` and its derivative equal their limits, where PyTorch multiplies infinity by 0, which is NaN.

    References
    ----------
    Elfwing, Uchibe, Doya, "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in Reinforcement
    Learning", arXiv:1702.03118.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import SiLU
    >>> model = Sequential([SiLU()], input_shape=(4,))
    >>> print(model.predict([[-1, 0, 1, 20]]).round(3))  # sigmoid(1) = 0.731
    [[-0.269  0.     0.731 20.   ]]
    """

    function = "silu"
    active_range = (-5.5, math.inf)


class Mish(_Activation):
    """Mish: `x` times the tanh of its softplus, a smooth function with a minimum below 0, as SiLU.

    Computes `y = x * tanh(log(1 + exp(x)))`, for any shape.

    Notes
    -----
    At infinity, `y` and its derivative equal their limits, where PyTorch multiplies infinity by 0, which is NaN.

    References
    ----------
    Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", arXiv:1908.08681.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Mish
    >>> model = Sequential([Mish()], input_shape=(4,))
    >>> print(model.predict([[-1, 0, 1, 20]]).round(3))
    [[-0.303  0.     0.865 20.   ]]
    >>> print(model.input_gradient([[0] * 4], dscores=[[1] * 4]).round(3))  # tanh(log(2)) = 3 / 5
    [[0.6 0.6 0.6 0.6]]
    """

    function = "mish"
    active_range = (-4.0, math.inf)


class Softplus(_Activation):
    """Smooth ReLU, whose outputs are positive.

    Computes `y = log(1 + exp(beta * x)) / beta`, for any shape.

    Parameters
    ----------
    beta : float, default 1.0
        The larger it is, the closer to ReLU. The value at 0 is `log(2) / beta`.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `beta` is a finite number of at least the smallest normal float32.

    Notes
    -----
    PyTorch returns `x` where `beta * x` is above 20, its argument `threshold`, with an error of at most 2.1e-9 / beta.

    References
    ----------
    Dugas, Bengio, Belisle, Nadeau, Garcia, "Incorporating Second-Order Functional Knowledge for Better Option Pricing",
    NIPS 2000.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Softplus
    >>> print(Sequential([Softplus()], input_shape=(3,)).predict([[-1, 0, 1]]).round(3))  # log(2) = 0.693
    [[0.313 0.693 1.313]]
    >>> print(Sequential([Softplus(beta=10)], input_shape=(3,)).predict([[-1, 0, 1]]).round(3))
    [[0.    0.069 1.   ]]
    """

    function = "softplus"

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = beta


class LogSigmoid(_Activation):
    """Logarithm of the sigmoid, without overflow: finite for all finite `x`.

    Computes `y = log(1 / (1 + exp(-x)))`, for any shape.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import LogSigmoid
    >>> y = Sequential([LogSigmoid()], input_shape=(2,)).predict([[-100, 0]])  # in float32, sigmoid(-100) is about 0
    >>> print(y.round(3))
    [[-100.      -0.693]]
    """

    function = "log_sigmoid"


class Sigmoid(_Activation):
    """Logistic sigmoid: the probability whose log-odds are `x`.

    Computes `y = 1 / (1 + exp(-x))`, for any shape.

    Notes
    -----
    The loss "binary_cross_entropy" takes scores and contains the sigmoid, so that a model trained with it needs none.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Sigmoid
    >>> odds = np.array([[1 / 3, 1, 3]])
    >>> print(Sequential([Sigmoid()], input_shape=(3,)).predict(np.log(odds)).round(3))
    [[0.25 0.5  0.75]]
    """

    function = "sigmoid"
    active_range = (-4.4, 4.4)
    output_kind = "other"


class Tanh(_Activation):
    """Hyperbolic tangent, a sigmoid from -1 to 1 with a slope of 1 at 0.

    Computes `y = tanh(x)`, for any shape.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Tanh
    >>> model = Sequential([Tanh()], input_shape=(4,))
    >>> print(model.predict([[-1, 0, 1, 20]]).round(3))
    [[-0.762  0.     0.762  1.   ]]
    >>> print(model.input_gradient([[-1, 0, 1, 20]], dscores=[[1] * 4]).round(3))  # 1 - y**2: it vanishes at 20
    [[0.42 1.   0.42 0.  ]]
    """

    function = "tanh"
    active_range = (-2.2, 2.2)


class Tanhshrink(_Activation):
    """Difference of `x` and its tanh, which shrinks numbers near 0 most.

    Computes `y = x - tanh(x)`, for any shape.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Tanhshrink
    >>> print(Sequential([Tanhshrink()], input_shape=(3,)).predict([[0.1, 1, 10]]).round(3))
    [[0.    0.238 9.   ]]
    """

    function = "tanhshrink"


class Exp(_Activation):
    """Exponential, Keras's "exponential": for positive outputs, such as rates.

    Computes `y = exp(x)`, for any shape.

    Examples
    --------
    >>> import numpy as np
    >>> from minidl import Sequential
    >>> from minidl.layers import Exp
    >>> print(Sequential([Exp()], input_shape=(3,)).predict(np.log([[0.5, 1, 3]])).round(3))
    [[0.5 1.  3. ]]
    """

    function = "exp"


class Log(_Activation):
    """Natural logarithm.

    Computes `y = log(x)`, for any shape: minus infinity at 0, NaN below. The derivative is `1 / x`, infinite at 0.

    See Also
    --------
    LogSoftmax, LogSigmoid : Logarithms of probabilities that do not overflow.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Log
    >>> model = Sequential([Log()], input_shape=(3,))
    >>> print(model.predict([[0.5, 1, 2]]).round(3))
    [[-0.693  0.     0.693]]
    >>> print(model.input_gradient([[0.5, 1, 2]], dscores=[[1, 1, 1]]))
    [[2.  1.  0.5]]
    """

    function = "log"


class Sqrt(_Activation):
    """Square root.

    Computes `y = sqrt(x)`, for any shape: NaN below 0. The derivative is `1 / (2 * y)`, infinite at 0.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Sqrt
    >>> model = Sequential([Sqrt()], input_shape=(3,))
    >>> print(model.predict([[0.25, 1, 4]]))
    [[0.5 1.  2. ]]
    >>> print(model.input_gradient([[0.25, 1, 4]], dscores=[[1, 1, 1]]))
    [[1.   0.5  0.25]]
    """

    function = "sqrt"


class Reciprocal(_Activation):
    """Reciprocal.

    Computes `y = 1 / x`, for any shape: infinite at 0. The derivative is `-y**2`.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Reciprocal
    >>> model = Sequential([Reciprocal()], input_shape=(3,))
    >>> print(model.predict([[-0.5, 1, 4]]))
    [[-2.    1.    0.25]]
    >>> print(model.input_gradient([[-0.5, 1, 4]], dscores=[[1, 1, 1]]))
    [[-4.     -1.     -0.0625]]
    """

    function = "reciprocal"


class Square(_Activation):
    """Square.

    Computes `y = x * x`, for any shape. The derivative is `2 * x`.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Square
    >>> model = Sequential([Square()], input_shape=(3,))
    >>> print(model.predict([[-3, 0, 0.5]]))
    [[9.   0.   0.25]]
    >>> print(model.input_gradient([[-3, 0, 0.5]], dscores=[[1, 1, 1]]))
    [[-6.  0.  1.]]
    """

    function = "square"


class Abs(_Activation):
    """Absolute value.

    Computes `y = |x|`, for any shape. The derivative is the sign of `x`, 0 at 0.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import Abs
    >>> model = Sequential([Abs()], input_shape=(3,))
    >>> print(model.predict([[-3, 0, 0.5]]))
    [[3.  0.  0.5]]
    >>> print(model.input_gradient([[-3, 0, 0.5]], dscores=[[1, 1, 1]]))
    [[-1.  0.  1.]]
    """

    function = "abs"


FUNCTIONS: dict[type[Layer], str] = {layer: layer.function for layer in _Activation.__subclasses__()}
