"""check_layer: passes what keeps the contract, and names what is wrong with what does not (ours: test_contract.py)."""

import numpy as np
import pytest

from minidl import Layer, Sequential
from minidl.initializers import glorot_uniform, ones, zeros
from minidl.layers import Dense, ReLU
from minidl.testing import check_layer


# ---- layers that keep the contract -----------------------------------------------------------------
class Scale(Layer):
    """y = gain * x + bias, feature by feature; the bugs below are this layer with one thing wrong."""

    def build(self, in_shape):
        self.gain, self.bias = self.param("gain", in_shape, ones), self.param("bias", in_shape, zeros)
        return in_shape

    def forward(self, x, training):
        if training:
            self.x = x
        return x * self.gain.value + self.bias.value

    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(0)
        self.bias.grad = dy.sum(0)
        return dy * self.gain.value


class Project(Layer):
    """y = weight x, without a bias."""

    def __init__(self, units=2):
        self.units = units

    def build(self, in_shape):
        self.weight = self.param("weight", (self.units, *in_shape), glorot_uniform)
        return (self.units,)

    def forward(self, x, training):
        if training:
            self.x = x
        return x @ self.weight.value.T

    def backward(self, dy):
        self.weight.grad = dy.T @ self.x
        return dy @ self.weight.value


class Drop(Layer):
    """Dropout from self.rng."""

    def forward(self, x, training):
        if not training:
            return x
        self.mask = (2 * (self.rng.random(x.shape) < 0.5)).astype(x.dtype)
        return x * self.mask

    def backward(self, dy):
        return dy * self.mask


class Center(Layer):
    """x minus the mean of the batch: its examples see each other, and may."""

    def forward(self, x, training):
        return x - x.mean(0) if len(x) else x

    def backward(self, dy):
        return dy - dy.mean(0) if len(dy) else dy


class Pool(Layer):
    """Max-pooling (c, n) -> (c, n - 2) of windows of three, one apart."""

    def build(self, in_shape):
        return (in_shape[0], in_shape[1] - 2)

    def forward(self, x, training):
        windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=2)
        if training:
            self.winner = windows.argmax(-1) + np.arange(windows.shape[2])
        return windows.max(-1)

    def backward(self, dy):
        dx = np.zeros((*dy.shape[:2], self.in_shape[1]), dy.dtype)
        n, c, _ = np.ogrid[: dy.shape[0], : dy.shape[1], : dy.shape[2]]
        self.hand_back(dx, (n, c, self.winner), dy)
        return dx

    def hand_back(self, dx, places, dy):
        np.add.at(dx, places, dy)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(Scale(), (3,)), (Scale(), (2, 3, 2)), (Project(3), (4,)), (Pool(), (2, 6)), (Drop(), (5,)), (Drop(), (2, 3))],
    ids=str,
)
def test_layers_in_numpy_pass(layer, shape):
    check_layer(layer, shape)


def test_layers_that_couple_examples_pass_when_that_is_said():
    check_layer(Center(), (3,), couples_examples=True)


# ---- layers with a bug ---------------------------------------------------------------------------
class WrongDx(Scale):
    def backward(self, dy):
        return 1.001 * super().backward(dy)


class WrongDxInOnePlace(Scale):
    def backward(self, dy):
        dx = super().backward(dy)
        dx[-1:, -1:] *= 0.99
        return dx


class ForgottenFactor(Project):
    def backward(self, dy):
        self.weight.grad = dy.T @ self.x / max(len(dy), 1)  # the mean, where the sum is asked for
        return dy @ self.weight.value


class WrongGrad(Scale):
    def backward(self, dy):
        dx = super().backward(dy)
        self.gain.grad = (dy * np.abs(self.x)).sum(0)
        return dx


class ForgottenBias(Scale):
    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(0)
        return dy * self.gain.value


class HalfAGrad(Scale):
    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(0)
        self.bias.grad[1:] = dy.sum(0)[1:]
        return dy * self.gain.value


class Accumulates(Scale):
    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum(0)
        self.bias.grad += dy.sum(0)
        return dy * self.gain.value


class AccumulatesByItself(Scale):
    total = 0.0

    def backward(self, dy):
        dx = super().backward(dy)
        self.total = self.total + dy.sum(0)
        self.bias.grad = self.total
        return dx


class RemembersInInference(Scale):
    def forward(self, x, training):
        self.seen = x
        return super().forward(x, True)


class CountsInInference(Scale):
    calls = 0

    def forward(self, x, training):
        self.calls += 1
        return super().forward(x, training)


class DriftsInInference(Scale):
    def forward(self, x, training):
        y = super().forward(x, training)
        if not training and len(x):
            self.bias.value += 0.1
        return y


class DrawsInInference(Drop):
    def forward(self, x, training):
        return super().forward(x, True)


class PeeksForward(Scale):
    def forward(self, x, training):
        return super().forward(x, training) + x.sum(0)


class PeeksInTraining(Scale):
    def forward(self, x, training):
        return super().forward(x, training) + (x.sum(0) if training else x)


class PeeksAndDraws(Drop):
    def forward(self, x, training):
        return super().forward(x + x.sum(0) if training else x, training)


class PeeksBackward(Scale):
    def backward(self, dy):
        return super().backward(dy) + 0.1 * dy.sum(0)


class LooksAtOthersDy(Scale):
    def backward(self, dy):
        return super().backward(dy) * (1 + 0.1 * np.abs(dy).sum(0))


class WritesIntoX(Scale):
    def forward(self, x, training):
        x *= self.gain.value
        return x


class WritesIntoXLater(Scale):
    def backward(self, dy):
        self.bias.grad = dy.sum(0)
        self.x *= dy
        self.gain.grad = self.x.sum(0)
        return dy * self.gain.value


class WritesIntoDy(Scale):
    def backward(self, dy):
        super().backward(dy)
        dy *= self.gain.value
        return dy


class LazyWithoutDx(Scale):
    def backward(self, dy):
        if not self.needs_dx:
            return dy
        return super().backward(dy)


class InferenceInBetween(Scale):
    """Keeps what backward needs in an object of its own, also in inference."""

    def build(self, in_shape):
        self.box = Box()
        return super().build(in_shape)

    def forward(self, x, training):
        y = super().forward(x, training)
        self.box.x = x
        return y

    def backward(self, dy):
        dx = super().backward(dy)
        self.gain.grad = (dy * self.box.x).sum(0)
        return dx


class Box:
    def __repr__(self):
        return "Box()"


class WrongBeyondTheBound(Layer):
    def forward(self, x, training):
        if training:
            self.x = x
        return x.clip(-5, 5)

    def backward(self, dy):
        return dy


class WrongShape(Scale):
    def build(self, in_shape):
        super().build(in_shape)
        return (*in_shape, 1)


class WrongDxShape(Project):
    def backward(self, dy):
        super().backward(dy)
        return dy


class ReturnsNothing(Scale):
    def backward(self, dy):
        super().backward(dy)


class BatchInTheShape(Scale):
    def forward(self, x, training):
        return super().forward(x, training).reshape(3, *self.out_shape)


class WrongDtype(Scale):
    def forward(self, x, training):
        return super().forward(x, training).astype("float32")


class LostOverlap(Pool):
    def hand_back(self, dx, places, dy):
        dx[places] = dy


class WidensDtype(Scale):
    def forward(self, x, training):
        return super().forward(x, training).astype("float64")


class WidensDxDtype(Scale):
    def backward(self, dy):
        return super().backward(dy).astype("float64")


class WrongInFloat32(Scale):
    def forward(self, x, training):
        return super().forward(x, training) * (1.01 if self.dtype == "float32" else 1)


class WrongBehindSixteen(Scale):
    """A kernel that has only ever seen one tile of examples."""

    def forward(self, x, training):
        y = super().forward(x, training)
        y[16:] = 0
        return y


class WrongGradBehindSixteen(Scale):
    def backward(self, dy):
        dx = super().backward(dy)
        self.bias.grad = dy[:16].sum(0)
        return dx


class ThreeExamples(Scale):
    def forward(self, x, training):
        y = super().forward(x, training)
        for i in range(3):
            y[i] = x[i] * self.gain.value + self.bias.value
        return y


class GlobalNumbers(Drop):
    def forward(self, x, training):
        if not training:
            return x
        self.mask = 1 + np.random.random(x.shape).astype(x.dtype)  # noqa: NPY002
        return x * self.mask


class SeedsTheGlobalGenerator(GlobalNumbers):
    def forward(self, x, training):
        np.random.seed(0)  # noqa: NPY002
        return super().forward(x, training)


GRADIENT = r"expected .* \(finite differences\), got"
BUGS = [
    (WrongDx, (3,), rf"WrongDx: dx\[0, 0\]: {GRADIENT}"),
    (WrongDxInOnePlace, (2, 3), r"WrongDxInOnePlace: dx\[2, 1, \d\]"),
    (ForgottenFactor, (3,), rf"ForgottenFactor: the grad of 'weight'\[0, 0\]: {GRADIENT}"),
    (WrongGrad, (3,), rf"WrongGrad: the grad of 'gain'\[\d\]: {GRADIENT}"),
    (ForgottenBias, (3,), "ForgottenBias: backward does not write the grad of 'bias'"),
    (HalfAGrad, (3,), "HalfAGrad: backward does not write the grad of 'bias' .*not all of it"),
    (Accumulates, (3,), "Accumulates: .*the grad of 'bias'.*accumulate"),
    (AccumulatesByItself, (3,), "AccumulatesByItself: .*the grad of 'bias'.*accumulate"),
    (RemembersInInference, (3,), "RemembersInInference: inference changed seen, x"),
    (CountsInInference, (3,), "CountsInInference: inference changed calls"),
    (DriftsInInference, (3,), r"DriftsInInference: inference changed params\['bias'\]"),
    (DrawsInInference, (3,), "DrawsInInference: (inference changed mask|two inferences)"),
    (PeeksForward, (3,), "PeeksForward: the output of example 0 changes with the batch"),
    (PeeksInTraining, (3,), "PeeksInTraining: in training, the output of example 0 changes with the batch"),
    (PeeksAndDraws, (9,), "PeeksAndDraws: in training, the output of example 0 changes with the batch"),
    (PeeksBackward, (3,), "PeeksBackward: backward lets example 0 into the dx of other examples"),
    (LooksAtOthersDy, (3,), "LooksAtOthersDy: the dx of example 0 changes with the dy of others"),
    (WritesIntoX, (3,), "WritesIntoX: writes into x"),
    (WritesIntoXLater, (3,), "WritesIntoXLater: .*writes into x"),
    (WritesIntoDy, (3,), "WritesIntoDy: backward writes into x or dy"),
    (LazyWithoutDx, (3,), "LazyWithoutDx: the grad of '(gain|bias)' changes when nobody asks for dx"),
    (InferenceInBetween, (3,), "InferenceInBetween: the grad of 'gain' changes when an inference comes between"),
    (WrongBeyondTheBound, (20,), rf"WrongBeyondTheBound: dx\[\d, \d+\]: {GRADIENT}"),
    (WrongShape, (3,), r"WrongShape: a batch of 0 failed: .*forward to return shape \(0, 3, 1\), got \(0, 3\)"),
    (WrongDxShape, (3,), r"WrongDxShape: .*backward to return shape \(0, 3\), got \(0, 2\)"),
    (ReturnsNothing, (3,), "ReturnsNothing: .*backward to return shape .* got NoneType"),
    (BatchInTheShape, (3,), "BatchInTheShape: a batch of 0 failed"),
    (ThreeExamples, (3,), "ThreeExamples: a batch of 0 failed"),
    (WrongDtype, (3,), "WrongDtype: .*expected .*float64, got float32"),
    (WidensDtype, (3,), "WidensDtype: .*expected .*float32, got float64"),
    (WidensDxDtype, (3,), "WidensDxDtype: .*expected .*float32, got float64"),
    (WrongInFloat32, (3,), "WrongInFloat32: .*float32.*float64"),
    (WrongBehindSixteen, (3,), "WrongBehindSixteen: .*the output of example 16 changes with the batch"),
    (WrongGradBehindSixteen, (3,), "WrongGradBehindSixteen: .*the grad of 'bias'.*sum"),
    (LostOverlap, (2, 6), rf"LostOverlap: dx\[\d, \d, \d\]: {GRADIENT}"),
    (GlobalNumbers, (3,), "GlobalNumbers: .*self.rng"),
    (SeedsTheGlobalGenerator, (3,), "SeedsTheGlobalGenerator: .*self.rng"),
]


@pytest.mark.parametrize(("bug", "shape", "said"), BUGS, ids=lambda value: getattr(value, "__name__", ""))
def test_bugs_are_caught(bug, shape, said):
    with pytest.raises(AssertionError, match=rf"^{said}"):
        check_layer(bug(), shape)


@pytest.mark.parametrize("seed", range(10))
def test_bugs_are_caught_with_any_seed(seed):
    for bug, shape, _ in BUGS:
        with pytest.raises(AssertionError):
            check_layer(bug(), shape, seed=seed)


def test_examples_that_see_each_other_are_a_bug_unless_it_is_said():
    with pytest.raises(AssertionError, match=r"Center: the output of example 0 .*couples_examples=True"):
        check_layer(Center(), (3,))


# ---- what it is given ------------------------------------------------------------------------------
def test_the_layer_is_not_touched():
    fresh = Dense(3)
    check_layer(fresh, (2,))
    assert vars(fresh) == {"units": 3, "use_bias": True}

    dense = Dense(3)
    model = Sequential([dense, ReLU()], input_shape=(2,))
    before, state = vars(dense).copy(), model.state_dict()
    check_layer(dense, (4,))
    assert vars(dense) == before
    for name, array in model.state_dict().items():
        assert np.array_equal(array, state[name])


def test_the_global_generator_is_not_touched():
    before = np.random.get_state()  # noqa: NPY002
    check_layer(Drop(), (3,))
    assert str(np.random.get_state()) == str(before)  # noqa: NPY002


@pytest.mark.parametrize("layer", [None, "Dense", Dense, 3, Sequential([Dense(1)])], ids=str)
def test_only_layers_are_checked(layer):
    with pytest.raises(TypeError, match="layer: expected a Layer, got"):
        check_layer(layer, (3,))


def test_a_layer_that_cannot_be_built_says_so():
    with pytest.raises(ValueError, match=r"Dense.*\(2, 3\).*Flatten"):
        check_layer(Dense(2), (2, 3))
