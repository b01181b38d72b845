"""Muon: SGD with momentum in which the step of a matrix is orthogonalized, as torch.optim.Muon."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.optimizers.base import Optimizer, Rate
from minidl.utils.arrays import Array
from minidl.utils.constructors import readonly_argument
from minidl.utils.validation import (
    check_bool,
    check_choice,
    check_fraction,
    check_int,
    check_non_negative,
    check_normal_float,
    check_real,
)
from minidl_c.kernels.dense import DenseOp
from minidl_c.optimizers.sgd import SGDUpdate
from minidl_c.optimizers.update import Update
from minidl_c.runtime.plan import Plan

Coefficients = tuple[float, float, float]
Product = Callable[[Array, Array], Array]
Views = Callable[[Array], Mapping[str, Array]]
MAX_NS_STEPS = 99  # as in PyTorch


class Muon(Optimizer):
    """Muon, as `torch.optim.Muon`: SGD with momentum in which the step of a matrix is orthogonalized.

    Computes, for each parameter w with gradient g::

        v = momentum * v + g
        u = g + momentum * v                       (not Nesterov's form: v)
        u = scale * orthogonalized(u)              (for a matrix)
        w = w - lr * (u + weight_decay * w)

    An orthogonalized matrix keeps its singular vectors, and its singular values become about 1: a step has the same
    length in all directions, also in those with small gradients. Matrices are the parameters of two or more axes, with
    the first axis as rows: in a weight of `Dense` or `Conv2D`, a row is a unit or a filter. The other parameters, such
    as biases, have the step of SGD.

    Parameters
    ----------
    lr : float or callable, default 0.001
        Learning rate, a number or a function of the step; see `Optimizer`.
    weight_decay : float, default 0.1
        Decay of every parameter, including biases, relative to the rate.
    momentum : float, default 0.95
        Factor of the velocity v, in [0, 1).
    nesterov : bool, default True
        Whether to use Nesterov's form.
    ns_coefficients : (float, float, float), default (3.4445, -4.775, 2.0315)
        Coefficients a, b and c of the Newton-Schulz iteration.
    eps : float, default 1e-7
        Smallest norm of `(1 - momentum) * u`, at least 1.2e-38: below it, the singular values of a step are smaller.
    ns_steps : int, default 5
        Number of iterations, from 1 to 99.
    adjust_lr_fn : {None, "original", "match_rms_adamw"}, default None
        Scale of a matrix of m rows and n columns. None and "original": `sqrt(max(1, m / n))`. "match_rms_adamw":
        `0.2 * sqrt(max(m, n))`, for learning rates and weight decays that suit AdamW.
    exclude : list or tuple of str, default ()
        Names of matrices that have the step of SGD: "9.weight", or "weight" for all of this name.

    Raises
    ------
    TypeError, ValueError
        For negative values, a momentum outside [0, 1), or other arguments that are not as described.

    Notes
    -----
    `orthogonalized` takes the shorter side of the matrix as rows, divides it by its Frobenius norm, and then computes
    `ns_steps` times::

        A = x x^T
        x = (a * I + b * A + c * A A) x

    An iteration takes `2 * m^2 * n + m^3` multiply-adds for m rows, in the dtype of the model (in PyTorch: bfloat16).
    The matrix products are those of `Dense`, so the bits do not depend on the number of threads or on NumPy's BLAS.

    Embeddings and the last layer should be excluded (Jordan et al.). So should parameters that have several axes but
    are no matrices: those of `Scale`, and of a `LayerNorm` of images. `model.set_param_group` sets rates and decays of
    some parameters, such as biases.

    References
    ----------
    Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024),
    https://kellerjordan.github.io/posts/muon/

    Liu et al., "Muon is Scalable for LLM Training" (2025), arXiv:2502.16982: "match_rms_adamw".

    Examples
    --------
    The step of a matrix has about the length lr in each direction, for large and for small gradients:

    >>> import numpy as np
    >>> from minidl import Param
    >>> from minidl.optimizers import Muon
    >>> w = Param(np.zeros((2, 2)))
    >>> w.grad = [[1000.0, 0.0], [0.0, 300.0]]
    >>> Muon().step({"w": w}, lr=0.1)
    >>> w.value.round(2).tolist()
    [[-0.08, 0.0], [0.0, -0.09]]
    """

    def __init__(
        self,
        lr: Rate = 0.001,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: Coefficients = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        exclude: Sequence[str] = (),
    ) -> None:
        super().__init__(lr)
        self._weight_decay = check_non_negative("weight_decay", weight_decay, "float32")
        self._momentum, self._nesterov = check_fraction("momentum", momentum), check_bool("nesterov", nesterov)
        if not isinstance(ns_coefficients, (tuple, list)) or len(ns_coefficients) != 3:
            raise TypeError(f"ns_coefficients: expected three numbers, got {ns_coefficients!r}")
        a, b, c = (check_real("ns_coefficients", number, "float32") for number in ns_coefficients)
        self._ns_coefficients, self._eps = (a, b, c), check_normal_float("eps", eps)
        self._ns_steps = check_int("ns_steps", ns_steps, 1, MAX_NS_STEPS)
        self._adjust_lr_fn = check_choice("adjust_lr_fn", adjust_lr_fn, None, "original", "match_rms_adamw")
        self._exclude = _names(exclude)

    weight_decay, momentum, nesterov = (
        readonly_argument("weight_decay"),
        readonly_argument("momentum"),
        readonly_argument("nesterov"),
    )
    ns_coefficients, eps, ns_steps = (
        readonly_argument("ns_coefficients"),
        readonly_argument("eps"),
        readonly_argument("ns_steps"),
    )
    adjust_lr_fn, exclude = readonly_argument("adjust_lr_fn"), readonly_argument("exclude")

    def update(self, size: int, dtype: str, named_views: Views | None = None) -> Update:
        """Returns the form of the optimizer that updates flat parameters and holds their state.

        Parameters
        ----------
        size : int
            Number of parameters.
        dtype : "float32" or "float64"
            Their dtype.
        named_views : callable or None, default None
            Function that returns, for a flat array, views of it in the shapes of the model's parameters, by name. None:
            there are no matrices.

        Returns
        -------
        minidl_c.optimizers.update.Update
            A new object, whose state is that before the first step.

        Raises
        ------
        ValueError
            For a name in `exclude` that the model does not have.
        """
        update = _MuonUpdate(self, size, dtype, named_views)
        for name in self.exclude if named_views is not None else ():
            if not any(name in _ends(known) for known in update.names):
                expected = f"expected names of parameters of the model ({', '.join(update.names)})"
                raise ValueError(f"exclude: {expected}, got {name!r}")
        return update

    def _update_of(self, name: str, value: Array) -> Update:
        return _MuonUpdate(self, value.size, value.dtype.name, lambda flat: {name: flat.reshape(value.shape)})


class _MuonUpdate(Update):
    """Muon for flat parameters, in Python; what is elementwise is native, and has the ranges of parameter groups."""

    def __init__(self, optimizer: Muon, size: int, dtype: str, named_views: Views | None) -> None:
        self.optimizer, self.direction, self.product = optimizer, np.zeros(size, dtype), _new_product()
        self._momentum = SGDUpdate(size, dtype, optimizer.momentum, optimizer.nesterov)
        self._descent = SGDUpdate(size, dtype, weight_decay=optimizer.weight_decay)
        shaped = {} if named_views is None else named_views(self.direction)
        self.names, exclude = list(shaped), set(optimizer.exclude)
        matrices = {name: view for name, view in shaped.items() if view.ndim > 1 and view.size}
        self.matrices = [view for name, view in matrices.items() if exclude.isdisjoint(_ends(name))]

    @property
    def state(self) -> dict[str, Array]:
        """The state by name: the arrays themselves (size,)."""
        state: dict[str, Array] = self._momentum.state
        return state

    @property
    def steps(self) -> int:
        """The number of steps."""
        return int(self._descent.steps)

    @steps.setter
    def steps(self, steps: int) -> None:
        self._descent.steps = self._momentum.steps = steps

    def apply(
        self, param: Array, grad: Array, rate: float, step_counter: NDArray[np.int64] | None = None, ranges: Any = None
    ) -> None:
        """Updates the flat parameters once; see Update.apply. ranges: engine.param_groups.Ranges."""
        o, direction, eps = self.optimizer, self.direction, self.optimizer.eps / (1 - self.optimizer.momentum)
        direction[...] = 0
        self._momentum.apply(direction, grad, -1.0, None, None if ranges is None else ranges.unscaled)
        with np.errstate(over="ignore", invalid="ignore"):  # weights may become infinite, as by native optimizers
            for view in self.matrices:
                u = view.reshape(len(view), -1)  # zeros while its layer is frozen
                u = _orthogonalized(u, o.ns_coefficients, o.ns_steps, eps, self.product)
                view[...] = (u * u.dtype.type(_scale(o.adjust_lr_fn, *u.shape))).reshape(view.shape)
        self._descent.apply(param, direction, rate, step_counter, ranges)


def _scale(adjust_lr_fn: str | None, rows: int, columns: int) -> float:
    if adjust_lr_fn == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


def _orthogonalized(u: Array, coefficients: Coefficients, steps: int, eps: float, product: Product) -> Array:
    """Returns a matrix with the singular vectors of u and singular values of about 1; of zeros, zeros.

    eps: a smaller norm counts as eps. product: what `_new_product` returned.
    """
    largest = float(np.abs(u).max())
    if largest == 0:
        return u
    if u.shape[0] > u.shape[1]:
        return _orthogonalized(u.T, coefficients, steps, eps, product).T
    a, b, c = (u.dtype.type(number) for number in coefficients)
    x = np.divide(u, u.dtype.type(largest), order="C")  # so that no square overflows
    gram = product(x, np.ascontiguousarray(x.T))
    norm = u.dtype.type(max(math.sqrt(math.fsum(gram.diagonal())), eps / largest))  # fsum: its bits have no order
    x, gram = x / norm, gram / norm / norm
    for step in range(steps):
        if step > 0:
            gram = product(x, np.ascontiguousarray(x.T))
        factor = c * product(gram, gram) + b * gram
        np.fill_diagonal(factor, factor.diagonal() + a)
        x = product(factor, x)
    return x


def _new_product() -> Product:
    """Returns a function that multiplies matrices as a layer Dense does: threads change no bit.

    It keeps its plans, which take longer to make than to run for a small matrix.
    """

    @functools.cache
    def dense(inputs: int, outputs: int, dtype: str) -> Plan:
        return Plan([DenseOp((inputs,), outputs, dtype, use_bias=False)], [0])

    def product(x: Array, w: Array) -> Array:
        y = np.empty((len(x), w.shape[1]), x.dtype)
        dense(*w.shape, x.dtype.name).predict(x, None, w.reshape(-1), y, None)
        return y

    return product


def _ends(name: str) -> set[str]:
    """Returns what names a parameter: "9.weight" and "weight"."""
    return {name, name.rpartition(".")[2]}


def _names(names: Any) -> tuple[str, ...]:
    """Returns the names as a tuple; raises TypeError for anything else."""
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"exclude: expected a list of names of parameters, got {names!r}")
    return tuple(names)
