"""A report measures what training does, for every kind of model, and has no side effects."""

import threading
import weakref

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.datasets import load_digits
from minidl.initializers import glorot_uniform
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    Block,
    Conv2D,
    ConvTranspose2D,
    Dense,
    Dropout,
    Flatten,
    GroupNorm,
    MaxPool2D,
    Parallel,
    PReLU,
    RandomShift,
    ReLU,
    Rescale,
    Residual,
    Sigmoid,
    Tanh,
)
from minidl.losses import (
    BinaryCrossEntropy,
    Huber,
    MeanSquaredError,
    Pinball,
    Poisson,
    SoftmaxCrossEntropy,
    softmax_cross_entropy,
)
from minidl.optimizers import SGD, Adam, RMSprop
from minidl.schedules import Cosine
from minidl.training.report import _probe
from minidl.training.report.baseline import baseline_of

DATA = load_digits()
X, Y = DATA.X_train, DATA.y_train
TO_ONE = 1 / 16


def make_trainer(layers, optimizer, dtype="float32", loss="softmax_cross_entropy", metrics=("accuracy",), **more):
    return Trainer(Sequential(layers, (1, 8, 8), dtype=dtype), loss, optimizer, metrics, **more)


class Scale(Layer):
    """A NumPy layer with a two-dimensional weight."""

    def build(self, in_shape):
        self.weight = self.param("weight", (in_shape[0], in_shape[0]), glorot_uniform)
        return in_shape

    def forward(self, x, training):
        if training:
            self.x = x
        return x @ self.weight.value.T

    def backward(self, dy):
        self.weight.grad = dy.T @ self.x
        return dy @ self.weight.value


class Lion:
    """A NumPy optimizer with state."""

    def __init__(self, lr):
        self.lr, self.m = lr, {}

    def step(self, params, lr):
        for name, p in params.items():
            m = self.m.get(name, 0)
            p.value -= lr * np.sign(0.9 * m + 0.1 * p.grad)
            self.m[name] = 0.99 * m + 0.01 * p.grad


NETS = {
    "plan": lambda: [Rescale(TO_ONE), Conv2D(4, 3), ReLU(), Flatten(), Dropout(0.3), Dense(10)],
    "batch norm": lambda: [
        *(Conv2D(4, 3, padding=1), BatchNorm2D(), Residual(Conv2D(4, 3, padding=1), ReLU()), ReLU()),
        *(Parallel(Conv2D(2, 1), [Conv2D(3, 3, padding=1), Tanh()], []), Flatten(), Dense(10)),
    ],
    "numpy": lambda: [Rescale(TO_ONE), Flatten(), Dense(12), Residual(Scale(), ReLU()), Block(Scale()), Dense(10)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("optimizer", [lambda: SGD(0.01, momentum=0.9), Adam, lambda: Lion(0.01)])
@pytest.mark.parametrize("net", NETS)
def test_an_update_equals_that_of_the_next_step(net, optimizer, dtype):
    clip = {"clip_norm": 0.5, "clip_value": 0.1, "per_example_clip_norm": None if net == "batch norm" else 2.0}
    trainer = make_trainer(NETS[net](), optimizer(), dtype=dtype, **clip)
    if not isinstance(trainer.optimizer, Lion):
        trainer.model.layers[-1].lr_mult = 0.5
    x, y = X[:64], Y[:64]
    for _ in range(3):
        trainer.train_batch(x, y)
    probe = _probe(trainer, x, y)
    before = {name: param.value.astype(float) for name, param in trainer.model.params.items()}
    assert probe.mean_loss == pytest.approx(trainer.train_batch(x, y), rel=1e-5)
    copies = {f"{i}.{name}": p for i, layer in enumerate(probe.network.layers) for name, p in layer.params.items()}
    for name, param in trainer.model.params.items():
        np.testing.assert_allclose(copies[name].grad, param.grad, rtol=1e-4, atol=1e-6)
    weights = [name for name, value in before.items() if value.ndim > 1]
    updates = [seen.update for seen in probe.seen if seen.update is not None]
    assert len(updates) == len(weights)
    for name, update in zip(weights, updates, strict=True):
        moved = np.linalg.norm(trainer.model.params[name].value - before[name])
        assert update == pytest.approx(moved / np.linalg.norm(before[name]), rel=1e-3)


def test_an_update_is_that_of_a_step_with_unlabelled_examples():
    trainer = make_trainer([Conv2D(4, 3), Flatten(), Dense(10)], SGD(1e-4), loss=SoftmaxCrossEntropy(ignore_index=10))
    x, y = X[:64], np.where(np.arange(64) % 4, 10, Y[:64])
    trainer.train_batch(x, y)
    probe, before = _probe(trainer, x, y), trainer.model.params["0.weight"].value.copy()
    trainer.train_batch(x, y)
    moved = np.linalg.norm(trainer.model.params["0.weight"].value - before) / np.linalg.norm(before)
    assert probe.seen[0].update == pytest.approx(moved, rel=1e-3)


def test_which_parameters_get_gradients_and_which_layers_read_the_data():
    trainer = make_trainer(NETS["batch norm"](), SGD(0.1))
    trainer.model.layers[0].trainable = False
    probe = _probe(trainer, X, Y)
    names = [seen.name for seen in probe.seen]
    assert names[2:4] == ["layer 2, Residual: body.0, Conv2D", "layer 2, Residual: body.1, ReLU"]
    assert [seen.name for seen in probe.seen if seen.input is not None] == ["layer 0, Conv2D"]
    assert [seen.name for seen in probe.seen if seen.gradient is None] == ["layer 0, Conv2D"]  # batch norm is trainable
    x = X[np.sort(np.random.default_rng(0).permutation(len(X))[:256])].astype(float)
    spread = probe.seen[0].input
    assert spread.size == pytest.approx(np.sqrt((x**2).mean()))
    assert spread.centre == pytest.approx(np.sqrt((x.mean(axis=0) ** 2).mean()))
    assert spread.deviation == pytest.approx(np.sqrt(x.var(axis=0).mean()))
    assert spread.largest == 16


def test_a_unit_is_off_if_it_is_off_for_every_example_of_every_batch():
    trainer = make_trainer([Rescale(TO_ONE), Flatten(), Dense(200), ReLU(), Dense(10)], SGD(0.1))
    trainer.model.params["2.bias"].value[:] = -1.5
    trainer.fit(X, Y, verbose=0)
    off = trainer.model[:4].predict(trainer.sample_buffer.sample(trainer.sample_key).X) == 0
    seen = _probe(trainer, None, None).seen[3]
    assert np.array_equal(seen.off, off.all(axis=0))
    assert 0 < off.all(axis=0).mean() < np.mean([part.all(axis=0).mean() for part in np.array_split(off, 3)])
    assert (seen.flat, seen.values) == (off.sum(), off.size)


def test_all_examples_are_measured_before_the_step():
    trainer = make_trainer([Rescale(TO_ONE), Flatten(), Dense(16), ReLU(), Dense(10)], SGD(5.0))
    trainer.train_batch(X, Y, sample_weight=1.0 + Y)
    sample = trainer.sample_buffer.sample(trainer.sample_key)
    probe = _probe(trainer, None, None)
    expected = trainer.evaluate(sample.X, sample.y, sample.weights)["loss"]
    assert probe.mean_loss == pytest.approx(expected) == probe.inferred
    assert _probe(trainer, X, Y).mean_loss == pytest.approx(_probe(trainer, X, Y).inferred)


def test_the_loss_of_a_constant_guess():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 500)
    shares = np.bincount(y) / 500
    result = baseline_of(softmax_cross_entropy, y, None, (10,))
    assert result.guess == pytest.approx(-(shares * np.log(shares)).sum())
    assert result.right == pytest.approx(0, abs=1e-4)
    assert baseline_of(SoftmaxCrossEntropy(0.1), y, None, (10,)).right > 0.3
    numbers, weights = rng.normal(size=(500, 3)), rng.random(500)
    mean = np.average(numbers, axis=0, weights=weights)
    result = baseline_of(MeanSquaredError(), numbers, weights, (3,))
    assert result.guess == pytest.approx(np.average(((numbers - mean) ** 2).mean(axis=1), weights=weights))
    assert (result.right, result.learned(result.guess), result.learned(0.0)) == (0, 0, 1)
    even = (y % 2 == 0)[:, np.newaxis].astype(float)
    result = baseline_of(BinaryCrossEntropy(), even, None, (1,))
    share = even.mean()
    assert result.guess == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share))
    assert result.right == pytest.approx(0, abs=1e-4)
    counts = rng.poisson(3.0, (500, 1)).astype(float)
    result = baseline_of(Poisson(), counts, None, (1,))
    nearby = [float(Poisson()(np.full((500, 1), np.log(3) + d), counts)[0].mean()) for d in np.linspace(-0.2, 0.2, 41)]
    assert result.right < result.guess <= min(nearby)
    answers = np.repeat(numbers[:, :1], 2, axis=1)
    for weight in (None, np.exp(2 * answers[:, 0])):
        guess = baseline_of(Pinball([0.2, 0.9]), answers, weight, (2,)).guess
        constants = [Pinball([0.2, 0.9])(np.full((500, 2), c), answers)[0] for c in rng.normal(0.5, 1, (300, 2))]
        assert guess < min(np.average(losses, weights=weight) for losses in constants)
    assert baseline_of(Huber(), np.ones((5, 1)), None, (1,)) is None  # nothing to learn
    assert baseline_of(lambda scores, y: (scores[:, 0], scores), y, None, (10,)) is None


# ---- no side effects


def state(trainer):
    """Returns all state that training depends on, as bytes."""
    network, update = trainer.model.network, trainer.steps().update
    memory = {} if update is None else update.state | {"steps": update.steps}
    own = getattr(trainer.optimizer, "m", {})
    return (
        {name: array.tobytes() for name, array in trainer.model.state_dict().items()},
        network.parameters.grads.tobytes(),
        {name: np.asarray(array).tobytes() for name, array in {**memory, **own}.items()},
        (trainer.step, trainer.epoch, trainer.should_stop, trainer.skipped_steps, repr(trainer.optimizer.lr)),
        {name: values for name, values in trainer.history.items() if "_per_" not in name},
        np.random.get_state()[1].tobytes(),  # noqa: NPY002
    )


class CountingLoss:
    """A custom loss with state."""

    def __init__(self):
        self.calls = 0

    def __call__(self, scores, y):
        self.calls += 1
        return softmax_cross_entropy(scores, y)


class Noisy(Layer):
    """A NumPy layer with a buffer and random numbers."""

    def build(self, in_shape):
        self.mean = self.buffer("mean", in_shape, lambda rng, shape: np.zeros(shape))
        return in_shape

    def forward(self, x, training):
        if not training:
            return x
        self.mean += x.mean(axis=0)
        return x + 0.1 * self.rng.normal(size=x.shape).astype(x.dtype)

    def backward(self, dy):
        return dy


def long_net():
    return [
        *(Rescale(TO_ONE), RandomShift(1), Conv2D(4, 3, padding=1), BatchNorm2D(), PReLU(), MaxPool2D(2), Flatten()),
        *(Dropout(0.2), Dense(16), Sigmoid(), Dense(10)),
    ]


TRAININGS = {
    "momentum": lambda: make_trainer(long_net(), SGD(0.05, momentum=0.9)),
    "adam, float64": lambda: make_trainer(long_net(), Adam(), "float64", clip_norm=1.0),
    "schedule": lambda: make_trainer(long_net(), RMSprop(Cosine(0.01, 50))),
    "own": lambda: make_trainer([*long_net()[:-1], Noisy(), Dense(10)], Lion(0.01), loss=CountingLoss()),
}


@pytest.mark.parametrize("training", TRAININGS)
def test_training_continues_with_the_same_bits(training):
    ends = []
    for reports in (False, True):

        class ReportingCallback:
            every_n_steps = 7

            def look(self, trainer, *args):
                if reports:  # noqa: B023
                    before = state(trainer)
                    trainer.report()
                    assert state(trainer) == before

            on_epoch_begin = on_step_end = on_epoch_end = on_fit_end = look

        trainer = TRAININGS[training]()
        trainer.model.layers[2].lr_mult = 0.5 if training != "own" else 1.0
        trainer.train_batch(X[:64], Y[:64])
        ReportingCallback().look(trainer)
        callbacks = [ReportingCallback()]
        trainer.fit(X[:500], Y[:500], epochs=3, validation_split=0.2, callbacks=callbacks, verbose=0)
        trainer.model.layers[2].trainable = False
        trainer.train_batch(X[:64], Y[:64])
        ReportingCallback().look(trainer)
        trainer.model.layers[2].trainable = True
        trainer.train_batch(X[:64], Y[:64])
        ends.append((state(trainer), getattr(trainer.loss, "calls", 0)))
    assert ends[0] == ends[1]


def test_a_report_is_reproducible():
    def run_report():
        trainer = make_trainer(long_net(), SGD(3.0))
        trainer.fit(X, Y, epochs=2, verbose=0)
        return [(f, f.measured) for f in trainer.report()], [(f, f.measured) for f in trainer.report()]

    (one, again), (other, _) = run_report(), run_report()
    assert one
    assert one == again == other


# ---- models, losses and optimizers of all kinds

RNG = np.random.default_rng(0)


def squared_error(scores, y):
    error = scores - np.eye(10)[y]
    return (error**2).sum(axis=1), 2 * error


KINDS = {
    "regression": ([Flatten(), Dense(3)], "huber", RNG.normal(size=(len(X), 3))),
    "one score": ([Flatten(), Dense(1)], "binary_cross_entropy", Y % 2 == 0),
    "questions": ([Flatten(), Dense(4)], "binary_cross_entropy", RNG.integers(0, 2, (len(X), 4))),
    "counts": ([Flatten(), Dense(1)], "poisson", Y),
    "images": ([Conv2D(4, 3, stride=2), GroupNorm(2), ConvTranspose2D(1, 4, stride=2)], "mean_squared_error", X / 16),
    "custom loss": ([Flatten(), Dense(10)], squared_error, Y),
    "strings": ([Flatten(), Dense(10)], lambda s, y: softmax_cross_entropy(s, y.astype(int)), Y.astype(str)),
    "no weights": ([Rescale(1.0)], "mean_squared_error", X / 16),
    "empty branches": ([Parallel([], [Residual()], join="add"), Flatten(), Dense(10)], "softmax_cross_entropy", Y),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_models(kind, dtype):
    layers, loss, y = KINDS[kind]
    model = Sequential([Rescale(TO_ONE), *layers], dtype=dtype)
    model = Sequential(model[:].layers, dtype=dtype)
    trainer = Trainer(model, loss, Adam(0.01))
    trainer.fit(X, y, epochs=6, batch_size=100, verbose=0, validation_split=0.1)
    assert trainer.report() == []
    trainer.train_batch(X[:5], y[:5])
    assert trainer.report() == []
    assert trainer.report(X[:1].reshape(1, 64), y[:1]) == []
    if kind != "no weights":
        model.layers[-1].params["weight"].value[:] = np.inf
        assert [finding.symptom for finding in trainer.report(X, y)][:1] == ["not finite"]


# ---- refusals


def test_reports_without_data(tmp_path):
    unbuilt = Trainer(Sequential([Flatten(), Dense(10)]), "softmax_cross_entropy", SGD(0.1))
    for args in ((), (X, Y)):
        with pytest.raises(ValueError, match="report: the model is not built yet"):
            unbuilt.report(*args)
    assert unbuilt.model.network is None
    trainer = make_trainer(long_net(), SGD(0.1))
    with pytest.raises(ValueError, match=r"report: expected a fit or a train_batch before it, or .* report\(X, y\)"):
        trainer.report()
    with pytest.raises(TypeError, match="report: expected X and y, or neither of them, got one"):
        trainer.report(X)
    with pytest.raises(ValueError, match="at least one example"):
        trainer.report(X[:0], Y[:0])
    with pytest.raises(ValueError, match="layer 1, BatchNorm1D: expected at least 2 examples"):
        make_trainer([Flatten(), BatchNorm1D(), Dense(10)], SGD(0.1)).report(X[:1], Y[:1])
    trainer.fit(X, Y, verbose=0, callbacks=[Checkpoint(tmp_path / "c.safetensors")])
    resumed = Trainer.resume(tmp_path / "c.safetensors")
    with pytest.raises(ValueError, match="report: expected a fit"):
        resumed.report()
    assert resumed.report(X, Y) == trainer.report(X, Y) == []
    trainer.loss = MeanSquaredError()
    with pytest.raises(ValueError, match="report: expected a fit"):
        trainer.report()


def test_reports_at_an_invalid_moment():
    trainer, output = make_trainer(long_net(), SGD(0.1)), []

    def report():
        try:
            trainer.report(X, Y)
        except RuntimeError as error:
            output.append(str(error))

    class Elsewhere:
        def on_epoch_end(self, *args):
            thread = threading.Thread(target=report)
            thread.start()
            thread.join()

    class Inside(Lion):
        def step(self, params, lr):
            report()

    trainer.fit(X, Y, callbacks=[Elsewhere()], verbose=0)
    trainer.optimizer = Inside(0.1)
    trainer.train_batch(X, Y)
    assert len(output) == 2
    assert "report: another thread is at work on this model" in output[0]
    assert "report: a step is being done" in output[1]


def test_uncopyable_objects():
    class Locked(Noisy):
        def build(self, in_shape):
            self.lock = threading.Lock()
            return super().build(in_shape)

    trainer = make_trainer([Locked(), Flatten(), Dense(10)], SGD(0.1))
    before = state(trainer)
    with pytest.raises(TypeError, match=r"report: expected layers, loss and optimizer that can be copied: .*lock"):
        trainer.report(X, Y)
    assert state(trainer) == before


def test_a_loss_that_is_a_method_of_the_trainers_owner():
    class Experiment:
        def __init__(self):
            self.trainer = make_trainer([Rescale(TO_ONE), Flatten(), Dense(10)], SGD(self.rate), loss=self.loss)

        def loss(self, scores, y):
            return softmax_cross_entropy(scores, y)

        def rate(self, step):
            return 0.1

    trainer = Experiment().trainer
    trainer.fit(X, Y, verbose=0)
    assert trainer.report() == []


def test_a_report_keeps_nothing_alive():
    trainer = make_trainer([Rescale(TO_ONE), Flatten(), Dense(10)], SGD(0.1))
    trainer.fit(X, Y, verbose=0)
    given = X.astype("f4")
    watched = weakref.ref(given)
    trainer.report(given, Y)
    del given
    assert watched() is None
