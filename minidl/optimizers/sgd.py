"""SGD, with momentum or Nesterov momentum, as torch.optim.SGD."""

from __future__ import annotations

from minidl.optimizers.base import Optimizer, Rate
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import check_bool, check_fraction, check_non_negative
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.optimizers.update import Update


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum or Nesterov momentum, as `torch.optim.SGD`.

    Computes, for each parameter w with gradient g::

        v = momentum * v + g
        w = w - lr * v

    Parameters
    ----------
    lr : float or callable
        Learning rate, a number or a function of the step; see `Optimizer`.
    momentum : float, default 0.0
        Factor of the velocity v, in [0, 1).
    nesterov : bool, default False
        Whether to use Nesterov's form, `w = w - lr * (g + momentum * v)`.
    weight_decay : float, default 0.0
        Adds `weight_decay * w` to g, of every parameter, including biases.

    Raises
    ------
    TypeError, ValueError
        For negative values, a momentum outside [0, 1), or Nesterov without momentum.

    References
    ----------
    Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013): Nesterov's form.

    Examples
    --------
    With a constant gradient of 1, the steps grow by momentum: 0.1, 0.15, 0.175.

    >>> import numpy as np
    >>> from minidl import Param
    >>> from minidl.optimizers import SGD
    >>> w, optimizer, path = Param(np.ones(1)), SGD(lr=0.1, momentum=0.5), []
    >>> w.grad = [1.0]
    >>> for _ in range(3):
    ...     optimizer.step({"w": w}, optimizer.lr)
    ...     path.append(round(w.value.item(), 3))
    >>> path
    [0.9, 0.75, 0.575]
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
