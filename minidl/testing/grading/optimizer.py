"""The exercise SGD: gradient descent with momentum, and the mistakes that are known."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from minidl.layers.param import Param
from minidl.optimizers.base import Optimizer
from minidl.optimizers.sgd import SGD
from minidl.testing.grading.comparison import equal, pattern, place
from minidl.testing.grading.report import RIGHT, UNTRIED, WRONG, Report
from minidl.testing.optimizer_check import check_optimizer
from minidl.utils.arrays import Array

MOMENTUM, OWN_RATE, RATES = 0.625, 2.0, (0.25, 0.5, 1.0)  # the attribute lr is not the rate of a step
SHAPES = {"0.weight": (2, 3), "0.bias": (2,), "1.weight": (2, 3)}
Values = dict[str, Array]
Rule = Callable[[Array, Array, Any, float], tuple[Array, Any]]  # value, gradient, velocity and rate: value, velocity
M = MOMENTUM


def keeps_gradient(w: Array, g: Array, v: Any, lr: float) -> tuple[Array, Any]:
    """The velocity of the first step is the array of the gradient, in which the next gradient arrives."""
    v = M * (0 if isinstance(v, int) else g) + g
    return w - lr * v, v


MISTAKES: list[tuple[str, Rule]] = [
    ("the values stay as they are: write into p.value, when the new gradient is in the velocity",
     lambda w, g, v, lr: (w, v)),
    ("the step is added; a gradient points uphill",
     lambda w, g, v, lr: (w + lr * (M * v + g), M * v + g)),
    ("a step uses the attribute lr; it must use the rate that it gets, which a schedule may change",
     lambda w, g, v, lr: (w - OWN_RATE * (M * v + g), M * v + g)),
    ("the rate is missing",
     lambda w, g, v, lr: (w - (M * v + g), M * v + g)),
    ("the momentum is missing: the velocity starts at zero in each step",
     lambda w, g, v, lr: (w - lr * g, 0)),
    ("the gradient is multiplied by 1 - momentum, which is a running mean; the velocity sums up",
     lambda w, g, v, lr: (w - lr * (M * v + (1 - M) * g), M * v + (1 - M) * g)),
    ("the rate is part of the velocity, so an old gradient keeps its old rate; the rate multiplies the whole velocity",
     lambda w, g, v, lr: (w - (M * v + lr * g), M * v + lr * g)),
    ("the rate is applied twice, in the velocity and in the step",
     lambda w, g, v, lr: (w - lr * (M * v + lr * g), M * v + lr * g)),
    ("the step is that of Nesterov, which looks ahead by one gradient more; w - lr * v is asked for",
     lambda w, g, v, lr: (w - lr * (g + M * (M * v + g)), M * v + g)),
    ("the values are replaced by the step; the step is subtracted from them",
     lambda w, g, v, lr: (-lr * (M * v + g), M * v + g)),
    ("the momentum multiplies the new gradient, too",
     lambda w, g, v, lr: (w - lr * M * (v + g), M * (v + g))),
    ("the gradient is subtracted twice, alone and in the velocity",
     lambda w, g, v, lr: (w - lr * (M * v + 2 * g), M * v + g)),
    ("the velocity does not decay: momentum multiplies the old one",
     lambda w, g, v, lr: (w - lr * (v + g), v + g)),
    ("the velocity never grows: what is stored is the gradient alone",
     lambda w, g, v, lr: (w - lr * (M * v + g), g)),
    ("the stored velocity is the array of the gradient, which the next backward overwrites; store a copy",
     keeps_gradient),
    ("only the sign of the gradient counts",
     lambda w, g, v, lr: (w - lr * (M * v + np.sign(g)), M * v + np.sign(g))),
    ("the momentum multiplies the values",
     lambda w, g, v, lr: (M * w - lr * g, v)),
    ("the signs of the velocity alternate: its old part is subtracted",
     lambda w, g, v, lr: (w - lr * (g - M * v), g - M * v)),
]  # fmt: skip
SHARED = "parameters of one shape share a velocity; each needs its own, by its name"
ONE = "all parameters share one velocity; each needs its own, by its name"


class OptimizerExercise:
    """The optimizer that a student writes, compared with minidl's, in three steps with three rates."""

    @cached_property
    def start(self) -> Values:
        """The values before the first step."""
        rng = np.random.default_rng(0)
        return {name: rng.integers(-8, 9, shape) / 4 for name, shape in SHAPES.items()}

    @cached_property
    def grads(self) -> list[Values]:
        """The gradients of each step."""
        rng = np.random.default_rng(1)
        return [{name: rng.integers(1, 6, shape) * 1.0 for name, shape in SHAPES.items()} for _ in RATES]

    @cached_property
    def expected(self) -> list[Values]:
        """The values after each step of minidl's SGD."""
        params, optimizer, found = self._params(), SGD(OWN_RATE, MOMENTUM), []
        for step, rate in enumerate(RATES):
            self._set_grads(params, step)
            optimizer.step(params, rate)
            found.append({name: np.array(param.value) for name, param in params.items()})
        return found

    def following(self, rule: Rule, key: Callable[[str], Any] = str) -> list[Values]:
        """Returns the values after each step of a rule. key(name): what a velocity is stored by."""
        values, velocities, found = dict(self.start), dict[Any, Any](), []
        for rate, grads in zip(RATES, self.grads, strict=True):
            for name, grad in grads.items():
                values[name], velocities[key(name)] = rule(values[name], grad, velocities.get(key(name), 0), rate)
            found.append(dict(values))
        return found

    def _params(self) -> dict[str, Param]:
        return {name: Param(np.array(value)) for name, value in self.start.items()}

    def _set_grads(self, params: dict[str, Param], step: int) -> None:
        for name, grad in self.grads[step].items():
            params[name].grad.flags.writeable = True
            params[name].grad = grad
            params[name].grad.flags.writeable = False

    def grade(self, answer: type, report: Report) -> None:
        """Adds the lines of this exercise to a report."""
        built = report.call(self._built, answer)
        report.add("build", built.verdict, built.says, "__init__ stays as the exercise has it" if built.says else "")
        params = self._params()
        for step, rate in enumerate(RATES):
            label = f"step {step + 1}"
            if not report.all_right():
                report.add(label, UNTRIED)
                continue
            self._set_grads(params, step)
            outcome = report.call(lambda at: built.value.step(dict(params), at), rate, reads="grad")
            if outcome.verdict != RIGHT:
                shared = ONE if re.search(r"broadcast.*\(2,3\) \(2,\)|\(2,\) \(2,3\)", outcome.says) else ""
                report.add(label, outcome.verdict, shared, outcome.says)
                continue
            self._compare(report, label, step, {name: param.value for name, param in params.items()})
        if not report.all_right():
            report.add("contract", UNTRIED, "when all lines above are right, check_optimizer tests the rest")
            return
        outcome = report.contract(lambda: check_optimizer(answer(0.1, 0.9)))
        report.add("contract", outcome.verdict, outcome.says)

    def _built(self, answer: type) -> Any:
        """Returns an optimizer of the student's class."""
        ours = inspect.isclass(answer) and issubclass(answer, Optimizer) and answer.step is Optimizer.step
        assert not ours, ": expected a step of your own, got that of minidl's optimizers"
        return answer(OWN_RATE, MOMENTUM)

    def _compare(self, report: Report, label: str, step: int, got: Values) -> None:
        """Adds the line of one step."""
        expected = self.expected[step]
        wrong = [name for name in SHAPES if not equal(got[name], expected[name])]
        if not wrong:
            report.add(label)
            return
        rules = [(says, self.following(rule)) for says, rule in MISTAKES]
        rules.append(
            (SHARED, self.following(lambda w, g, v, lr: (w - lr * (M * v + g), M * v + g), SHAPES.__getitem__))
        )
        known = (says for says, found in rules if all(equal(got[name], found[step][name]) for name in SHAPES))
        name = wrong[0]
        says = next(known, None) or pattern(got[name], expected[name], 0)
        report.add(label, WRONG, says, place(name, got[name], expected[name]))


OPTIMIZER = OptimizerExercise()
