"""check_gradient: slopes, kinks and ties. Gradients that are wrong on one side of a kink, or close to it, are found."""

import numpy as np
import pytest
from in_turn import in_turn
from slow_marks import slow_after

from minidl import Layer
from minidl.initializers import ones
from minidl.layers import MaxPool2D, ReLU
from minidl.sequential import Sequential
from minidl.testing import check_layer
from minidl.testing.finite_differences import Function, check_gradient
from minidl.testing.samples import draw


class Kinked(Layer):
    """y = max(x, 0). Several faults below are this layer with another gradient."""

    def forward(self, x, training):
        if training:
            self.x = x
        return np.maximum(x, 0)

    def backward(self, dy):
        return dy * self.slope(self.x).astype(dy.dtype)

    def slope(self, x):
        return x > 0


class Threshold(Kinked):
    """y = x above 0.5, else 0: a jump."""

    def forward(self, x, training):
        super().forward(x, training)
        return np.where(np.abs(x) > 0.5, x, 0)

    def slope(self, x):
        return np.abs(x) > 0.5


class Pool(Layer):
    """The maximum of neighboring values: (c, 2 n) -> (c, n)."""

    def build(self, in_shape):
        return (in_shape[0], in_shape[1] // 2)

    def forward(self, x, training):
        pairs = x.reshape(len(x), *self.out_shape, 2)
        if training:
            self.pairs = pairs
        return pairs.max(-1)

    def backward(self, dy):
        share = self.share(self.pairs[..., 0] - self.pairs[..., 1]).astype(dy.dtype)
        return (np.stack([share, 1 - share], -1) * dy[..., None]).reshape(len(dy), *self.in_shape)

    def share(self, lead):
        """Returns the fraction of the gradient that the first of two values receives."""
        return lead >= 0


class Bend(Layer):
    """y = |x - bend|: its parameter has kinks too."""

    def build(self, in_shape):
        self.bend = self.param("bend", in_shape, ones)
        return in_shape

    def forward(self, x, training):
        if training:
            self.sign = np.sign(x - self.bend.value)
        return np.abs(x - self.bend.value)

    def backward(self, dy):
        self.bend.grad = -(dy * self.sign).sum(0)
        return dy * self.sign


def function_of_x(layer, x, rows=None):
    """Returns the function that check_layer differentiates, for a given x."""
    layer = type(layer)(**layer.config())
    model = Sequential([layer], input_shape=x.shape[1:], dtype="float64")
    net = model.network
    dy = np.random.default_rng(1).standard_normal((len(x), *model.output_shape))

    def gradient(values):
        return net.backward(net.forward(values, 1)[1], dy, want_dx=True)

    name = f"{type(layer).__name__}: dx"
    return Function(name, x, lambda values: net.forward(values, 1)[0], gradient, dy, len(x) if rows is None else rows)


def make_ties(shape):
    """Returns integers: with zeros, and with equal neighbors."""
    return np.random.default_rng(0).integers(-1, 2, shape).astype(float)


def check(layer, x, **options):
    check_gradient(function_of_x(layer, x, **options), np.random.default_rng(0))


# ---- correct layers
@pytest.mark.parametrize("seeds", slow_after(1, [range(4), range(4, 40)]))
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (ReLU(), (3, 4)),
        (Kinked(), (12,)),
        (Threshold(), (12,)),
        (Bend(), (6,)),
        (Pool(), (2, 6)),
        (MaxPool2D(3, stride=1), (2, 4, 5)),
        (MaxPool2D(2, padding=1), (1, 3, 4)),
    ],
    ids=str,
)
def test_kinks_cause_no_false_alarms(layer, shape, seeds):
    for seed in seeds:
        check_layer(layer, shape, seed=seed)


@pytest.mark.parametrize("rows", [None, 1])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (ReLU(), (3, 4)),
        (Kinked(), (12,)),
        (Pool(), (2, 6)),
        (MaxPool2D(3, stride=1), (2, 4, 5)),
        (MaxPool2D(2, padding=1), (1, 3, 4)),
    ],
    ids=str,
)
def test_ties_and_zeros_cause_no_false_alarms(layer, shape, rows):
    check(layer, make_ties((3, *shape)), rows=rows)


@pytest.mark.parametrize("offset", [0, 1e-7, -1e-7, 9e-7, -9e-7, 1e-6, -1e-6, 1.1e-6, -1.1e-6])
@pytest.mark.parametrize("layer", [Kinked(), Threshold(), Bend()], ids=str)
def test_a_kink_anywhere_within_a_step_is_recognized(layer, offset):
    at = {"Kinked": 0.0, "Threshold": 0.5, "Bend": 1.0}[type(layer).__name__]
    check(layer, np.full((2, 3), at + offset))


# ---- faulty layers
class WrongBelow(Kinked):
    def slope(self, x):
        return np.where(x > 0, 1, 0.01)


class WrongAbove(Kinked):
    def slope(self, x):
        return np.where(x > 0, 0.99, 0.0)


class OtherSide(Kinked):
    def slope(self, x):
        return x < 0


class WrongCloseAbove(Kinked):
    def slope(self, x):
        return x > 1e-3


class WrongCloseBelow(Kinked):
    def slope(self, x):
        return x > -1e-3


class SmoothNear(Kinked):
    """Has the gradient of another function near its kink."""

    def slope(self, x):
        return (x / 2e-3 + 0.5).clip(0, 1)


class Loser(Pool):
    def share(self, lead):
        return lead < 0


class HalfWhenClose(Pool):
    def share(self, lead):
        return np.where(np.abs(lead) < 2e-3, 0.5, lead >= 0)


class WrongBend(Bend):
    def backward(self, dy):
        dx = super().backward(dy)
        self.bend.grad = self.bend.grad * 1.0001
        return dx


WRONG = [
    (WrongBelow, (12,)),
    (WrongAbove, (12,)),
    (OtherSide, (12,)),
    (WrongCloseAbove, (40,)),
    (WrongCloseBelow, (40,)),
    (SmoothNear, (40,)),
    (Loser, (2, 6)),
    (HalfWhenClose, (4, 20)),
]


@pytest.mark.parametrize(("bug", "shape"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
@in_turn("seed", range(20))
def test_wrong_gradients_are_not_mistaken_for_kinks(bug, shape, seed):
    message = rf"^{bug.__name__}: dx\[.*\]: expected .* \(finite differences\), got .*, a relative error of .*, at "
    with pytest.raises(AssertionError, match=message):
        check_layer(bug(), shape, seed=seed)


@pytest.mark.parametrize("bug", [WrongBelow, WrongAbove, OtherSide, WrongCloseAbove, WrongCloseBelow, Loser])
def test_a_wrong_gradient_at_ties_is_found(bug):
    """Every value is at a kink, so skipping kinks would hide the fault."""
    x = np.ones((3, 2, 6)) if issubclass(bug, Pool) else np.zeros((3, 6))
    with pytest.raises(AssertionError, match=rf"^{bug.__name__}: dx\[\d, .*\]: expected"):
        check(bug(), x)


def test_the_error_names_layer_parameter_index_and_size():
    with pytest.raises(AssertionError) as caught:
        check_layer(WrongBend(), (6,))
    details = r"expected -?\d\S* \(finite differences\), got \S+, a relative error of 0.0001, at \d\S+$"
    caught.match(rf"^WrongBend: the grad of 'bend'\[\d\]: {details}")


class Steps(Kinked):
    """Rounds, with the gradient of the identity."""

    def forward(self, x, training):
        super().forward(x, training)
        return np.round(x / x.dtype.type(3e-7)) * x.dtype.type(3e-7)

    def slope(self, x):
        return np.ones_like(x)


class Rough(Layer):
    """Sums many copies of a number, each with its own kinks finer than any step."""

    def build(self, in_shape):
        return (50, *in_shape)

    def forward(self, x, training):
        copies = np.arange(50).reshape(50, *(1 for _ in self.in_shape))
        return x[:, None] + x.dtype.type(1e-6) * np.sin(1e9 * (x[:, None] + copies), dtype=x.dtype)

    def backward(self, dy):
        return dy.sum(1)


def test_a_rough_layer_fails():
    with pytest.raises(AssertionError, match=r"^Steps: dx\[.*\]: expected"):
        check_layer(Steps(), (7,))
    with pytest.raises(AssertionError, match=r"^Rough: dx\[0, 0\]: expected a slope, found kinks at .* up to 1.0 away"):
        check_layer(Rough(), (7,))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_gradients_are_wrong(value):
    class NonFiniteSlope(Kinked):
        def slope(self, x):
            return np.full_like(x, value)

    with pytest.raises(AssertionError, match=rf"NonFiniteSlope: dx\[0, 0\]: expected .*, got -?({value}|inf|nan)"):
        check(NonFiniteSlope(), np.ones((2, 2)))


# ---- sampled values
def test_some_samples_are_close_to_common_kinks():
    x = draw(np.random.default_rng(0), (3, 10, 10))
    smallest_gap = np.minimum(np.abs(np.diff(x, axis=1)).min(), np.abs(np.diff(x, axis=2)).min())
    assert np.sum(np.abs(x) < 3e-3) > 20 and np.sum(np.abs(x) > 6) > 5
    assert 0 < smallest_gap < 3e-3
    assert np.unique(x).size == x.size
