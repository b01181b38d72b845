"""PReLU: a ReLU with a learned slope below zero."""

from __future__ import annotations

import numpy as np

from minidl.layers.base import Layer
from minidl.utils.validation import Shape, check_real
from minidl_c.kernels.prelu import PReLUOp


class PReLU(Layer):
    """Parametric ReLU: a ReLU with a learned slope below zero.

    Computes `y = x if x > 0 else weight[c] * x`, for vectors (c,), images (c, h, w) and any other shape (c, ...), which
    is unchanged.

    Parameters
    ----------
    init : float, default 0.25
        Initial value of every weight.
    shared : bool, default False
        Whether all channels share one weight.

    Raises
    ------
    TypeError, ValueError
        In `build`, unless `init` is a finite number and `shared` a bool.

    Notes
    -----
    Learned parameters: `weight` (c,), or (1,) if shared. Exclude it from weight decay, which would turn the layer into
    a ReLU.

    The derivative at 0 is `weight[c]`, as in PyTorch. NaN stays NaN.

    References
    ----------
    He, Zhang, Ren and Sun, "Delving Deep into Rectifiers" (2015), arXiv:1502.01852.

    Examples
    --------
    >>> from minidl import Sequential
    >>> from minidl.layers import PReLU
    >>> model = Sequential([PReLU()], input_shape=(3,))
    >>> model.predict([[-4, 0, 4]]).tolist(), model.params["0.weight"].value.tolist()
    ([[-1.0, 0.0, 4.0]], [0.25, 0.25, 0.25])
    """

    def __init__(self, *, init: float = 0.25, shared: bool = False) -> None:
        self.init = init
        self.shared = shared

    def build(self, in_shape: Shape) -> Shape:
        first = check_real("init", self.init, self.dtype)
        if not isinstance(self.shared, bool):
            raise TypeError(f"shared: expected True or False, got {self.shared!r}")
        self.op = PReLUOp(in_shape, self.shared, self.dtype)
        self.weight = self.param("weight", (self.op.n_param,), lambda rng, shape: np.full(shape, first))
        return in_shape
