"""The exercise softmax_cross_entropy: losses, their gradients, and the mistakes that are known."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np

from minidl import losses
from minidl.losses import check_targets
from minidl.testing.grading.comparison import Mistakes, compare, place
from minidl.testing.grading.report import RIGHT, UNTRIED, UNWRITTEN, WRONG, Outcome, Report
from minidl.testing.loss_check import check_loss
from minidl.utils.arrays import Array

CLASSES = 4
SMALLEST = tuple(10.0**-power for power in range(5, 17))  # numbers that are added to a probability, for its logarithm


def softmax(scores: Array, axis: int | None = 1) -> Array:
    """Returns exp(scores), divided by the sum along an axis; None: by the sum of all."""
    odds = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return odds / odds.sum(axis=axis, keepdims=True)


def marked(c: Any, labels: Array | None = None) -> Array:
    """Returns 1 at the label of each example, and 0 elsewhere."""
    return np.eye(CLASSES)[c.labels if labels is None else labels]


def of_label(c: Any, values: Array) -> Array:
    """Returns the value of each example's class."""
    return values[np.arange(c.n), c.labels]


def minus_listed(c: Any) -> Array:
    """Returns the probabilities with 1 subtracted in the columns of all labels."""
    p = softmax(c.x)
    p[:, c.labels] -= 1
    return p


OF_CLASSES = (
    "another number is subtracted from each class (axis 0), which changes the softmax; each example has one number for "
    "all of its scores"
)
MISTAKES: dict[str, Mistakes] = {
    "losses": [
        ("the losses are averaged over the batch; each example has a loss of its own, and the Trainer divides",
         lambda c: c.losses.mean()),
        ("the losses are summed over the batch; each example has a loss of its own",
         lambda c: c.losses.sum()),
        ("each loss is divided by the number of examples; the Trainer divides",
         lambda c: c.losses / c.n),
        ("the sign is missing: the logarithm of a probability is negative, a loss is not",
         lambda c: -c.losses),
        ("the logarithm has the base 2; it is the natural one",
         lambda c: c.losses / np.log(2)),
        ("the logarithm has the base 10; it is the natural one",
         lambda c: c.losses / np.log(10)),
        ("the softmax runs over the batch (axis 0); it runs over the classes of one example",
         lambda c: -np.log(of_label(c, softmax(c.x, 0)))),
        ("the softmax divides by the sum of all examples; each example has a sum of its own",
         lambda c: -np.log(of_label(c, softmax(c.x, None)))),
        (OF_CLASSES,
         lambda c: -np.log(of_label(c, softmax(c.x - c.x.max(0))))),
        ("the logarithm is missing: the loss is 1 - p",
         lambda c: 1 - of_label(c, softmax(c.x))),
        ("the logarithm is that of the largest probability; it is that of the label's",
         lambda c: -np.log(softmax(c.x).max(1))),
        ("the logarithms of all classes are summed; only the label's counts",
         lambda c: -np.log(softmax(c.x)).sum(1)),
        ("the loss is averaged over the classes; only the label's counts",
         lambda c: c.losses / CLASSES),
        ("the loss is minus the score of the label; the logarithm of the sum of exp is missing",
         lambda c: -of_label(c, c.x)),
        ("there is a loss for each class; only that of the label counts",
         lambda c: -np.log(softmax(c.x))),
        ("the loss is that of a sigmoid; softmax compares the label's score with those of all classes",
         lambda c: np.log1p(np.exp(-of_label(c, c.x)))),
        ("the loss is a squared error; cross-entropy is a logarithm",
         lambda c: ((softmax(c.x) - marked(c)) ** 2).sum(1)),
        *(("a small number is added to the probability before the logarithm; dscores belongs to another loss then",
           lambda c, e=e: -np.log(of_label(c, softmax(c.x)) + e)) for e in (0.01, 1e-3, 1e-4, 1e-5)),
    ],
    "dscores": [
        ("dscores is divided by the number of examples; row i is the gradient of losses[i], the Trainer divides",
         lambda c: c.dscores / c.n),
        ("dscores is the softmax alone: at the label, something is missing",
         lambda c: softmax(c.x)),
        ("the sign of dscores is the other one; the optimizer subtracts",
         lambda c: -c.dscores),
        ("dscores is the gradient with respect to the probability; the chain rule goes on through the softmax",
         lambda c: -marked(c) / softmax(c.x)),
        ("1 is subtracted in the columns of all labels, in every row; each row has one label of its own",
         minus_listed),
        ("1 is subtracted from every class; only the label's differs",
         lambda c: softmax(c.x) - 1),
        ("1 is subtracted at the largest score; it belongs to the label",
         lambda c: softmax(c.x) - marked(c, c.x.argmax(1))),
        ("only the label's column has a gradient; the other scores change the loss, too, by the sum",
         lambda c: c.dscores * marked(c)),
        ("only the other columns have a gradient; the label's score changes the loss, too",
         lambda c: c.dscores * (1 - marked(c))),
        ("dscores is p (1 - p), the derivative of a probability by its own score",
         lambda c: softmax(c.x) * (1 - softmax(c.x))),
        ("the softmax runs over the batch (axis 0); it runs over the classes of one example",
         lambda c: softmax(c.x, 0) - marked(c)),
        ("the softmax divides by the sum of all examples; each example has a sum of its own",
         lambda c: softmax(c.x, None) - marked(c)),
        (OF_CLASSES,
         lambda c: softmax(c.x - c.x.max(0)) - marked(c)),
        ("the softmax is missing: scores are not probabilities",
         lambda c: c.x - marked(c)),
        ("dscores is multiplied by the loss; it is the gradient already",
         lambda c: c.dscores * c.losses[:, None]),
        ("dscores is summed over the batch; only gradients of parameters are",
         lambda c: np.broadcast_to(c.dscores.sum(0), c.x.shape)),
        ("dscores is doubled, as the gradient of a square",
         lambda c: 2 * c.dscores),
    ],
}  # fmt: skip
SATURATED = [
    (
        "a small number is added to the probability, or bounds it: very wrong examples all get the same loss",
        lambda c, e=e, bounded=bounded: -np.log(np.clip(of_label(c, softmax(c.x)), e, 1 - e if bounded else 1)),
    )
    for e in SMALLEST
    for bounded in (False, True)
]
OVERFLOW = (
    "exp overflows: it must not see large numbers; a softmax stays the same if one number is subtracted from all scores"
    " of an example"
)
OF_BATCH = (
    "the number that is subtracted is that of the whole batch, so the exponentials of examples with smaller scores are "
    "all rounded to 0; each example has a number of its own"
)
UNDERFLOW = (
    "a probability is rounded to 0, and its logarithm is infinite: compute the logarithm from the scores, without the "
    "probability"
)


class LossExercise:
    """The loss that a student writes, compared with minidl's."""

    @cached_property
    def case(self) -> SimpleNamespace:
        """Six examples with scores x of four classes, labels (none is the last class), losses and dscores."""
        rng = np.random.default_rng(0)
        return self._case(rng.integers(-3, 4, (6, CLASSES)) * 1.0, np.array([0, 2, 1, 1, 0, 2]))

    @cached_property
    def large(self) -> SimpleNamespace:
        """The same with scores of some thousands."""
        return self._case(self.case.x * 1000, self.case.labels)

    def _case(self, x: Array, labels: Array) -> SimpleNamespace:
        ours = losses.softmax_cross_entropy
        found = ours(x, check_targets(ours, labels, len(x), x.shape[1:], "float64"))
        case = SimpleNamespace(x=x, labels=labels, n=len(x), losses=np.array(found[0]), dscores=np.array(found[1]))
        for array in (x, labels):
            array.flags.writeable = False
        return case

    def grade(self, answer: Callable[..., Any], report: Report) -> None:
        """Adds the lines of this exercise to a report."""
        outcome = self._call(answer, report, self.case)
        if outcome.verdict == RIGHT:
            for label, value in zip(("losses", "dscores"), outcome.value, strict=True):
                written = Outcome(value) if value is not None else Outcome(None, UNWRITTEN)
                compare(report, label, written, self.case, label, MISTAKES[label])
        else:
            report.add("losses", outcome.verdict, outcome.says)
            report.add("dscores", UNTRIED if outcome.verdict == WRONG else outcome.verdict)
        if not report.all_right():
            report.add("large scores", UNTRIED, "when the lines above are right")
            report.add("contract", UNTRIED, "when all lines above are right, check_loss tests the rest")
            return
        self._grade_large("large scores", self._call(answer, report, self.large), report)
        if not report.all_right():
            report.add("contract", UNTRIED, "when all lines above are right, check_loss tests the rest")
            return
        outcome = report.contract(check_loss, answer, (CLASSES,), np.arange(24) % CLASSES)
        report.add("contract", outcome.verdict, outcome.says)

    def _call(self, answer: Callable[..., Any], report: Report, case: SimpleNamespace) -> Outcome:
        """Returns what the student's loss returns, as a pair of arrays, or None for a missing one."""

        def called() -> tuple[Array | None, ...]:
            pair = answer(case.x, case.labels)
            got = type(pair).__name__ if pair is not None else "nothing: is a `return` missing?"
            is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
            assert is_pair, f": expected it to return two arrays, (losses, dscores), got {got}"
            arrays = tuple(None if value is None else np.asarray(value, "float64") for value in pair)
            exchanged = [getattr(value, "shape", None) for value in arrays] == [case.x.shape, (case.n,)]
            assert not exchanged, ": the two results are exchanged: the losses come first"
            return arrays

        shapes = f"here scores is {case.x.shape}, and y {case.labels.shape}"
        return report.call(called, reads="scores or y", shapes=shapes)

    def _grade_large(self, label: str, outcome: Outcome, report: Report) -> None:
        """Adds the line of large scores, whose exp is infinite."""
        if outcome.verdict != RIGHT:
            report.add(label, outcome.verdict, outcome.says)
            return
        named = dict(zip(("losses", "dscores"), outcome.value, strict=True))
        infinite = ~np.isfinite(named["losses"])
        of_batch = self._subtracts_one_number(named["dscores"]) or self._subtracts_one_number(named["losses"])
        for name, value in named.items():
            expected = getattr(self.large, name)
            if np.allclose(value, expected, 1e-5, 1e-4):
                continue
            if of_batch:
                report.add(label, WRONG, OF_BATCH, place(name, value, expected))
            elif np.isnan(named["dscores"]).any() or infinite[self.large.losses < 100].any():
                report.add(label, WRONG, OVERFLOW, place(name, value, expected))
            elif infinite.any():
                report.add(label, WRONG, UNDERFLOW, place(name, value, expected))
            else:
                compare(report, label, Outcome(value), self.large, name, SATURATED)
            return
        report.add(label)

    def _subtracts_one_number(self, values: Array) -> bool:
        """True if large scores give finite values just for the examples that have the largest score of the batch."""
        largest = self.large.x.max(axis=1) == self.large.x.max()
        return np.array_equal(np.isfinite(values).reshape(len(largest), -1).all(axis=1), largest)


LOSS = LossExercise()
