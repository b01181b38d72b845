"""Learning rates as functions of the step: PyTorch's values, the rate after the last step, arguments, reprs."""

import math

import numpy as np
import pytest

from minidl import schedules
from minidl.optimizers import SGD
from minidl.optimizers.base import rate_at
from minidl.schedules import Cosine, Exponential, MultiStep, OneCycle, Polynomial, Schedule, Step

SEVERAL = [
    *(Step(0.3, 7), Step(0.3, 1, gamma=0.97), MultiStep(0.3, (5, 20, 21)), MultiStep(0.3, [], gamma=0.5)),
    *(Exponential(0.3, 0.9), Exponential(1e-4, 1.2), Polynomial(0.3, 60), Polynomial(0.3, 37, power=2.5)),
    *(Cosine(0.3, 60), Cosine(0.3, 40, min_lr=0.01), Cosine(0.3, 40, 0.01, warmup_steps=9), Cosine(0.3, 2, 0.0, 1)),
    *(OneCycle(0.3, 60), OneCycle(0.3, 41, 0.25, "linear", 10.0, 100.0), OneCycle(0.3, 37, pct_start=1.0)),
    OneCycle(0.3, 20, pct_start=0.0),
]
each = pytest.mark.parametrize("schedule", SEVERAL, ids=repr)


def of_pytorch(schedule, optimizer):
    """Returns PyTorch's scheduler, and for how many steps both agree."""
    from torch.optim import lr_scheduler as theirs

    s, forever = schedule, 60
    if isinstance(s, Step):
        return theirs.StepLR(optimizer, s.step_size, s.gamma), forever
    if isinstance(s, MultiStep):
        return theirs.MultiStepLR(optimizer, list(s.milestones), s.gamma), forever
    if isinstance(s, Exponential):
        return theirs.ExponentialLR(optimizer, s.gamma), forever
    if isinstance(s, Polynomial):
        return theirs.PolynomialLR(optimizer, s.total_steps, s.power), forever
    if isinstance(s, OneCycle):
        more = (s.pct_start, s.anneal_strategy, False, 0.85, 0.95, s.div_factor, s.final_div_factor)
        return theirs.OneCycleLR(optimizer, s.max_lr, s.total_steps, None, None, *more), s.total_steps
    steps = s.total_steps - s.warmup_steps
    cosine = theirs.CosineAnnealingLR(optimizer, steps, s.min_lr)
    if not s.warmup_steps:
        return cosine, s.total_steps + 1  # it rises again
    warmup = theirs.LinearLR(optimizer, 1 / (s.warmup_steps + 1), 1.0, s.warmup_steps)
    return theirs.SequentialLR(optimizer, [warmup, cosine], [s.warmup_steps]), s.total_steps + 1


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@each
def test_each_step_has_pytorchs_rate(schedule):
    import torch

    first = schedule.max_lr if isinstance(schedule, OneCycle) else schedule.lr
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=first)
    scheduler, steps = of_pytorch(schedule, optimizer)
    for step in range(steps):
        theirs = optimizer.param_groups[0]["lr"]
        np.testing.assert_allclose(schedule(step), theirs, rtol=1e-11, atol=1e-15, err_msg=str(step))
        if step + 1 < steps:
            optimizer.step()
            scheduler.step()


@each
def test_after_the_last_step_the_rate_is_constant(schedule):
    if hasattr(schedule, "total_steps"):
        assert {schedule(step) for step in (schedule.total_steps, schedule.total_steps + 1, 10**9)} == {
            schedule(schedule.total_steps)
        }
        if isinstance(schedule, OneCycle):
            assert schedule(schedule.total_steps) == schedule(schedule.total_steps - 1)


@each
def test_repr_is_the_constructor_call(schedule):
    again = eval(repr(schedule))
    assert repr(again) == repr(schedule)
    assert [again(step) for step in range(70)] == [schedule(step) for step in range(70)]


@each
def test_an_optimizer_accepts_it(schedule):
    assert rate_at(SGD(schedule), 3) == schedule(3)
    assert type(schedule(np.int64(3))) is float


def test_the_warm_up_is_linear_and_ends_at_the_rate():
    schedule = Cosine(0.6, 20, warmup_steps=5)
    np.testing.assert_allclose([schedule(step) for step in range(6)], np.arange(1, 7) * 0.1, rtol=1e-14)


def test_one_cycle_of_one_step():
    assert OneCycle(0.5, 1, pct_start=1.0)(0) == 0.5
    assert OneCycle(0.5, 1)(0) == 0.5 / 25 / 1e4
    assert OneCycle(0.5, 10, pct_start=0.1)(0) == 0.5  # PyTorch divides by zero


def test_arguments_can_be_changed():
    schedule = Exponential(0.5, 0.5)
    schedule.lr = 1.0
    assert schedule(1) == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Step(-0.1, 3), "lr: .*got -0.1"),
        (lambda: Step(math.nan, 3), "lr: .*got nan"),
        (lambda: Step(0.1, 0), "step_size: .*at least 1, got 0"),
        (lambda: Step(0.1, 3, 0), "gamma: .*above 0, got 0"),
        (lambda: MultiStep(0.1, (5, 3)), "milestones: .*ascending order"),
        (lambda: MultiStep(0.1, (-1, 3)), "milestones: .*got -1"),
        (lambda: MultiStep(0.1, (3,), -1), "gamma: .*got -1"),
        (lambda: Exponential(0.1, math.inf), "gamma: .*got inf"),
        (lambda: Polynomial(0.1, 0), "total_steps: .*got 0"),
        (lambda: Polynomial(0.1, 5, 0), "power: .*got 0"),
        (lambda: Cosine(0.1, 5, min_lr=-1), "min_lr: .*got -1"),
        (lambda: Cosine(0.1, 5, warmup_steps=5), "warmup_steps: expected less than total_steps, 5, got 5"),
        (lambda: Cosine(0.1, 5, warmup_steps=-1), "warmup_steps: .*got -1"),
        (lambda: OneCycle(-1, 5), "max_lr: .*got -1"),
        (lambda: OneCycle(1, 5, pct_start=1.1), "pct_start: .*got 1.1"),
        (lambda: OneCycle(1, 5, anneal_strategy="cosine"), "anneal_strategy: .*got 'cosine'"),
        (lambda: OneCycle(1, 5, div_factor=0), "div_factor: .*got 0"),
        (lambda: OneCycle(1, 5, final_div_factor=0), "final_div_factor: .*got 0"),
        (lambda: Step(0.1, 3)(-1), "step: .*got -1"),
        (lambda: Exponential(0.1, 10)(1000), "lr: .*got inf"),
    ],
)
def test_invalid_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Step("0.1", 3), "lr"),
        (lambda: Step(0.1, 3.0), "step_size"),
        (lambda: Step(0.1, 3, None), "gamma"),
        (lambda: MultiStep(0.1, 3), "milestones"),
        (lambda: MultiStep(0.1, (1.5,)), "milestones"),
        (lambda: Polynomial(0.1, "5"), "total_steps"),
        (lambda: Cosine(0.1, 5, None), "min_lr"),
        (lambda: Cosine(0.1, 5, 0, 1.5), "warmup_steps"),
        (lambda: OneCycle(0.1, 5, None), "pct_start"),
        (lambda: Step(0.1, 3)(1.0), "step"),
        (lambda: SGD(Cosine), "lr"),
    ],
)
def test_non_numbers_are_refused(make, name):
    with pytest.raises(TypeError, match=f"^{name}: "):
        make()


def test_every_schedule_is_tested():
    classes = {c for c in vars(schedules).values() if isinstance(c, type) and issubclass(c, Schedule)}
    assert classes - {Schedule} == {type(schedule) for schedule in SEVERAL}
