"""Checkpoints: what is saved and resumed goes on as if nothing had happened, to the last bit."""

import json

import numpy as np
import pytest

from minidl import Layer, Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import Conv2D, Dense, Dropout, Flatten, ReLU
from minidl.metrics import accuracy
from minidl.optimizers import SGD
from minidl.saving import files
from minidl.saving.files import FileError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(90, 1, 6, 6)).astype("float32"), RNG.integers(0, 3, 90)
WEIGHTS = RNG.uniform(0, 2, 90)
FIT = {"epochs": 4, "batch_size": 7, "verbose": 0}


class Draws(Layer):
    """A layer in NumPy with a parameter and random numbers."""

    def build(self, in_shape):
        self.gain = self.param("gain", (), lambda rng, shape: np.ones(shape))
        return in_shape

    def forward(self, x, training):
        self.noisy = x * (1 + self.rng.normal(size=x.shape).astype(x.dtype)) if training else x
        return self.noisy * self.gain.value

    def backward(self, dy):
        self.gain.grad[...] = (dy * self.noisy).sum()
        return dy


class Adam:
    """An optimizer in Python that remembers numbers and arrays by name, and has no state_dict."""

    def __init__(self, lr):
        self.lr, self.t, self.m, self.v = lr, 0, {}, {}

    def step(self, params, lr):
        self.t += 1
        for name, p in params.items():
            m = self.m[name] = 0.9 * self.m.get(name, 0) + 0.1 * p.grad
            v = self.v[name] = 0.999 * self.v.get(name, 0) + 0.001 * p.grad**2
            p.value -= lr * (m / (1 - 0.9**self.t)) / (np.sqrt(v / (1 - 0.999**self.t)) + 1e-8)


class Schedule:
    """A learning rate as an object, with an argument."""

    def __init__(self, first, every):
        self.first, self.every = first, every

    def __call__(self, step):
        return self.first * 0.9 ** (step // self.every)


class Counts:
    """A callback that remembers, and lets what it remembers act on the training."""

    def __init__(self):
        self.steps, self.losses = 0, []

    def on_step_end(self, trainer, step, loss):
        self.steps, self.losses = self.steps + 1, [*self.losses[-3:], loss]
        if self.steps % 11 == 0:
            trainer.optimizer.lr *= float(np.clip(np.mean(self.losses), 0.5, 0.9))

    def state_dict(self):
        return {"steps": self.steps, "losses": np.array(self.losses)}

    def load_state_dict(self, state):
        self.steps, self.losses = state["steps"], state["losses"].tolist()


def squares(scores, y):
    error = scores - np.eye(3, dtype=scores.dtype)[y]
    return (error**2).sum(axis=1), 2 * error


def largest(y, scores):
    return scores.max()


CUSTOM = {c.__name__: c for c in (Draws, Adam, Schedule, squares, largest)}


def native(dtype="float32"):
    layers = [Conv2D(4, 3), ReLU(), Dropout(0.3), Flatten(), Dense(6), ReLU(), Dense(3)]
    model = Sequential(layers, (1, 6, 6), seed=2, dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9, nesterov=True), ["accuracy"], seed=5)


def staged(dtype="float32"):
    model = Sequential([Conv2D(2, 3), Draws(), Flatten(), Dense(3)], (1, 6, 6), dtype=dtype)
    return Trainer(model, squares, Adam(Schedule(0.01, 9)), [accuracy, largest])


def half(dtype="float32"):
    """A layer in Python, and an optimizer of ours."""
    model = Sequential([Draws(), Flatten(), Dense(3)], (1, 6, 6), dtype=dtype)
    return Trainer(model, "softmax_cross_entropy", SGD(0.05, momentum=0.5))


MAKERS = {maker.__name__: maker for maker in (native, staged, half)}


def everything(trainer):
    history = {k: np.array(v).tobytes() for k, v in trainer.history.items() if k != "images_per_second"}
    weights = {k: v.tobytes() for k, v in trainer.model.state_dict().items()}
    return weights, history, trainer.step, trainer.epoch, trainer.model.predict(X).tobytes()


class Break:
    """Breaks a fit off behind a step."""

    last = True

    def __init__(self, step):
        self.step = step

    def on_step_end(self, trainer, step, loss):
        if step == self.step:
            raise KeyboardInterrupt


def broken_off(trainer, step, **fit):
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, **{**FIT, **fit, "callbacks": [*fit.get("callbacks", []), Break(step)]})
    return trainer


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


# ---- going on
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", MAKERS)
def test_resumed_at_each_of_the_first_40_steps(path, kind, dtype):
    """In the middle of epochs and at their ends; with weights, a split, and other numbers of threads."""
    fit = {**FIT, "sample_weight": WEIGHTS, "validation_split": 0.2, "epochs": 5}
    whole = MAKERS[kind](dtype)
    whole.fit(X, Y, **fit)
    expected = everything(whole)
    for step in range(40):
        broken_off(MAKERS[kind](dtype), step, **fit).save_checkpoint(path)
        trainer = Trainer.resume(path, custom=CUSTOM, num_threads=1 + step % (3 if kind == "native" else 2))
        assert trainer.step == step + 1
        trainer.fit(X, Y, **fit)
        assert everything(trainer) == expected, step


@pytest.mark.parametrize("kind", MAKERS)
def test_what_callbacks_remember_goes_on(path, kind):
    def maker():
        trainer = MAKERS[kind]()
        trainer.optimizer.lr = 0.1  # a number, which the callback changes
        return trainer

    whole = maker()
    whole.fit(X, Y, **FIT, callbacks=[Counts()])
    for step in (0, 10, 11, 12, 13, 37):
        broken_off(maker(), step, callbacks=[Counts(), Checkpoint(path, every_n_steps=1)])
        trainer = Trainer.resume(path, custom=CUSTOM)
        trainer.fit(X, Y, **FIT, callbacks=[Counts(), Checkpoint(path, every_n_steps=1)])
        assert everything(trainer) == everything(whole), step


def test_resumed_again_and_again(path):
    whole = native()
    whole.fit(X, Y, **FIT)
    trainer = broken_off(native(), 2)
    for step in (5, 6, 19, 33):
        trainer.save_checkpoint(path)
        trainer = broken_off(Trainer.resume(path), step)
    trainer.save_checkpoint(path)
    trainer = Trainer.resume(path)
    trainer.save_checkpoint(path)  # as it came: still in the middle of that fit
    trainer = Trainer.resume(path)
    trainer.fit(X, Y, **FIT)
    assert everything(trainer) == everything(whole)


def test_into_a_model_that_is_there(path):
    whole = half()
    whole.fit(X, Y, **FIT)
    broken_off(half(), 9).save_checkpoint(path)
    for shape in (None, (1, 6, 6)):
        model = Sequential([Draws(), Flatten(), Dense(3)], shape)
        trainer = Trainer.resume(path, model=model)
        assert trainer.model is model
        trainer.fit(X, Y, **FIT)
        assert everything(trainer) == everything(whole)


def test_after_a_fit_another_one_begins(path):
    whole, trainer = native(), native()
    whole.fit(X, Y, **FIT)
    trainer.fit(X, Y, **FIT)
    trainer.save_checkpoint(path)
    trainer = Trainer.resume(path)
    assert trainer.interrupted is None
    for each in (whole, trainer):
        each.fit(X, Y, epochs=2, batch_size=9, verbose=0)
    assert everything(trainer) == everything(whole)


def test_saved_at_the_end_of_the_last_epoch_nothing_is_left_to_do(path):
    whole = native()
    whole.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])
    trainer = Trainer.resume(path)
    trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])
    assert everything(trainer) == everything(whole)
    trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])  # the second one trains on
    assert trainer.epoch == 8
    other = Trainer.resume(path)
    Trainer.resume(path).fit(X, Y, epochs=1, batch_size=8, verbose=0)  # nor does it stand in another one's way
    assert other.epoch == 8


def test_a_stop_is_not_forgotten(path):
    class Stop:
        def on_step_end(self, trainer, step, loss):
            trainer.stop = step >= 20

    whole = native()
    whole.fit(X, Y, **FIT, callbacks=[Stop(), Checkpoint(path, every_n_steps=1)])
    trainer = Trainer.resume(path)
    trainer.fit(X, Y, **FIT, callbacks=[Stop(), Checkpoint(path, every_n_steps=1)])
    assert everything(trainer) == everything(whole) and trainer.epoch == 2


def test_steps_by_hand_and_their_optimizer_go_on(path):
    trainer = native()
    for step in range(5):
        trainer.train_batch(X[step:], Y[step:])
    trainer.optimizer.step(trainer.model.params, 0.1)
    trainer.save_checkpoint(path)
    resumed = Trainer.resume(path)
    for each in (trainer, resumed):
        each.train_batch(X, Y)
        each.optimizer.step(each.model.params, 0.1)
    assert everything(resumed) == everything(trainer)


def test_the_same_state_gives_the_same_bytes(tmp_path):
    for name in "ab":
        trainer = native()
        for step in range(3):
            trainer.train_batch(X[step:], Y[step:])
        trainer.save_checkpoint(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# ---- refused
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"X": X[:80], "y": Y[:80]}, "X: expected the same"),
        ({"X": X + np.float32(1e-3)}, "X: expected the same, as in the fit that was interrupted, got other data"),
        ({"y": Y[::-1]}, "y: expected the same"),
        ({"sample_weight": WEIGHTS}, "sample_weight: expected None"),
        ({"class_weight": {0: 2.0}}, "sample_weight: expected None"),
        ({"batch_size": 8}, "batch_size: expected 7, .* got batch_size=8"),
        ({"epochs": 5}, "epochs: expected 4"),
        ({"shuffle": False}, "shuffle: expected True"),
        ({"validation_split": 0.1}, r"validation_split: expected 0\.0"),
        ({"callbacks": [Counts()]}, r"callbacks: expected those with a state to be \[\]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_another_fit_is_refused_and_changes_nothing(path, changed, said):
    broken_off(native(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    before = everything(trainer)
    with pytest.raises(ValueError, match=said):
        trainer.fit(**{"X": X, "y": Y, **FIT, **changed})
    assert everything(trainer) == before
    whole = native()
    whole.fit(X, Y, **FIT)
    trainer.fit(X, Y, **FIT)  # still possible
    assert everything(trainer) == everything(whole)


def test_an_interrupted_fit_can_be_given_up(path):
    broken_off(native(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    trainer.interrupted = None
    trainer.fit(X, Y, epochs=1, batch_size=8, verbose=0)
    assert trainer.epoch == 2


def test_a_step_by_hand_ends_what_was_interrupted(path):
    broken_off(native(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    trainer.train_batch(X, Y)
    trainer.fit(X, Y, epochs=1, batch_size=8, verbose=0)
    assert trainer.step == 17 + 1 + 12


def test_layouts_and_byte_order_do_not_make_other_data(path):
    broken_off(native(), 16).save_checkpoint(path)
    for same in (np.asfortranarray(X), X.astype(">f4"), np.repeat(X, 2, axis=0)[::2], X.tolist()):
        trainer = Trainer.resume(path)
        if isinstance(same, list):  # of float64
            with pytest.raises(ValueError, match="X: expected the same"):
                trainer.fit(same, Y, **FIT)
        else:
            trainer.fit(same, Y, **FIT)


def test_what_is_missing_in_custom_is_told_all_at_once(path):
    broken_off(staged(), 3).save_checkpoint(path)
    with pytest.raises(ValueError, match=r"custom: .*'Adam'.*'Draws'.*'Schedule'.*'largest'.*'squares'"):
        Trainer.resume(path)
    with pytest.raises(ValueError, match=r"custom={'squares': squares}"):
        Trainer.resume(path, custom={name: part for name, part in CUSTOM.items() if name != "squares"})


def test_a_model_with_other_layers_is_refused_and_stays(path):
    broken_off(half(), 9).save_checkpoint(path)
    model = Sequential([Flatten(), Dense(3)], (1, 6, 6))
    before = model.state_dict()
    with pytest.raises(ValueError, match="model: expected"):
        Trainer.resume(path, model=model)
    assert all(np.array_equal(value, before[name]) for name, value in model.state_dict().items())


class Unsavable(Adam):
    """Remembers something that no file holds."""

    def __init__(self, lr):
        super().__init__(lr)
        self.log = open


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: setattr(t, "optimizer", Unsavable(0.1)), "optimizer.*'log'.*cannot be saved"),
        (lambda t: setattr(t, "optimizer", type("NoName", (Adam,), {"__init__": lambda s, rate: None})(1)), "'rate'"),
        (lambda t: setattr(t, "loss", SGD), "got the class"),
    ],
    ids=["state", "argument", "class"],
)
def test_what_cannot_be_saved_is_told_before_the_first_step(path, change, said):
    trainer = staged()
    change(trainer)
    if not hasattr(trainer.optimizer, "lr"):
        trainer.optimizer.lr = 0.1
    with pytest.raises(TypeError, match=said):
        trainer.save_checkpoint(path)
    with pytest.raises(TypeError, match=said):
        trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])
    assert trainer.step == 0 and not path.exists()


def test_an_unbuilt_model_has_nothing_to_save(path):
    trainer = Trainer(Sequential([Flatten(), Dense(3)]), "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(ValueError, match="not built"):
        trainer.save_checkpoint(path)


# ---- files that nobody should have written
def test_a_model_file_is_no_checkpoint(path):
    trainer = native()
    trainer.model.save(path)
    with pytest.raises(FileError, match="expected a checkpoint"):
        Trainer.resume(path)
    trainer.save_checkpoint(path)
    with pytest.raises(FileError, match="expected a model"):
        Sequential.load(path)


def spoil(config, tensors, place, value):
    """The configuration with something else at a place."""
    *inner, last = place
    here = config
    for key in inner:
        here = here[key]
    if value is KeyError:
        del here[last]
    else:
        here[last] = value
    return config, tensors


WRONG = [None, -1, 2**70, "", "x", [], {}, 0.5, True, [1], {"made": 1}, {"custom": []}, {"tuple": []}, KeyError]
TOP = ("model", "loss", "metrics", "optimizer", "remembered", "seed", "step", "epoch", "history", "position")


@pytest.mark.parametrize("place", TOP)
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_valid_file_of_nonsense_is_a_file_error_or_does_no_harm(path, place, value):
    broken_off(native(), 16).save_checkpoint(path)
    config, tensors = files.read(path, "checkpoint")
    if json.dumps(config[place]) == json.dumps(value, default=str):
        return
    files.write(path, "checkpoint", *spoil(config, tensors, [place], value))
    try:
        trainer = Trainer.resume(path)
        trainer.train_batch(X, Y)
        trainer.fit(X, Y, epochs=1, verbose=0)
    except ValueError:  # FileError, or a fit that is another one's
        return


@pytest.mark.parametrize("which", ["missing", "other shape", "other dtype"])
def test_tensors_that_do_not_fit_are_refused(path, which):
    broken_off(native(), 16).save_checkpoint(path)
    config, tensors = files.read(path, "checkpoint")
    for name in tensors:
        spoilt = dict(tensors)
        if which == "missing":
            del spoilt[name]
        else:
            spoilt[name] = np.zeros(3) if which == "other shape" else tensors[name].astype("int8")
        files.write(path, "checkpoint", config, spoilt)
        with pytest.raises(FileError):
            Trainer.resume(path)
