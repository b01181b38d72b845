"""LayerExercise: the grading of a layer in NumPy, compared with minidl's layer of the same name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from minidl.layers.base import Layer
from minidl.sequential import Sequential
from minidl.testing.grading.comparison import Mistakes, compare, named_by_shape
from minidl.testing.grading.report import RIGHT, UNTRIED, WRONG, Outcome, Report
from minidl.testing.layer_check import check_layer
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

OLD = 100.0  # what the gradients of parameters hold before backward: those of the step before
GIVEN = "__init__ and build stay as the exercise has them"
PARAMS = {"dW": "weight", "db": "bias"}  # gradients, with the names of their parameters
ASSIGNED = re.compile(r"(?:(?:self\.)?(?P<param>\w+)\.grad|(?P<own>\w+))(?:\[.*?\])? *[-+*/@]?=(?!=)")


def assigned(layer: Layer, lines: Iterable[str]) -> Iterator[str]:
    """Yields the gradients to which lines of code assign, such as self.weight.grad = ... or dW += ...: dW."""
    for found in filter(None, map(ASSIGNED.match, lines)):
        for gradient, name in PARAMS.items():
            if found["own"] == gradient or (
                name in layer.params and vars(layer).get(found["param"]) is layer.params[name]
            ):
                yield gradient


@dataclass(frozen=True)
class LayerExercise:
    """A layer that a student writes.

    ours: minidl's, which gives the right numbers. arguments: of its constructor. inputs(rng): examples. mistakes: by
    the result that they change: y, dx, dW, db. others: more arguments and input shapes that are checked.
    """

    ours: type[Layer]
    arguments: tuple[Any, ...]
    inputs: Callable[[np.random.Generator], Array]
    mistakes: Mapping[str, Mistakes]
    others: Sequence[tuple[tuple[Any, ...], Shape]] = field(default=())

    @cached_property
    def case(self) -> SimpleNamespace:
        """Inputs, parameters and right results: x, y, dy, dx, and W, b, dW, db; the number n of examples; old."""
        rng = np.random.default_rng(0)
        x = self.inputs(rng)
        model = Sequential([self.ours(*self.arguments)], x.shape[1:], dtype="float64")
        case = SimpleNamespace(x=x, n=len(x), old=OLD)
        for name, gradient in (("W", "dW"), ("b", "db")):
            if (param := model.params.get(f"0.{PARAMS[gradient]}")) is not None:
                param.value = rng.integers(-8, 9, param.value.shape) / 4
                setattr(case, name, np.array(param.value))
        case.y = model.forward(x, training=True)
        case.dy = rng.integers(1, 5, case.y.shape) * rng.choice([-1.0, 1.0], case.y.shape)
        case.dx = model.backward(case.dy)
        for gradient, name in PARAMS.items():
            if f"0.{name}" in model.params:
                setattr(case, gradient, np.array(model.params[f"0.{name}"].grad))
        for array in vars(case).values():
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        return case

    def grade(self, answer: type[Layer], report: Report) -> None:
        """Adds the lines of this exercise to a report."""
        case, gradients = self.case, [name for name in PARAMS if hasattr(self.case, name)]
        built = report.call(self._built, answer)
        report.add("build", built.verdict, built.says, GIVEN if built.says else "")
        if built.verdict != RIGHT:
            for label in ("forward", "dx", *gradients):
                report.add(label, UNTRIED)
            return
        layer = built.value
        shown = {name: getattr(case, name) for name in ("x", "W", "b", "dy") if hasattr(case, name)}
        shapes = "here " + ", ".join(f"{name} is {array.shape}" for name, array in shown.items())
        forward = report.call(layer.forward, case.x, True, reads="x", shapes=shapes)
        compare(report, "forward", forward, case, "y", self.mistakes["y"])
        backward = Outcome(None, UNTRIED, "forward has to run first")
        if forward.verdict == RIGHT:
            backward = report.call(layer.backward, case.dy, reads="dy or x", shapes=shapes)
        self._compare_gradients(report, layer, backward, gradients)
        self._check(answer, report)

    def _compare_gradients(self, report: Report, layer: Layer, backward: Outcome, gradients: Sequence[str]) -> None:
        """Adds the lines of backward: each gradient that it has written has its own, also if it failed afterwards."""
        case, follows = self.case, "" if report.all_right() else "perhaps for the reason that forward has"
        outcomes = {"dx": backward}
        outcomes |= {name: self._written(backward, layer.params[PARAMS[name]].grad, PARAMS[name]) for name in gradients}
        failed = [name for name, outcome in outcomes.items() if outcome is backward and backward.verdict == WRONG]
        named = [name for name in failed if named_by_shape(backward.says, case, name, self.mistakes[name])]
        named += [name for name in assigned(layer, backward.lines) if name in failed]
        for name, outcome in outcomes.items():
            if name in failed and name != (named or failed)[0]:  # one error, one line
                outcome = Outcome(None, UNTRIED, "backward ends before it")
            compare(report, name, outcome, case, name, self.mistakes[name], follows)
        for name in gradients:
            if not np.array_equal(layer.params[PARAMS[name]].value, getattr(case, name[1:])):
                moved = f"backward changes the {PARAMS[name]} itself; that is the step of the optimizer"
                report.add(PARAMS[name], WRONG, moved)

    def _built(self, answer: type[Layer]) -> Layer:
        """Returns a layer of the student's class in a model, with the parameters of the case."""
        case, shape = self.case, self.case.x.shape[1:]
        derives = inspect.isclass(answer) and issubclass(answer, Layer)
        assert derives, f": expected a subclass of minidl.Layer: class {answer.__name__}(Layer)"
        layer = Sequential([answer(*self.arguments)], shape, dtype="float64").layers[0]
        assert not layer.native, ": expected forward and backward of your own, got the kernel of minidl's layer"
        wanted = {PARAMS[g]: getattr(case, g).shape for g in PARAMS if hasattr(case, g)}
        found = {name: param.value.shape for name, param in layer.params.items()}
        assert found == wanted, f": expected the parameters {wanted or 'none'}, got {found or 'none'}"
        expected = case.y.shape[1:]
        assert layer.out_shape == expected, f": expected it to return {expected} for {shape}, got {layer.out_shape}"
        for gradient in PARAMS:
            if (param := layer.params.get(PARAMS[gradient])) is not None:
                param.value, param.grad = getattr(case, gradient[1:]), np.full(param.value.shape, OLD)
        return layer

    def _written(self, backward: Outcome, grad: Array, name: str) -> Outcome:
        """Returns a parameter's gradient if backward has written it, also if it has failed afterwards."""
        if (grad != OLD).any():
            return Outcome(np.array(grad))
        if backward.verdict == RIGHT:
            return Outcome(None, WRONG, f"backward leaves the gradient as it was: it belongs into self.{name}.grad")
        return backward

    def _check(self, answer: type[Layer], report: Report) -> None:
        """Adds the line of what the comparison cannot see: check_layer, if all else is right."""
        if not report.all_right():
            report.add("contract", UNTRIED, "when all lines above are right, check_layer tests the rest")
            return
        for arguments, shape in ((self.arguments, self.case.x.shape[1:]), *self.others):
            outcome = report.contract(lambda given, at: check_layer(answer(*given), at), arguments, shape)
            if outcome.verdict != RIGHT:
                break
        report.add("contract", outcome.verdict, outcome.says)
