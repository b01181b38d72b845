"""SGD, with momentum or Nesterov momentum, as torch.optim.SGD."""

from __future__ import annotations

from minidl.optimizers.base import Optimizer, Rate
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import check_bool, check_fraction, check_non_negative
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.optimizers.update import Update


class SGD(Optimizer):
    """Stochastic gradient descent, as torch.optim.SGD: v = momentum * v + g, then w -= lr * v.

    nesterov: w -= lr * (g + momentum * v) instead (Sutskever et al., 2013). weight_decay: adds weight_decay * w to g.

    Raises TypeError or ValueError for negative values, a momentum outside [0, 1), or Nesterov without momentum.
    """

    def __init__(self, lr: Rate, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> None:
        super().__init__(lr)
        self._momentum = check_fraction("momentum", momentum)
        self._nesterov = check_bool("nesterov", nesterov)
        if nesterov and momentum == 0:
            raise ValueError("nesterov: expected a momentum above 0, got 0")
        self._weight_decay = check_non_negative("weight_decay", weight_decay, "float32")

    momentum, nesterov, weight_decay = (
        readonly_argument("momentum"),
        readonly_argument("nesterov"),
        readonly_argument("weight_decay"),
    )

    def update(self, size: int, dtype: str) -> Update:
        return SGDUpdate(size, dtype, self.momentum, self.nesterov, self.weight_decay)
