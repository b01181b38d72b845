"""Non-finite values stop a step before the update; the error names layer, tensor and examples."""

import itertools
import threading

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.initializers import ones
from minidl.layers import Conv2D, Dense, Dropout, Flatten, MaxPool2D, ReLU
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD
from minidl.training.diagnosis import Rerun
from minidl.training.steps import StepBatches, make_steps
from minidl.utils.data import ArraySource

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(45, 1, 8, 8)).astype("float32"), RNG.integers(0, 3, 45)
BAD = (np.nan, np.inf, -np.inf)
DTYPES = ("float32", "float64")
CLOSE = "The weights are those before this step; "


def as_text(bad):
    return "NaN" if np.isnan(bad) else "infinite"


class Injector(Layer):
    """Identity, except for one example in the given step and direction."""

    def __init__(self, where="", bad=np.nan, step=0, row=3):
        self.where, self.bad, self.step, self.row = where, bad, step, row

    def build(self, in_shape):
        self.gain = self.param("gain", (2,), ones)
        return in_shape

    def inject(self, where, a):
        if where != self.where or self._step < self.step:
            return a
        a = a.copy()
        a[self.row] = self.bad
        return a

    def forward(self, x, training):
        self.x = x
        return self.inject("y", x) if training else x

    def backward(self, dy):
        self.gain.grad[:] = self.bad if self.where == "grad" and self._step >= self.step else 0
        return self.inject("dx", dy)


def make_net(dtype, first_layers=(), position=0):
    layers = [Conv2D(3, 3, padding=1), ReLU(), MaxPool2D(2), Conv2D(4, 3), Flatten(), Dense(6), ReLU(), Dense(3)]
    return Sequential([*layers[:position], *first_layers, *layers[position:]], input_shape=(1, 8, 8), dtype=dtype)


def make_trainer(dtype, first_layers=(), position=0, loss="softmax_cross_entropy"):
    return Trainer(make_net(dtype, first_layers, position), loss, SGD(0.01, momentum=0.9), seed=7)


def state(trainer):
    """Returns everything a step changes; one more step would reveal the velocity."""
    return trainer.step, {name: value.tobytes() for name, value in trainer.model.state_dict().items()}


def assert_stops(trainer, expected_message, X=X, Y=Y, **options):
    """Asserts that the step is refused with a matching message and has changed nothing."""
    before = state(trainer)
    with pytest.raises(FloatingPointError, match=expected_message) as error:
        trainer.train_batch(X, Y, **options)
    assert CLOSE in str(error.value)
    assert state(trainer) == before
    return str(error.value)


# ---- injections: each kind of tensor, each layer, each bad value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segmented", [False, True])
@pytest.mark.parametrize("bad", BAD)
def test_weights_of_every_layer(bad, segmented, dtype):
    """The bad weight is named; once it is fixed, training continues as if nothing had happened."""
    for name in make_net(dtype).params:
        if name in ("0.bias", "5.bias") and bad == -np.inf:
            continue  # before a ReLU it only switches the unit off
        trainer, twin = (make_trainer(dtype, [Injector()] if segmented else [], 8) for _ in range(2))
        for each in (trainer, twin):
            each.train_batch(X, Y)
        value = trainer.model.params[name].value
        kept = value.flat[-1]
        value.flat[-1] = bad
        position, _, tensor = name.partition(".")
        assert_stops(trainer, rf"step 1: layer {position}, \w+: .*because its {tensor} is .*give {name} finite numbers")
        value.flat[-1] = kept
        trainer.train_batch(X, Y)
        twin.train_batch(X, Y)
        assert state(trainer) == state(twin)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("position", range(9))
def test_outputs_and_gradients_of_a_numpy_layer(position, bad, dtype):
    """After every layer. The bits before and after equal those of a twin that injects nothing."""
    for where, expected_message in (
        ("y", rf"its output is {as_text(bad)} for example 3 of X, from finite inputs"),
        (
            "dx",
            rf"the gradient of its input is {as_text(bad)} for example 3 of X, from finite gradients of its output",
        ),
        ("grad", rf"the gradient of {position}.gain is {as_text(bad)}"),
    ):
        if position == 0 and where == "dx":
            continue  # not used
        if position in (1, 6) and (where, bad) == ("y", -np.inf):
            continue  # before a ReLU it acts like a zero
        layer = Injector(where, bad, step=2)
        trainer, twin = make_trainer(dtype, [layer], position), make_trainer(dtype, [Injector()], position)
        for each in (trainer, twin):
            each.train_batch(X, Y)
            each.train_batch(X, Y)
        assert_stops(trainer, rf"^step 2: layer {position}, Injector: {expected_message}")
        layer.where = ""
        trainer.train_batch(X, Y)
        twin.train_batch(X, Y)
        assert state(trainer) == state(twin)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weights", [None, np.linspace(0, 3, 45)], ids=["plain", "weighted"])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(("which", "expected_message"), [(0, "the loss of"), (1, "the loss's gradient, dscores, of")])
def test_return_values_of_a_custom_loss(which, expected_message, bad, weights, dtype):
    def loss(scores, y):
        returned = softmax_cross_entropy(scores, y)
        returned[which][[5, 7, -1]] = bad
        return returned

    message = assert_stops(
        make_trainer(dtype, loss=loss), f"^step 0: {expected_message} examples ", sample_weight=weights
    )
    rows = [5, 7, 44] if weights is None else [6, 8, 44]  # the row of weight 0 is skipped
    assert f"{rows} of X is {as_text(bad)}, from finite scores (up to " in message
    assert message.endswith("see what the loss makes of such scores, or try a smaller lr")


def test_a_loss_that_overflows_float32():
    def loss(scores, y):
        losses, dscores = softmax_cross_entropy(scores, y)
        return np.where(np.arange(len(y)) == 2, 1e300, losses.astype("float64")), dscores

    assert_stops(make_trainer("float32", loss=loss), "the loss of example 2 of X is infinite")
    make_trainer("float64", loss=loss).train_batch(X, Y)


# ---- natural overflows
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", ["softmax_cross_entropy", lambda scores, y: softmax_cross_entropy(scores, y)])
def test_an_output_of_finite_inputs_and_weights_overflows(loss, dtype):
    """Two examples in one chunk of many steps run in C; their ids are those in X."""
    largest = np.finfo(dtype).max
    x = np.tile(X, (4, 1, 1, 1)).astype(dtype)
    x[[91, 97]] = np.sign(x[[91, 97]]) * largest / 2
    trainer, twin = make_trainer(dtype, loss=loss), make_trainer(dtype, loss=loss)
    expected_message = (
        r"^step 8: layer 0, Conv2D: its output is infinite for examples \[91, 97\] of X, from finite inputs \(up to "
    )
    with pytest.raises(
        FloatingPointError, match=expected_message + r"[\d.e+]+\) and weights \(up to 0\.\d+\)\. .*smaller lr$"
    ):
        trainer.fit(x, np.tile(Y, 4), batch_size=11, shuffle=False, verbose=0)
    twin.fit(x[:88], np.tile(Y, 4)[:88], batch_size=11, shuffle=False, verbose=0)
    assert state(trainer) == state(twin)


def constant(dscores):
    """Returns a loss that is zero and has this gradient."""
    return lambda scores, y: (np.zeros(len(scores)), np.broadcast_to(dscores, scores.shape))


def linear(loss, dtype="float32", *first_layers):
    return Trainer(Sequential([*first_layers, Dense(4), Dense(3)], (5,), dtype=dtype), loss, SGD(0.1))


HUGE = {"float32": 1e19, "float64": 1e154}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_that_single_examples_make_infinite(dtype):
    x = np.full((40, 5), 0.1)
    x[[4, 33]] = 1e3 * HUGE[dtype]
    expected_message = (
        "^step 0: layer 1, Dense: the gradient of 1.weight is .*infinite, by examples .4, 33. of X alone, from finite"
    )
    assert_stops(linear(constant(HUGE[dtype] * 1e-1), dtype), expected_message, x, np.zeros(40))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_that_only_the_sum_makes_infinite(dtype):
    x = np.full((40, 5), 1.0)
    limit = float(np.finfo(dtype).max)
    expected_message = (
        "layer 1, Dense: the gradient of 1.bias is infinite as a sum over the batch, in which each example's share is"
    )
    model = linear(constant(limit / 30), dtype)
    model.model.params["1.weight"].value *= 1e-3
    model.model.params["0.weight"].value *= 1e-3
    assert_stops(model, expected_message, x, np.zeros(40))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_of_an_input_overflows(dtype):
    trainer = linear(constant(HUGE[dtype] ** 2 * 1e-4), dtype)
    trainer.model.params["1.weight"].value[:] = 1e6
    assert_stops(
        trainer,
        "layer 1, Dense: the gradient of its input is infinite for examples .0, 1, 2. of X, from finite.*1e.06",
        np.full((3, 5), 1e-6),
        np.zeros(3),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_sample_weights_overflow(dtype):
    limit = float(np.finfo(dtype).max)
    assert_stops(
        linear(constant(2.0), dtype),
        r"dscores, of example 1 of X is infinite, from finite scores .* and sample_weight",
        np.ones((2, 5)),
        np.zeros(2),
        sample_weight=[1, limit / 1.5],
    )


def test_x_that_is_modified_during_the_fit():
    x = X.copy()

    class DataWriter:
        def on_epoch_begin(self, trainer, epoch):
            x[11] = np.nan

    with pytest.raises(FloatingPointError, match=r"^step 0: X is NaN for example 11 of X"):
        make_trainer("float32").fit(x, Y, callbacks=[DataWriter()], verbose=0)


# ---- the second run that locates the fault
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_second_run_has_the_bits_of_the_first(weighted, dtype):
    """Layer by layer or in one plan, dropout's masks included: scores and gradients of the second step of two."""
    model, n = make_net(dtype, [Dropout(0.3)], 7), 20
    weights = RNG.uniform(0.5, 2, 45).astype(dtype) if weighted else None
    rows = RNG.permutation(45)[: 2 * n]
    arrays = [np.zeros(1, np.int64), np.empty(2 * n, dtype), np.empty((2 * n, 3), dtype)]
    batch = StepBatches(ArraySource(X, (1, 8, 8), dtype), Y, weights, rows, rows, rows, n, n, lambda step: 0.0, *arrays)
    assert make_steps(model, model.network, softmax_cross_entropy, SGD(0.0), 0).run(batch, None) == 2
    batch.step_counter[0] = 1
    rerun = Rerun(model.network, softmax_cross_entropy, batch, 1, 0, 0, None)
    assert rerun.finding() is None
    assert rerun.inputs[-1].tobytes() == batch.scores[n:].tobytes()
    grads = rerun.parameters.grads / rerun.parameters.grads.dtype.type(batch.divisors()[1])
    assert grads.tobytes() == model.network.parameters.grads.tobytes()


class Noise(Layer):
    """Adds random numbers, sometimes one too large for the next layer; keeps state that must not be disturbed."""

    def build(self, in_shape):
        self.seen, self.mean = [], np.zeros(in_shape)
        return in_shape

    def forward(self, x, training):
        if training:
            self.drawn = self.rng.random(x.shape)
            self.seen.append(self.rng.random())
            self.mean += x.mean(axis=0)
        return x + np.where(self.drawn > 0.85, 3e38, 0).astype(x.dtype) if training and self._step == 2 else x

    def backward(self, dy):
        return dy


def test_random_layers_are_repeated_without_side_effects():
    """The random numbers that the second run reports are those of the first one."""
    noise = Noise()
    model = Sequential([noise, Dense(3)], input_shape=(5,))
    model.params["1.weight"].value[:] = 1
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0), seed=3)
    x = RNG.normal(size=(20, 5)).astype("float32")
    trainer.train_batch(x, np.zeros(20, int))
    trainer.train_batch(x, np.zeros(20, int))
    with pytest.raises(FloatingPointError, match="layer 1, Dense: its output is infinite") as error:
        trainer.train_batch(np.abs(x), np.zeros(20, int))
    with np.errstate(over="ignore"):
        sums = np.where(noise.drawn > 0.85, np.float32(3e38), 0).astype("f4").sum(axis=1)
    rows = np.flatnonzero(np.isinf(sums))
    assert 1 < len(rows) < 6
    assert str(rows.tolist()) in str(error.value)
    assert len(noise.seen) == 3
    np.testing.assert_allclose(noise.mean, 2 * x.mean(axis=0) + np.abs(x).mean(axis=0), rtol=1e-5)


def test_gradients_stay_those_of_the_failed_step():
    trainer = linear(constant(1e30))
    x = np.full((3, 5), 1e10)
    assert_stops(trainer, "the gradient of 1.weight", x, np.zeros(3))
    assert not np.isfinite(trainer.model.params["1.weight"].grad).all()
    np.testing.assert_array_equal(trainer.model.params["1.bias"].grad, np.float32(1e30) * np.float32(3) / np.float32(3))


def test_a_fault_that_does_not_recur_is_still_reported():
    calls = itertools.count()

    def once(scores, y):
        losses, dscores = softmax_cross_entropy(scores, y)
        return losses * (np.nan if next(calls) == 0 else 1), dscores

    expected_message = (
        r"^step 0: the loss of examples \[0, 1, 2, 3, 4\] and 40 more of X is NaN or infinite; it did not happen again"
    )
    assert_stops(make_trainer("float32", loss=once), expected_message)


def test_a_layer_that_cannot_run_twice_hides_nothing():
    class RunsOnce(Injector):
        def forward(self, x, training):
            self.lock = threading.Lock()  # which cannot be copied
            return super().forward(x, training)

    trainer = make_trainer("float32", [RunsOnce("y")], 4)
    assert "TypeError" in assert_stops(
        trainer, "^step 0: the gradient of .* NaN or infinite; a second run, to say more, failed"
    )


def test_a_thousand_clean_steps_raise_no_error():
    """With large values, none too large."""
    x = X * np.linspace(1, 1e3, 45, dtype="float32").reshape(-1, 1, 1, 1)
    for first_layers in ([], [Injector()]):
        trainer = Trainer(make_net("float32", first_layers), "softmax_cross_entropy", SGD(1e-6, momentum=0.9))
        trainer.fit(x, Y, epochs=167, batch_size=8, verbose=0)
        assert trainer.step >= 1000


def test_values_that_became_finite_again_are_not_blamed():
    """-infinity before a ReLU is 0 after it: the cause is another layer and another example."""
    layers = [Injector("y", -np.inf, row=3), ReLU(), Flatten(), Injector("y", np.nan, row=5), Dense(3)]
    trainer = Trainer(Sequential(layers, (1, 8, 8)), "softmax_cross_entropy", SGD(0.01))
    assert_stops(trainer, "layer 3, Injector: its output is NaN for example 5 of X")
    harmless = [Injector("y", -np.inf, row=3), ReLU(), Flatten(), Dense(3)]
    Trainer(Sequential(harmless, (1, 8, 8)), "softmax_cross_entropy", SGD(0.01)).train_batch(X, Y)
