"""Optimizers with an adaptive rate for each parameter: Adagrad, RMSprop, Adam and AdamW, as in torch.optim."""

from __future__ import annotations

from minidl.optimizers.base import Optimizer, Rate
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import check_bool, check_fraction, check_non_negative, check_normal_float
from minidl_c.optimizers.adaptive import AdagradUpdate, AdamUpdate, RMSpropUpdate
from minidl_c.optimizers.update import Update


class Adagrad(Optimizer):
    """Adagrad, as torch.optim.Adagrad (Duchi et al., 2011): s += g^2, then w -= rate * g / (sqrt(s) + eps).

    The rate of step t, counted from 0, is lr / (1 + t * lr_decay); s starts at initial_accumulator_value.

    Raises TypeError or ValueError for negative values, or an eps that float32 cannot represent: below 1.2e-38.
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
    """RMSprop, as torch.optim.RMSprop (Hinton, 2012): s = alpha * s + (1 - alpha) * g^2, w -= lr * g / (sqrt(s) + eps).

    momentum: b = momentum * b + g / (sqrt(s) + eps), then w -= lr * b. weight_decay: adds weight_decay * w to g.
    centered: replaces s below the root by s minus the square of g's running average: the variance of g (Graves, 2013).

    Raises TypeError or ValueError for negative values, an alpha or a momentum outside [0, 1), or an eps that float32
    cannot represent: below 1.2e-38.
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
    """Adam, as torch.optim.Adam (Kingma and Ba, 2015), with steps t counted from 1:

    m = beta1 * m + (1 - beta1) * g, s = beta2 * s + (1 - beta2) * g^2,
    w -= lr * m / (1 - beta1^t) / (sqrt(s / (1 - beta2^t)) + eps).

    weight_decay: adds weight_decay * w to g. amsgrad: replaces s by the largest s so far (Reddi et al., 2018).

    Raises TypeError or ValueError for negative values, betas outside [0, 1), or an eps below 1.2e-38.
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
    """Adam with decoupled weight decay, as torch.optim.AdamW (Loshchilov and Hutter, 2019).

    Each step begins with w *= 1 - lr * weight_decay, and the gradient is not changed. Otherwise as Adam.
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
