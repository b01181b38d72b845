"""Optimizers with an adaptive rate for each parameter: Adagrad, RMSprop, Adam and AdamW, as in torch.optim."""

from __future__ import annotations

from minidl.optimizers.base import Optimizer, Rate
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import check_bool, check_fraction, check_non_negative, check_normal_float
from minidl_c.optimizers.adaptive import AdagradUpdate, AdamUpdate, RMSpropUpdate
from minidl_c.optimizers.update import Update


class Adagrad(Optimizer):
    """Adagrad, as `torch.optim.Adagrad`: divides by the root of the sum of all squared gradients.

    Computes, for each parameter w with gradient g, in step t counted from 0::

        s = s + g^2
        w = w - lr / (1 + t * lr_decay) * g / (sqrt(s) + eps)

    Parameters
    ----------
    lr : float or callable, default 0.01
        Learning rate, a number or a function of the step; see `Optimizer`.
    lr_decay : float, default 0.0
        Decay of the rate: that of step t is `lr / (1 + t * lr_decay)`.
    weight_decay : float, default 0.0
        Adds `weight_decay * w` to g, of every parameter, including biases.
    initial_accumulator_value : float, default 0.0
        First value of s.
    eps : float, default 1e-10
        Added to the root, at least 1.2e-38: float32 has to represent it.

    Raises
    ------
    TypeError, ValueError
        For negative values, or an `eps` that float32 cannot represent.

    References
    ----------
    Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", Journal of
    Machine Learning Research 12 (2011).

    Examples
    --------
    With a constant gradient, of any size, step n is lr / sqrt(n): 0.1, 0.071, 0.058.

    >>> import numpy as np
    >>> from minidl import Param
    >>> from minidl.optimizers import Adagrad
    >>> w, optimizer, path = Param(np.ones(1)), Adagrad(lr=0.1), []
    >>> w.grad = [5.0]
    >>> for _ in range(3):
    ...     optimizer.step({"w": w}, optimizer.lr)
    ...     path.append(round(w.value.item(), 3))
    >>> path
    [0.9, 0.829, 0.772]
    """

    def __init__(
        self,
        lr: Rate = 0.01,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(lr)
        self._lr_decay = check_non_negative("lr_decay", lr_decay)
        self._weight_decay = check_non_negative("weight_decay", weight_decay, "float32")
        first = check_non_negative("initial_accumulator_value", initial_accumulator_value, "float32")
        self._initial_accumulator_value = first
        self._eps = check_normal_float("eps", eps)

    lr_decay, weight_decay = readonly_argument("lr_decay"), readonly_argument("weight_decay")
    initial_accumulator_value, eps = readonly_argument("initial_accumulator_value"), readonly_argument("eps")

    def update(self, size: int, dtype: str) -> Update:
        return AdagradUpdate(size, dtype, self.lr_decay, self.weight_decay, self.initial_accumulator_value, self.eps)


class RMSprop(Optimizer):
    """RMSprop, as `torch.optim.RMSprop`: divides by the root of a running average of squared gradients.

    Computes, for each parameter w with gradient g::

        s = alpha * s + (1 - alpha) * g^2
        b = momentum * b + g / (sqrt(s) + eps)
        w = w - lr * b

    Parameters
    ----------
    lr : float or callable, default 0.01
        Learning rate, a number or a function of the step; see `Optimizer`.
    alpha : float, default 0.99
        Factor of the running averages, in [0, 1).
    eps : float, default 1e-8
        Added to the root, at least 1.2e-38: float32 has to represent it.
    weight_decay : float, default 0.0
        Adds `weight_decay * w` to g, of every parameter, including biases.
    momentum : float, default 0.0
        Factor of b, in [0, 1).
    centered : bool, default False
        Whether to replace s below the root by s minus the square of g's running average: the variance of g.

    Raises
    ------
    TypeError, ValueError
        For negative values, an `alpha` or a `momentum` outside [0, 1), or an `eps` that float32 cannot represent.

    Notes
    -----
    If a variance is negative by rounding, it counts as zero; PyTorch's root is NaN.

    References
    ----------
    Hinton, "Neural Networks for Machine Learning", lecture 6e (2012).

    Graves, "Generating Sequences With Recurrent Neural Networks" (2013), arXiv:1308.0850: the centered form.

    Examples
    --------
    As s starts at 0, the first step is lr / sqrt(1 - alpha), ten times lr, for any gradient:

    >>> import numpy as np
    >>> from minidl import Param
    >>> from minidl.optimizers import RMSprop
    >>> w = Param(np.ones(2))
    >>> w.grad = [0.001, 1000.0]
    >>> RMSprop().step({"w": w}, lr=0.01)
    >>> w.value.round(3).tolist()
    [0.9, 0.9]
    """

    def __init__(
        self,
        lr: Rate = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(lr)
        self._alpha = check_fraction("alpha", alpha)
        self._eps = check_normal_float("eps", eps)
        self._weight_decay = check_non_negative("weight_decay", weight_decay, "float32")
        self._momentum, self._centered = check_fraction("momentum", momentum), check_bool("centered", centered)

    alpha, eps, weight_decay = readonly_argument("alpha"), readonly_argument("eps"), readonly_argument("weight_decay")
    momentum, centered = readonly_argument("momentum"), readonly_argument("centered")

    def update(self, size: int, dtype: str) -> Update:
        return RMSpropUpdate(size, dtype, self.alpha, self.eps, self.weight_decay, self.momentum, self.centered)


class Adam(Optimizer):
    """Adam, as `torch.optim.Adam`: running averages of the gradient and of its square.

    Computes, for each parameter w with gradient g, in step t counted from 1::

        m = beta1 * m + (1 - beta1) * g
        s = beta2 * s + (1 - beta2) * g^2
        w = w - lr * m / (1 - beta1^t) / (sqrt(s / (1 - beta2^t)) + eps)

    Parameters
    ----------
    lr : float or callable, default 0.001
        Learning rate, a number or a function of the step; see `Optimizer`.
    betas : (float, float), default (0.9, 0.999)
        Factors beta1 and beta2 of the running averages, in [0, 1).
    eps : float, default 1e-8
        Added to the root, at least 1.2e-38: float32 has to represent it.
    weight_decay : float, default 0.0
        Adds `weight_decay * w` to g, of every parameter, including biases.
    amsgrad : bool, default False
        Whether to replace s by the largest s so far (AMSGrad).

    Raises
    ------
    TypeError, ValueError
        For negative values, betas outside [0, 1), or an `eps` that float32 cannot represent.

    References
    ----------
    Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015), arXiv:1412.6980.

    Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond" (2018), arXiv:1904.09237: AMSGrad.

    Examples
    --------
    The first step has the length lr, for small and for large gradients:

    >>> import numpy as np
    >>> from minidl import Param
    >>> from minidl.optimizers import Adam
    >>> w = Param(np.ones(3))
    >>> w.grad = [0.001, 1000.0, -1000.0]
    >>> Adam().step({"w": w}, lr=0.1)
    >>> w.value.round(3).tolist()
    [0.9, 0.9, 1.1]
    """

    _decoupled = False

    def __init__(
        self,
        lr: Rate = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(lr)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise TypeError(f"betas: expected a pair of numbers, got {betas!r}")
        self._betas = check_fraction("betas", betas[0]), check_fraction("betas", betas[1])
        self._eps = check_normal_float("eps", eps)
        self._weight_decay = check_non_negative("weight_decay", weight_decay, "float32")
        self._amsgrad = check_bool("amsgrad", amsgrad)

    betas, eps, weight_decay, amsgrad = (
        readonly_argument("betas"),
        readonly_argument("eps"),
        readonly_argument("weight_decay"),
        readonly_argument("amsgrad"),
    )

    def update(self, size: int, dtype: str) -> Update:
        return AdamUpdate(size, dtype, *self.betas, self.eps, self.weight_decay, self.amsgrad, self._decoupled)


class AdamW(Adam):
    """Adam with decoupled weight decay, as `torch.optim.AdamW`.

    Each step begins with `w = w * (1 - lr * weight_decay)`, and the gradient is not changed. Otherwise it is `Adam`.

    Parameters
    ----------
    lr : float or callable, default 0.001
        Learning rate, a number or a function of the step; see `Optimizer`.
    betas : (float, float), default (0.9, 0.999)
        Factors beta1 and beta2 of the running averages, in [0, 1).
    eps : float, default 1e-8
        Added to the root, at least 1.2e-38: float32 has to represent it.
    weight_decay : float, default 0.01
        Decay of every parameter, including biases, relative to the rate.
    amsgrad : bool, default False
        Whether to replace s by the largest s so far (AMSGrad).

    Raises
    ------
    TypeError, ValueError
        For negative values, betas outside [0, 1), or an `eps` that float32 cannot represent.

    References
    ----------
    Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), arXiv:1711.05101.

    Examples
    --------
    With a gradient of 0, the weights shrink by the factor 1 - lr * weight_decay. Adam would divide the decay by its own
    size:

    >>> import numpy as np
    >>> from minidl import Param
    >>> from minidl.optimizers import Adam, AdamW
    >>> a, b = Param(np.array([1.0, 10.0])), Param(np.array([1.0, 10.0]))
    >>> AdamW(weight_decay=0.5).step({"w": a}, lr=0.1)
    >>> Adam(weight_decay=0.5).step({"w": b}, lr=0.1)
    >>> a.value.round(3).tolist(), b.value.round(3).tolist()
    ([0.95, 9.5], [0.9, 9.9])
    """

    _decoupled = True

    def __init__(
        self,
        lr: Rate = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, amsgrad)
