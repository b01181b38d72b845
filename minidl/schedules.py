"""Learning rate schedules: functions of the step that an optimizer takes as its `lr`, such as SGD(Cosine(0.1, 1000)).

Steps, not epochs, are counted over the whole run, from 0; their total is `steps_per_epoch * epochs`. The formulas are
those of torch.optim.lr_scheduler with steps in place of epochs. After the last step the rate stays constant.

The arguments are attributes that may be changed one at a time; a new value must be valid together with the others.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from typing import Any

from minidl.optimizers.base import check_rate
from minidl.utils.constructors import constructor_repr, parameters
from minidl.utils.foreign_words import SCHEDULES
from minidl.utils.hints import answer_arguments, unknown_names
from minidl.utils.validation import check_choice, check_int, check_non_negative, check_positive, check_real

__all__ = [
    "Cosine",
    "Exponential",
    "MultiStep",
    "OneCycle",
    "Polynomial",
    "Schedule",
    "Step",
]


class Schedule:
    """Base class of minidl's schedules: `schedule(step)` returns the rate of a step.

    A subclass defines `rate`. The step is the number of finished steps of the whole run; steps, not epochs, are
    counted. The formulas of the built-in schedules are those of `torch.optim.lr_scheduler` with steps in place of
    epochs. After the last step the rate stays constant.

    The arguments of a built-in schedule are attributes that may be changed one at a time; a new value must be valid
    together with the others.

    Raises
    ------
    TypeError, ValueError
        In the constructor, and when an attribute is set, which then keeps its value. The message names the argument.
        Invalid are rates below 0, infinite rates, factors and powers that are not above 0, and steps that are not
        integers of at least 0 (`total_steps`, `step_size`: at least 1).

    Examples
    --------
    >>> from minidl.optimizers import SGD
    >>> from minidl.schedules import Schedule
    >>> class InverseRoot(Schedule):
    ...     def __init__(self, lr):
    ...         self.lr = lr
    ...     def rate(self, step):
    ...         return self.lr / (step + 1) ** 0.5
    >>> optimizer = SGD(InverseRoot(0.1))
    >>> [optimizer.lr(step) for step in (0, 3, 99)]
    [0.1, 0.05, 0.01]

    Training goes on for longer than planned:

    >>> from minidl.schedules import Cosine
    >>> rate = Cosine(0.1, total_steps=1000)
    >>> rate.total_steps = 2000
    >>> rate
    Cosine(lr=0.1, total_steps=2000, min_lr=0.0, warmup_steps=0)
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        answer_arguments(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an argument to the value that the constructor would store, given all others."""
        cls = next(cls for cls in type(self).__mro__ if cls.__module__ == __name__)
        names = [] if cls is Schedule else list(parameters(cls))
        if name in names and all(other in vars(self) for other in names):  # otherwise the constructor is running
            value = getattr(cls(**{other: vars(self)[other] for other in names} | {name: value}), name)
        super().__setattr__(name, value)

    def __call__(self, step: int) -> float:
        """Returns the rate of a step, and checks that it is finite and at least 0.

        Parameters
        ----------
        step : int
            Number of finished steps, at least 0.

        Returns
        -------
        float
            The rate.

        Raises
        ------
        TypeError, ValueError
            For a step that is not an integer of at least 0, or an invalid rate.
        """
        return check_rate(self.rate(check_int("step", step, minimum=0)))

    def rate(self, step: int) -> float:
        """Evaluates the formula at a step.

        Parameters
        ----------
        step : int
            Number of finished steps, at least 0.

        Returns
        -------
        float
            The rate.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return constructor_repr(self)


class Step(Schedule):
    """Step decay: multiplies lr by gamma after every `step_size` steps, as StepLR.

    The rate is `lr * gamma^(step // step_size)`.

    Parameters
    ----------
    lr : float
        Rate of the first step.
    step_size : int
        Number of steps with the same rate, at least 1.
    gamma : float, default 0.1
        Factor, above 0.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments, as `Schedule`.

    Examples
    --------
    >>> from minidl.schedules import Step
    >>> [Step(1.0, step_size=10, gamma=0.5)(step) for step in (0, 9, 10, 20)]
    [1.0, 1.0, 0.5, 0.25]
    """

    def __init__(self, lr: float, step_size: int, gamma: float = 0.1) -> None:
        self.lr, self.step_size, self.gamma = (
            check_rate(lr),
            check_int("step_size", step_size),
            check_positive("gamma", gamma),
        )

    def rate(self, step: int) -> float:
        """Returns `lr * gamma^(step // step_size)`.

        Parameters
        ----------
        step : int
            Number of finished steps, at least 0.

        Returns
        -------
        float
            The rate.
        """
        return self.lr * _power(self.gamma, step // self.step_size)


class MultiStep(Schedule):
    """Step decay at given steps: multiplies lr by gamma at each of the milestones, as MultiStepLR.

    The rate is `lr * gamma^(number of milestones reached)`.

    Parameters
    ----------
    lr : float
        Rate of the first step.
    milestones : sequence of int
        Steps in ascending order, a tuple or a list.
    gamma : float, default 0.1
        Factor, above 0.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments, as `Schedule`.

    Examples
    --------
    >>> from minidl.schedules import MultiStep
    >>> [MultiStep(1.0, milestones=(10, 15), gamma=0.5)(step) for step in (9, 10, 15)]
    [1.0, 0.5, 0.25]
    """

    def __init__(self, lr: float, milestones: Sequence[int], gamma: float = 0.1) -> None:
        if not isinstance(milestones, (tuple, list)):
            raise TypeError(f"milestones: expected a tuple or list of steps, got {milestones!r}")
        self.lr, self.gamma = check_rate(lr), check_positive("gamma", gamma)
        self.milestones = tuple(check_int("milestones", milestone, minimum=0) for milestone in milestones)
        if list(self.milestones) != sorted(self.milestones):
            raise ValueError(f"milestones: expected steps in ascending order, got {milestones!r}")

    def rate(self, step: int) -> float:
        """Returns `lr * gamma^(number of milestones reached)`.

        Parameters
        ----------
        step : int
            Number of finished steps, at least 0.

        Returns
        -------
        float
            The rate.
        """
        return self.lr * _power(self.gamma, sum(milestone <= step for milestone in self.milestones))


class Exponential(Schedule):
    """Exponential decay: multiplies lr by gamma after every step, as ExponentialLR.

    The rate is `lr * gamma^step`. A gamma above 1 suits a learning rate range test.

    Parameters
    ----------
    lr : float
        Rate of the first step.
    gamma : float
        Factor, above 0.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments, as `Schedule`.

    Examples
    --------
    >>> from minidl.schedules import Exponential
    >>> [Exponential(1.0, gamma=0.5)(step) for step in (0, 1, 2)]
    [1.0, 0.5, 0.25]

    A range test from 1e-5 to 1 in 100 steps:

    >>> test = Exponential(1e-5, gamma=1e5 ** (1 / 100))
    >>> [round(test(step), 5) for step in (0, 20, 40, 60, 80, 100)]
    [1e-05, 0.0001, 0.001, 0.01, 0.1, 1.0]
    """

    def __init__(self, lr: float, gamma: float) -> None:
        self.lr, self.gamma = check_rate(lr), check_positive("gamma", gamma)

    def rate(self, step: int) -> float:
        """Returns `lr * gamma^step`.

        Parameters
        ----------
        step : int
            Number of finished steps, at least 0.

        Returns
        -------
        float
            The rate.
        """
        return self.lr * _power(self.gamma, step)


class Polynomial(Schedule):
    """Polynomial decay to 0, linear by default, as PolynomialLR.

    The rate is `lr * (1 - step / total_steps)^power`, and 0 after `total_steps`.

    Parameters
    ----------
    lr : float
        Rate of the first step.
    total_steps : int
        Number of steps until the rate is 0, at least 1.
    power : float, default 1.0
        Exponent, above 0; 1: linear.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments, as `Schedule`.

    Examples
    --------
    >>> from minidl.schedules import Polynomial
    >>> [Polynomial(1.0, total_steps=4)(step) for step in (0, 1, 2, 4, 5)]
    [1.0, 0.75, 0.5, 0.0, 0.0]
    >>> [Polynomial(1.0, total_steps=4, power=2)(step) for step in (0, 1, 2, 4, 5)]
    [1.0, 0.5625, 0.25, 0.0, 0.0]
    """

    def __init__(self, lr: float, total_steps: int, power: float = 1.0) -> None:
        self.lr, self.total_steps = check_rate(lr), check_int("total_steps", total_steps)
        self.power = check_positive("power", power)

    def rate(self, step: int) -> float:
        """Returns `lr * (1 - step / total_steps)^power`.

        Parameters
        ----------
        step : int
            Number of finished steps, at least 0.

        Returns
        -------
        float
            The rate.
        """
        return self.lr * (1 - min(step, self.total_steps) / self.total_steps) ** self.power


class Cosine(Schedule):
    """Cosine decay from lr to `min_lr`, as CosineAnnealingLR, optionally after a linear warm-up.

    The rate is `min_lr + (lr - min_lr) * (1 + cos(pi * fraction)) / 2`, where `fraction` is that of the steps after the
    warm-up; after `total_steps` it is `min_lr`. The warm-up is LinearLR with a start_factor of
    `1 / (warmup_steps + 1)`.

    Parameters
    ----------
    lr : float
        Highest rate, that of the first step after the warm-up.
    total_steps : int
        Number of steps of the whole schedule, including the warm-up: `steps_per_epoch * epochs`.
    min_lr : float, default 0.0
        Last rate.
    warmup_steps : int, default 0
        Number of steps before the rate reaches lr, less than `total_steps`.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments, as `Schedule`.

    Examples
    --------
    >>> from minidl.schedules import Cosine
    >>> [round(Cosine(1.0, total_steps=4)(step), 3) for step in (0, 1, 2, 3, 4, 5)]
    [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    >>> [round(Cosine(1.0, total_steps=7, warmup_steps=3)(step), 3) for step in (0, 1, 2, 3, 4, 7)]
    [0.25, 0.5, 0.75, 1.0, 0.854, 0.0]
    """

    def __init__(self, lr: float, total_steps: int, min_lr: float = 0.0, warmup_steps: int = 0) -> None:
        self.lr, self.total_steps = check_rate(lr), check_int("total_steps", total_steps)
        self.min_lr, self.warmup_steps = (
            check_non_negative("min_lr", min_lr),
            check_int("warmup_steps", warmup_steps, minimum=0),
        )
        if self.warmup_steps >= self.total_steps:
            raise ValueError(f"warmup_steps: expected less than total_steps, {total_steps}, got {warmup_steps}")

    def rate(self, step: int) -> float:
        """Returns the rate of the warm-up, or `min_lr + (lr - min_lr) * (1 + cos(pi * fraction)) / 2`.

        Parameters
        ----------
        step : int
            Number of finished steps, at least 0.

        Returns
        -------
        float
            The rate.
        """
        if step < self.warmup_steps:
            return self.lr * (step + 1) / (self.warmup_steps + 1)
        return _interpolate(self.lr, self.min_lr, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))


class OneCycle(Schedule):
    """One cycle: rises from `max_lr / div_factor` to `max_lr` and then decays to almost 0, as OneCycleLR.

    With `anneal_strategy="linear"` it is the triangular schedule. The optimizer's momentum is not changed.

    Parameters
    ----------
    max_lr : float
        Highest rate.
    total_steps : int
        Number of steps of the whole schedule: `steps_per_epoch * epochs`.
    pct_start : float, default 0.3
        Fraction of the steps that rise, from 0 to 1.
    anneal_strategy : "cos" or "linear", default "cos"
        Shape of both parts: half a cosine wave, or a line.
    div_factor : float, default 25.0
        `max_lr` divided by it is the initial rate.
    final_div_factor : float, default 1e4
        The initial rate divided by it is the last rate, that of step `total_steps - 1`.

    Raises
    ------
    TypeError, ValueError
        For invalid arguments, as `Schedule`.

    References
    ----------
    Smith and Topin, "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates" (2018),
    arXiv:1708.07120.

    Examples
    --------
    >>> from minidl.schedules import OneCycle
    >>> [round(OneCycle(1.0, total_steps=10, pct_start=0.5)(step), 3) for step in (0, 2, 4, 9, 10)]
    [0.04, 0.52, 1.0, 0.0, 0.0]

    A triangle from 0.2 over 1 to 0.07 of `max_lr`:

    >>> triangle = OneCycle(1.0, 10, anneal_strategy="linear", div_factor=5, final_div_factor=0.2 / 0.07)
    >>> [round(triangle(step), 3) for step in range(10)]
    [0.2, 0.6, 1.0, 0.867, 0.734, 0.601, 0.469, 0.336, 0.203, 0.07]
    """

    def __init__(
        self,
        max_lr: float,
        total_steps: int,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> None:
        check_choice("anneal_strategy", anneal_strategy, "cos", "linear")
        if not 0 <= check_real("pct_start", pct_start) <= 1:
            raise ValueError(f"pct_start: expected a number in [0, 1], got {pct_start}")
        self.max_lr, self.total_steps = check_non_negative("max_lr", max_lr), check_int("total_steps", total_steps)
        self.pct_start, self.anneal_strategy = float(pct_start), anneal_strategy
        self.div_factor = check_positive("div_factor", div_factor)
        self.final_div_factor = check_positive("final_div_factor", final_div_factor)

    def rate(self, step: int) -> float:
        """Returns the rate, which peaks at `pct_start * total_steps - 1`, not always an integer.

        Parameters
        ----------
        step : int
            Number of finished steps, at least 0.

        Returns
        -------
        float
            The rate.
        """
        first, last, peak = self.max_lr / self.div_factor, self.total_steps - 1, self.pct_start * self.total_steps - 1
        linear, step = self.anneal_strategy == "linear", min(step, last)
        if step <= peak:
            return _interpolate(first, self.max_lr, step / peak if peak else 1.0, linear)
        return _interpolate(self.max_lr, first / self.final_div_factor, (step - peak) / (last - peak), linear)


def _interpolate(first: float, last: float, fraction: float, linear: bool = False) -> float:
    """Returns the value at this fraction of the way from `first` to `last`, on half a cosine wave or a line."""
    if fraction >= 1:
        return last
    if linear:
        return (last - first) * fraction + first
    return last + (first - last) * (1 + math.cos(math.pi * fraction)) / 2


def _power(base: float, exponent: int) -> float:
    """Returns base^exponent, or infinity on overflow."""
    try:
        return base**exponent
    except OverflowError:
        return math.inf


CLASSES = tuple(Schedule.__subclasses__())

if not typing.TYPE_CHECKING:  # for which an unknown name is an error of its own
    __getattr__ = unknown_names(__name__, SCHEDULES, [cls.__name__ for cls in CLASSES])
