"""check_loss: passes losses that keep the contract and names each fault. Built-in losses: losses/test_contract.py."""

import numpy as np
import pytest

from minidl.losses import Huber, MeanSquaredError
from minidl.testing import check_loss

LABELS = np.arange(30) % 4
ROWS = np.arange(30)


def probabilities(scores):
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


# ---- correct losses
def cross_entropy(scores, y):
    p = probabilities(scores)
    return -np.log(p[ROWS[: len(y)], y] + 1e-30), p - np.eye(4, dtype=scores.dtype)[y]


def hinge(scores, y):
    rows = ROWS[: len(y)]
    margins = np.maximum(0, 1 + scores - scores[rows, y][:, None])
    margins[rows, y] = 0
    slopes = (margins > 0).astype(scores.dtype)
    slopes[rows, y] = -slopes.sum(axis=1)
    return margins.sum(axis=1), slopes


def largest(scores, y):
    return scores.max(axis=1), np.eye(4)[scores.argmax(axis=1)]


def distance(scores, y):
    """Its gradient has integers."""
    return np.abs(scores - 2).sum(axis=1), np.sign(scores - 2).astype(int)


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, scores, y):
        return tuple(self.factor * part for part in cross_entropy(scores, y))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "loss",
    [cross_entropy, hinge, largest, distance, Scaled(3.0)],
    ids=lambda loss: getattr(loss, "__name__", type(loss).__name__),
)
def test_correct_losses_pass(loss, seed):
    check_loss(loss, (4,), LABELS, seed)


def test_scores_can_be_given():
    def log_loss(scores, y):
        return -np.log(scores).sum(axis=1), -1 / scores

    check_loss(log_loss, (4,), LABELS, scores=np.random.default_rng(0).random((30, 4)) + 0.1)
    expected = r"^log_loss: expected finite losses of finite scores, got nan"
    with np.errstate(invalid="ignore"), pytest.raises(AssertionError, match=expected):
        check_loss(log_loss, (4,), LABELS)


# ---- faults
def mean_gradient(scores, y):
    losses, dscores = cross_entropy(scores, y)
    return losses, dscores / len(scores)


def mean_loss(scores, y):
    losses, dscores = cross_entropy(scores, y)
    return losses.mean(), dscores / len(scores)


def wrong_sign(scores, y):
    losses, dscores = cross_entropy(scores, y)
    return losses, -dscores


def wrong_above(scores, y):
    losses, dscores = cross_entropy(scores, y)
    return losses, np.where(scores > 0.5, 1.001, 1) * dscores


def couples(scores, y):
    centred = scores - scores.mean(axis=0)
    return (centred**2).sum(axis=1), 2 * centred


def writes_into_scores(scores, y):
    scores -= scores.max(axis=1, keepdims=True)
    return cross_entropy(scores, y)


def writes_into_y(scores, y):
    y[y > 2] = 0
    return cross_entropy(scores, y)


def random_loss(scores, y):
    return np.random.rand() * scores.sum(axis=1), np.ones_like(scores)  # noqa: NPY002


def not_finite(scores, y):
    with np.errstate(all="ignore"):
        return -np.log(1 / (1 + np.exp(-60 * scores))).sum(axis=1), 60 / (1 + np.exp(-60 * scores)) - 60


def all_equals(scores, y):
    best = scores.max(axis=1, keepdims=True)
    return best[:, 0], (scores == best) * 1.0


def rounded(scores, y):
    losses, dscores = cross_entropy(scores.astype("float16"), y)
    return losses.astype("f8"), dscores.astype("f8")


def single(scores, y):
    losses, dscores = cross_entropy(scores, y)
    return losses * (1.01 if scores.dtype == "float32" else 1), dscores


def in_float32(scores, y):
    losses, dscores = cross_entropy(scores, y)
    return losses.astype("float32"), dscores


def fails(scores, y):
    return scores[:, :, 0].sum(axis=1), scores


class Doubles(MeanSquaredError):
    def targets(self, y, shape, dtype):
        return 2 * super().targets(y, shape, dtype)


DIFFERENCES = r"expected .* \(finite differences\), got"
FAULTS = [
    (mean_gradient, "example 0 alone, .* gives other dscores; .*: neither is divided by the number of examples"),
    (mean_loss, r"a batch of 12 failed: loss: expected losses of shape \(12,\) and dscores .*, got \(\) and"),
    (wrong_sign, rf"dscores\[0, 0\]: {DIFFERENCES} .* a relative error of 2"),
    (wrong_above, rf"dscores\[\d+, \d\]: {DIFFERENCES}"),
    (couples, "example 0 alone, without the batch around it, gives other losses"),
    (writes_into_scores, "writes into scores; it must create its own array"),
    (writes_into_y, "writes into y"),
    (random_loss, "a second call gives other losses"),
    (not_finite, r"expected finite losses of finite scores, got inf in float\d\d, for an example whose scores begin"),
    (all_equals, r"dscores\[\d+, \d\] and that of \d equal elements: expected a sum of 1 .* got [23]; of equal maxima"),
    (rounded, rf"dscores\[0, 0\]: {DIFFERENCES}"),
    (single, "float32 gives other losses"),
    (in_float32, "expected losses of float64 for scores of float64, got float32"),
    (fails, "a batch of 12 failed: too many indices for array"),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("loss", "message"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_faults_are_found(loss, message, seed):
    before = LABELS.copy()
    with pytest.raises(AssertionError, match=rf"^{loss.__name__}: {message}"):
        check_loss(loss, (4,), LABELS, seed)
    assert np.array_equal(LABELS, before)


def test_targets_that_change_again():
    with pytest.raises(AssertionError, match=r"^Doubles: its targets\(\) changes what it has returned itself"):
        check_loss(Doubles(), (2,), np.ones((9, 2)))


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ((Huber, (4,), LABELS), TypeError, r"loss: .*; pass an object, Huber\(...\), not its class"),
    (("focal", (4,), LABELS), ValueError, "loss: expected one of .*, got 'focal'"),
    ((cross_entropy, 4, LABELS), TypeError, "out_shape: expected a tuple"),
    ((cross_entropy, (4,), LABELS[:1]), ValueError, r"y: expected targets of at least two examples, got shape \(1,\)"),
    (("softmax_cross_entropy", (3,), LABELS), ValueError, "y: expected"),
    ((cross_entropy, (4,), LABELS, -1), ValueError, "seed: expected at least 0"),
    ((cross_entropy, (4,), LABELS, 0, np.ones((3, 4))), ValueError, "scores: expected a row for each of 30 targets"),
    ((cross_entropy, (4,), LABELS, 0, np.ones((30, 5))), ValueError, "scores: expected at least two examples"),
])  # fmt: skip
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        check_loss(*arguments)
