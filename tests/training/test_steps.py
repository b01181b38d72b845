"""Steps in C and in Python: the same mathematics and the same bits; custom losses and optimizers."""

import os
import signal
import threading
import time

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.initializers import ones, zeros
from minidl.layers import BatchNorm2D, Conv2D, Dense, Flatten, MaxPool2D, ReLU
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD, Muon
from minidl.training.steps import FusedSteps, SegmentedSteps, make_steps
from minidl.utils.data import fingerprint

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(45, 1, 6, 6)).astype("float32"), RNG.integers(0, 3, 45)
WEIGHTS = RNG.uniform(0, 2, 45)


def make_net(dtype="float32"):
    layers = [Conv2D(3, 3), ReLU(), MaxPool2D(2), Flatten(), Dense(5), ReLU(), Dense(3)]
    return Sequential(layers, input_shape=(1, 6, 6), dtype=dtype)


def wrapped_loss(scores, y):
    return softmax_cross_entropy(scores, y)


def squared_error(scores, y):
    return ((scores - y) ** 2).sum(axis=1), 2 * (scores - y)


class Plain:
    """The simplest custom optimizer."""

    def __init__(self, lr):
        self.lr = lr
        self.seen = []

    def step(self, params, lr):
        self.seen.append((sorted(params), lr))
        for param in params.values():
            param.value -= lr * param.grad


def weights(model):
    return {name: value.tobytes() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sample_weight", [None, WEIGHTS], ids=["plain", "weighted"])
def test_a_python_loss_and_a_python_optimizer_change_no_bit(sample_weight, dtype):
    result = []
    for loss, optimizer in (
        ("softmax_cross_entropy", SGD(0.25)),
        (wrapped_loss, SGD(0.25)),
        ("softmax_cross_entropy", Plain(0.25)),  # a power of two: lr * g is exact
        (wrapped_loss, Plain(0.25)),
    ):
        model = make_net(dtype)
        trainer = Trainer(model, loss, optimizer, ["accuracy"])
        history = trainer.fit(X, Y, 3, batch_size=20, sample_weight=sample_weight, verbose=0)
        grads = {name: param.grad.tobytes() for name, param in model.params.items()}
        result.append((weights(model), grads, history["loss"], history["accuracy"]))
    assert result[0] == result[1] == result[2] == result[3]


def test_which_kind_of_step_is_used():
    model = make_net()
    fused = make_steps(model, model.network, softmax_cross_entropy, SGD(0.1), 0)
    assert type(fused) is FusedSteps
    for loss, optimizer in (
        (wrapped_loss, SGD(0.1)),
        (softmax_cross_entropy, Plain(0.1)),
        (softmax_cross_entropy, Muon(0.1)),
    ):
        assert type(make_steps(model, model.network, loss, optimizer, 0)) is SegmentedSteps


@pytest.mark.parametrize("weighted", [False, True])
def test_a_custom_loss_trains_as_in_numpy(weighted):
    """A linear model with squared errors, written out; targets are arbitrary real vectors."""
    x, y, w8 = RNG.normal(size=(30, 4)), RNG.normal(size=(30, 2)), RNG.uniform(0.5, 2, 30)
    model = Sequential([Dense(2)], input_shape=(4,), dtype="float64")
    trainer = Trainer(model, squared_error, SGD(0.05, momentum=0.5))
    weight, bias = model.state_dict().values()
    velocity = [np.zeros_like(weight), np.zeros_like(bias)]
    history = trainer.fit(x, y, 4, batch_size=8, shuffle=False, sample_weight=w8 if weighted else None, verbose=0)
    for epoch in range(4):
        total = 0
        for start in (0, 8, 16, 24):
            rows = slice(start, start + 8)
            w = w8[rows] if weighted else np.ones(len(x[rows]))
            error = x[rows] @ weight.T + bias - y[rows]
            total += (w[:, None] * error**2).sum()
            d = 2 * w[:, None] * error / len(w) / (w8.mean() if weighted else 1)
            velocity = [0.5 * v + g for v, g in zip(velocity, (d.T @ x[rows], d.sum(axis=0)), strict=True)]
            weight, bias = weight - 0.05 * velocity[0], bias - 0.05 * velocity[1]
        expected = total / (w8.sum() if weighted else 30)
        assert history["loss"][epoch] == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(model.params["0.weight"].value, weight, rtol=1e-12)
    np.testing.assert_allclose(model.params["0.bias"].value, bias, rtol=1e-12)


def test_a_custom_loss_may_take_images():
    """Scores (n, c, h, w); an example's weight applies to all of its values."""

    def image_squares(scores, y):
        return ((scores - y) ** 2).sum(axis=(1, 2, 3)), 2 * (scores - y)

    target = RNG.normal(size=(6, 2, 4, 4))
    states = []
    for rows, sample_weight in (([0, 1, 1, 1, 2], None), ([0, 1, 2], [1, 3, 1])):
        model = Sequential([Conv2D(2, 3)], input_shape=(1, 6, 6), dtype="float64")
        trainer = Trainer(model, image_squares, SGD(0.01))
        trainer.fit(X[rows], target[rows], sample_weight=sample_weight, verbose=0)
        assert trainer.evaluate(X[rows], target[rows])["loss"] > 0
        states.append(model.state_dict()["0.weight"])
    np.testing.assert_allclose(states[0], states[1], rtol=1e-12)


def test_a_custom_optimizer_gets_every_parameter_and_the_rate_of_each_step():
    optimizer = Plain(lambda step: 0.5**step)
    trainer = Trainer(make_net(), "softmax_cross_entropy", optimizer)
    history = trainer.fit(X, Y, 2, batch_size=20, verbose=0)
    names = ["0.bias", "0.weight", "4.bias", "4.weight", "6.bias", "6.weight"]
    assert optimizer.seen == [(names, 0.5**step) for step in range(6)]
    assert history["lr"] == [0.5**2, 0.5**5]


def test_a_rate_set_between_steps_applies_at_once():
    class RateHalver:
        def on_step_end(self, trainer, step, loss):
            trainer.optimizer.lr /= 2

    one, other = make_net(), make_net()
    Trainer(one, "softmax_cross_entropy", SGD(0.4)).fit(X, Y, 2, batch_size=20, callbacks=[RateHalver()], verbose=0)
    Trainer(other, "softmax_cross_entropy", SGD(lambda step: 0.4 * 0.5**step)).fit(X, Y, 2, batch_size=20, verbose=0)
    assert weights(one) == weights(other)


def test_the_rate_is_a_python_float():
    """A NumPy float64 would promote `lr * param.grad` from float32 to float64, and round twice."""
    optimizer = Plain(0.1)
    Trainer(make_net(), "softmax_cross_entropy", optimizer).train_batch(X, Y)
    assert type(optimizer.seen[0][1]) is float


@pytest.mark.parametrize(
    ("losses", "dscores"),
    [
        (np.zeros(4), np.zeros((45, 3))),
        (0.0, np.zeros((45, 3))),
        (np.zeros((45, 1)), np.zeros((45, 3))),
        (np.zeros(45), np.zeros((45, 2))),
        (np.zeros(45), np.zeros(45)),
    ],
)
def test_a_loss_of_the_wrong_shape_is_refused(losses, dscores):
    model = make_net()
    before = weights(model)
    trainer = Trainer(model, lambda scores, y: (losses, dscores), SGD(0.1))
    message = r"loss: expected losses of shape \(45,\) and dscores of shape \(45, 3\), got"
    with pytest.raises(ValueError, match=message):
        trainer.train_batch(X, Y)
    assert weights(model) == before and trainer.step == 0


@pytest.mark.parametrize("returned", [None, np.zeros(45), (np.zeros(45),)])
def test_a_loss_that_does_not_return_a_pair_is_refused(returned):
    trainer = Trainer(make_net(), lambda scores, y: returned, SGD(0.1))
    with pytest.raises((TypeError, ValueError), match="loss: "):
        trainer.train_batch(X, Y)


@pytest.mark.parametrize("what", ["losses", "dscores"])
def test_a_non_finite_custom_loss_stops_before_the_update(what):
    def broken(scores, y):
        losses, dscores = softmax_cross_entropy(scores, y)
        (losses if what == "losses" else dscores)[-1] = np.nan
        return losses, dscores

    model = make_net()
    before = weights(model)
    trainer = Trainer(model, broken, SGD(0.1))
    with pytest.raises(FloatingPointError, match=r"step 0: the loss.* of example 44 of X is NaN"):
        trainer.train_batch(X, Y)
    assert weights(model) == before and trainer.step == 0


def test_a_model_without_parameters_takes_steps_that_change_nothing():
    x = RNG.normal(size=(5, 3))
    for loss in ("softmax_cross_entropy", wrapped_loss):
        model = Sequential([ReLU()], input_shape=(3,))
        trainer = Trainer(model, loss, SGD(0.1))
        expected = softmax_cross_entropy(np.maximum(x, 0), [0, 1, 2, 0, 1])[0].mean()
        assert trainer.train_batch(x, [0, 1, 2, 0, 1]) == pytest.approx(expected, rel=1e-6)
        assert trainer.step == 1


# ---- interruptions: a step is completed or has no effect
class Identity(Layer):
    """A Python identity layer that counts its calls."""

    count = 0

    def forward(self, x, training):
        self.count += training
        return x

    def backward(self, dy):
        return dy


def make_trainer(*first_layers, dtype="float64"):
    model = Sequential([*first_layers, Flatten(), Dense(6), ReLU(), Dense(3)], (1, 6, 6), dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", SGD(0.02, momentum=0.9))


def test_an_interrupt_in_a_callback_leaves_complete_steps():
    class Interrupt:
        def on_step_end(self, trainer, step, loss):
            if step == 4:
                raise KeyboardInterrupt

    trainer, twin = make_trainer(), make_trainer()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, 9, batch_size=20, shuffle=False, callbacks=[Interrupt()], verbose=0)
    for start in (0, 20, 40, 0, 20):
        twin.train_batch(X[start : start + 20], Y[start : start + 20])
    assert weights(trainer.model) == weights(twin.model) and trainer.step == 5
    trainer.train_batch(X, Y)  # free again, with its velocity
    twin.train_batch(X, Y)
    assert weights(trainer.model) == weights(twin.model)


@pytest.mark.parametrize("first_layers", [0, 1], ids=["native", "segmented"])
def test_ctrl_c_during_chunks_leaves_complete_steps(first_layers):
    """A signal at any moment: the weights are exactly those of `trainer.step` steps."""
    trainer, twin = (make_trainer(*[Identity() for _ in range(first_layers)]) for _ in range(2))

    def interrupt():
        while trainer.step < 20:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=interrupt).start()
        trainer.fit(X[:40], Y[:40], 10**6, batch_size=8, shuffle=False, verbose=0)
    assert trainer.step >= 20
    for step in range(trainer.step):
        rows = slice(step % 5 * 8, step % 5 * 8 + 8)
        twin.train_batch(X[rows], Y[rows])
    assert weights(trainer.model) == weights(twin.model)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("first_layers", [0, 1], ids=["native", "segmented"])
def test_non_finite_values_leave_the_last_good_weights(first_layers, dtype):
    trainer, twin = (make_trainer(*[Identity() for _ in range(first_layers)], dtype=dtype) for _ in range(2))
    bad = np.tile(X, (3, 1, 1, 1)).astype(dtype)
    bad[100] = np.finfo(dtype).max  # finite itself; its scores are not
    with pytest.raises(FloatingPointError, match=rf"step 5: layer {first_layers + 1}, Dense: .* example 100 of X"):
        trainer.fit(bad, np.tile(Y, 3), 1, batch_size=20, shuffle=False, verbose=0)
    for start in range(0, 100, 20):
        twin.train_batch(bad[start : start + 20], np.tile(Y, 3)[start : start + 20])
    assert weights(trainer.model) == weights(twin.model) and trainer.step == 5
    trainer.train_batch(X, Y)
    twin.train_batch(X, Y)
    assert weights(trainer.model) == weights(twin.model)


def test_an_interrupted_step_does_not_count(monkeypatch):
    class FailingLayer(Identity):
        def backward(self, dy):
            if self.count == 40:
                raise RuntimeError("the fortieth")
            return super().backward(dy)

    trainer, twin = (make_trainer(Flatten(), Dense(6), layer) for layer in (FailingLayer(), Identity()))
    monkeypatch.setattr("minidl.training.array_fit_loop.CHUNK_SECONDS", 60)  # all but the first step in one chunk
    with pytest.raises(RuntimeError, match="the fortieth"):
        trainer.fit(X, Y, 1, batch_size=1, shuffle=False, verbose=0)
    for row in range(39):
        twin.train_batch(X[row : row + 1], Y[row : row + 1])
    assert weights(trainer.model) == weights(twin.model)
    assert trainer.step == 39


class FailingNorm(Identity):
    """A NumPy layer with a buffer and a parameter; fails in the n-th training forward or backward."""

    def __init__(self, fails="", at=0):
        self.fails, self.at = fails, at

    def build(self, in_shape):
        self.mean, self.gain = self.buffer("mean", in_shape, zeros), self.param("gain", (), ones)
        return in_shape

    def forward(self, x, training):
        if training:
            self.mean *= 0.9
            self.mean += 0.1 * x.mean(axis=0)
            self.x = x
        if training and self.fails == "forward":
            self.fail()
        return x * self.gain.value

    def backward(self, dy):
        self.gain.grad = (dy * self.x).sum()
        if self.fails == "backward":
            self.fail()
        return dy * self.gain.value

    def fail(self):
        self.count += 1
        if self.count == self.at:
            raise RuntimeError("it fails")


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("fails", ["forward", "backward", "loss", "optimizer", "finite"])
def test_an_interrupted_segmented_step_restores_the_buffers(fails, accumulate):
    """Running statistics of kernel layers and of NumPy layers are those of the last complete step."""

    class Optimizer(Plain):
        def step(self, params, lr):
            super().step(params, lr)
            if fails == "optimizer" and self.steps == 2:
                raise RuntimeError("it fails")
            self.steps += 1

        steps = 0

    def loss(scores, y):
        if fails == "loss" and y.dtype == np.int8:
            raise RuntimeError("it fails")
        losses, dscores = softmax_cross_entropy(scores, y)
        return (losses * np.inf if fails == "finite" and y.dtype == np.int8 else losses), dscores

    def make_trainer(**faults):
        layers = [Conv2D(2, 3), BatchNorm2D(), FailingNorm(**faults), Flatten(), Dense(3)]
        return Trainer(Sequential(layers, (1, 6, 6)), loss, Optimizer(0.01))

    trainer, twin = make_trainer(fails=fails, at=3 if accumulate == 1 else 8), make_trainer()
    for one in (trainer, twin):
        one.fit(
            X[:30],
            Y[:30],
            batch_size=15 // accumulate,
            gradient_accumulation_steps=accumulate,
            shuffle=False,
            verbose=0,
        )
    buffers = [name for name in trainer.model.state_dict() if name not in trainer.model.params]
    assert buffers == ["1.running_mean", "1.running_var", "1.num_batches_tracked", "2.mean"]
    with pytest.raises(FloatingPointError if fails == "finite" else RuntimeError):
        trainer.fit(
            X[30:],
            Y[30:].astype(np.int8),
            batch_size=15 // accumulate,
            gradient_accumulation_steps=accumulate,
            verbose=0,
        )
    assert weights(trainer.model) == weights(twin.model) and trainer.step == 2


def test_a_method_named_update_makes_no_native_optimizer():
    class WithUpdateMethod(Plain):
        def step(self, params, lr):
            for param in params.values():
                self.update(param, lr)

        def update(self, param, lr):
            param.value -= lr * param.grad

    result = []
    for optimizer in (Plain(0.1), WithUpdateMethod(0.1)):
        trainer = Trainer(make_net(), "softmax_cross_entropy", optimizer)
        trainer.fit(X, Y, batch_size=9, verbose=0)
        result.append(weights(trainer.model))
    assert result[0] == result[1]


def test_targets_of_any_kind_are_compared_with_others():
    for y in (Y.astype(object), Y.astype("M8[s]"), Y.astype(str)):
        assert fingerprint(y, np.arange(45)) == fingerprint(y.copy(), np.arange(45))
        assert fingerprint(y, np.arange(45)) != fingerprint(y[::-1], np.arange(45))


@pytest.mark.parametrize("first_layers", [0, 1], ids=["native", "segmented"])
def test_a_refused_step_restores_the_buffers(first_layers):
    """Running statistics of a batch with a non-finite gradient: a step is completed or has no effect."""
    layers = [*(Identity() for _ in range(first_layers)), Conv2D(3, 3), BatchNorm2D(), ReLU(), Flatten(), Dense(3)]
    model = Sequential(layers, input_shape=(1, 6, 6))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    trainer.train_batch(X, Y)
    model.params[f"{first_layers + 4}.weight"].value = np.full((3, 48), 1e38, "float32")
    before = weights(model)
    with pytest.raises(FloatingPointError):
        trainer.train_batch(X, Y)
    assert weights(model) == before
    assert any("running_mean" in name for name in before)
