"""Checkpoints: a resumed fit continues as if it had never been interrupted, bit for bit."""

import copy

import numpy as np
import pytest
from interrupted_fits import (
    CUSTOM,
    FIT,
    MAKERS,
    WEIGHTS,
    NoiseLayer,
    PythonAdam,
    StepCounter,
    X,
    Y,
    full_state,
    interrupt_fit,
    mixed_trainer,
    native_trainer,
    python_trainer,
)
from slow_marks import slow_after

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import Conv2D, Dense, Flatten, ReLU
from minidl.optimizers import SGD, Adagrad, Adam, AdamW, Muon, RMSprop
from minidl.saving import safetensors_file
from minidl.saving.safetensors_file import FileError
from minidl.schedules import Cosine, Exponential, MultiStep, OneCycle, Polynomial, Step


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


# ---- resuming
@pytest.mark.parametrize("dtype", slow_after(1, ["float32", "float64"]))
@pytest.mark.parametrize("kind", MAKERS)
def test_resuming_at_each_of_the_first_40_steps(path, kind, dtype):
    """Within epochs and at their ends; with weights, a split, and different numbers of threads."""
    fit = {**FIT, "sample_weight": WEIGHTS, "validation_split": 0.2, "epochs": 5}
    uninterrupted = MAKERS[kind](dtype)
    uninterrupted.fit(X, Y, **fit)
    expected = full_state(uninterrupted)
    for step in range(40):
        interrupt_fit(MAKERS[kind](dtype), step, **fit).save_checkpoint(path)
        trainer = Trainer.resume(
            path, custom_objects=CUSTOM, num_threads=1 + step % (3 if kind == "native_trainer" else 2)
        )
        assert trainer.step == step + 1
        trainer.fit(X, Y, **fit)
        assert full_state(trainer) == expected, step


@pytest.mark.parametrize("kind", MAKERS)
def test_callback_state_is_resumed(path, kind):
    def maker():
        trainer = MAKERS[kind]()
        trainer.optimizer.lr = 0.1  # a rate that the callback changes
        return trainer

    uninterrupted = maker()
    uninterrupted.fit(X, Y, **FIT, callbacks=[StepCounter()])
    for step in (0, 10, 11, 12, 13, 37):
        interrupt_fit(maker(), step, callbacks=[StepCounter(), Checkpoint(path, every_n_steps=1)])
        trainer = Trainer.resume(path, custom_objects=CUSTOM)
        trainer.fit(X, Y, **FIT, callbacks=[StepCounter(), Checkpoint(path, every_n_steps=1)])
        assert full_state(trainer) == full_state(uninterrupted), step


OPTIMIZERS = [
    SGD(0.1, momentum=0.9, weight_decay=0.01),
    Adagrad(Exponential(0.1, 0.95), lr_decay=0.01, initial_accumulator_value=0.1),
    RMSprop(Polynomial(0.01, 30), centered=True, momentum=0.5),
    Adam(Cosine(0.01, 40, warmup_steps=5), amsgrad=True),
    AdamW(OneCycle(0.02, 50)),
    Adam(Step(0.01, 7), betas=[0.8, 0.95]),
    AdamW(MultiStep(0.01, [3, 11]), eps=1e-3),
    Muon(Cosine(0.1, 40), momentum=0.9, adjust_lr_fn="original", exclude=["weight"]),
    Muon(OneCycle(0.1, 40), nesterov=False),
]


@pytest.mark.parametrize("kind", slow_after(1, ["native_trainer", "mixed_trainer"]))
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_resuming_each_optimizer_and_schedule_at_each_of_the_first_20_steps(path, optimizer, kind):
    """None of them is in `custom_objects`: they are built in."""

    def make_trainer():
        trainer = MAKERS[kind]()
        trainer.optimizer = optimizer
        return trainer

    uninterrupted, fit = make_trainer(), {**FIT, "epochs": 2}
    uninterrupted.fit(X, Y, **fit)
    for step in range(20):
        interrupt_fit(make_trainer(), step, **fit).save_checkpoint(path)
        trainer = Trainer.resume(path, custom_objects={"NoiseLayer": NoiseLayer}, num_threads=1 + step % 3)
        assert repr(trainer.optimizer) == repr(optimizer)
        assert trainer.steps().update.steps == step + 1
        trainer.fit(X, Y, **fit)
        assert full_state(trainer) == full_state(uninterrupted), step


def test_a_replaced_optimizer_is_resumed(path):
    def make_trainer(steps):
        trainer = native_trainer()
        for _ in range(steps):
            trainer.train_batch(X, Y)
        trainer.optimizer = Adam(0.01)
        return trainer

    uninterrupted, broken = make_trainer(7), make_trainer(7)
    for _ in range(3):
        uninterrupted.train_batch(X, Y)
        broken.train_batch(X, Y)
    broken.save_checkpoint(path)
    resumed = Trainer.resume(path)
    assert (resumed.step, resumed.steps().update.steps) == (10, 3)
    for trainer in (uninterrupted, resumed):
        trainer.train_batch(X, Y)
    assert full_state(resumed) == full_state(uninterrupted)


def test_steps_by_hand_of_every_optimizer_are_resumed(path):
    for optimizer in copy.deepcopy(OPTIMIZERS):
        trainer = native_trainer()
        trainer.optimizer = optimizer
        trainer.train_batch(X, Y)
        for _ in range(3):
            optimizer.step(trainer.model.params, 0.1)
        trainer.save_checkpoint(path)
        resumed = Trainer.resume(path)
        for each in (trainer, resumed):
            each.train_batch(X, Y)
            each.optimizer.step(each.model.params, 0.1)
        assert full_state(resumed) == full_state(trainer)


def test_resuming_repeatedly(path):
    uninterrupted = native_trainer()
    uninterrupted.fit(X, Y, **FIT)
    trainer = interrupt_fit(native_trainer(), 2)
    for step in (5, 6, 19, 33):
        trainer.save_checkpoint(path)
        trainer = interrupt_fit(Trainer.resume(path), step)
    trainer.save_checkpoint(path)
    trainer = Trainer.resume(path)
    trainer.save_checkpoint(path)  # as loaded: still within that fit
    trainer = Trainer.resume(path)
    trainer.fit(X, Y, **FIT)
    assert full_state(trainer) == full_state(uninterrupted)


def test_resuming_into_an_existing_model(path):
    uninterrupted = mixed_trainer()
    uninterrupted.fit(X, Y, **FIT)
    interrupt_fit(mixed_trainer(), 9).save_checkpoint(path)
    for shape in (None, (1, 6, 6)):
        model = Sequential([NoiseLayer(), Flatten(), Dense(3)], shape)
        trainer = Trainer.resume(path, model=model)
        assert trainer.model is model
        trainer.fit(X, Y, **FIT)
        assert full_state(trainer) == full_state(uninterrupted)


def test_after_a_completed_fit_another_one_starts(path):
    uninterrupted, trainer = native_trainer(), native_trainer()
    uninterrupted.fit(X, Y, **FIT)
    trainer.fit(X, Y, **FIT)
    trainer.save_checkpoint(path)
    trainer = Trainer.resume(path)
    assert trainer.interrupted is None
    for each in (uninterrupted, trainer):
        each.fit(X, Y, epochs=2, batch_size=9, verbose=0)
    assert full_state(trainer) == full_state(uninterrupted)


def test_saved_at_the_end_of_the_last_epoch_nothing_is_left_to_do(path):
    uninterrupted = native_trainer()
    uninterrupted.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])
    trainer = Trainer.resume(path)
    trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])
    assert full_state(trainer) == full_state(uninterrupted)
    trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])  # the second one trains on
    assert trainer.epoch == 8
    other = Trainer.resume(path)
    Trainer.resume(path).fit(X, Y, epochs=1, batch_size=8, verbose=0)  # nor does it block another one
    assert other.epoch == 8


@pytest.mark.parametrize("kind", MAKERS)
def test_saved_after_the_fit_nothing_is_left_to_do(path, kind):
    """As in a program that trains until it is done: fit, save, and at its next start resume and fit again."""
    uninterrupted = MAKERS[kind]()
    uninterrupted.fit(X, Y, **FIT, sample_weight=WEIGHTS, validation_data=(X[:9], Y[:9]))
    uninterrupted.save_checkpoint(path)
    for _ in range(2):
        trainer = Trainer.resume(path, custom_objects=CUSTOM)
        assert trainer.interrupted is None
        trainer.fit(X, Y, **FIT, sample_weight=WEIGHTS, validation_data=(X[:9], Y[:9]))
        assert full_state(trainer) == full_state(uninterrupted)
        trainer.save_checkpoint(path)
    uninterrupted.fit(X, Y, **FIT)  # in the same process it trains on
    assert uninterrupted.epoch == 8


OTHERS = [{"epochs": 5}, {"batch_size": 8}, {"sample_weight": WEIGHTS}, {"y": Y % 2}, {"X": X + 1}]


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_saved_after_the_fit_a_different_fit_trains_on(path, other):
    trainer = native_trainer()
    trainer.fit(X, Y, **FIT)
    trainer.save_checkpoint(path)
    resumed = Trainer.resume(path)
    resumed.fit(**{"X": X, "y": Y, **FIT, **other})
    assert resumed.epoch == 4 + other.get("epochs", 4)


def test_steps_by_hand_or_an_explicit_reset_discard_the_fit_record(path):
    for change in (lambda trainer: trainer.train_batch(X, Y), lambda trainer: setattr(trainer, "interrupted", None)):
        trainer = native_trainer()
        trainer.fit(X, Y, **FIT)
        change(trainer)
        trainer.save_checkpoint(path)
        resumed = Trainer.resume(path)
        resumed.fit(X, Y, **FIT)
        assert resumed.epoch == 8


def test_should_stop_is_resumed(path):
    class Stopper:
        def on_step_end(self, trainer, step, loss):
            trainer.should_stop = step >= 20

    uninterrupted = native_trainer()
    uninterrupted.fit(X, Y, **FIT, callbacks=[Stopper(), Checkpoint(path, every_n_steps=1)])
    trainer = Trainer.resume(path)
    trainer.fit(X, Y, **FIT, callbacks=[Stopper(), Checkpoint(path, every_n_steps=1)])
    assert full_state(trainer) == full_state(uninterrupted) and trainer.epoch == 2


def test_steps_by_hand_and_their_optimizer_are_resumed(path):
    trainer = native_trainer()
    for step in range(5):
        trainer.train_batch(X[step:], Y[step:])
    trainer.optimizer.step(trainer.model.params, 0.1)
    trainer.save_checkpoint(path)
    resumed = Trainer.resume(path)
    for each in (trainer, resumed):
        each.train_batch(X, Y)
        each.optimizer.step(each.model.params, 0.1)
    assert full_state(resumed) == full_state(trainer)


def test_the_same_state_gives_the_same_bytes(tmp_path):
    for name in "ab":
        trainer = native_trainer()
        for step in range(3):
            trainer.train_batch(X[step:], Y[step:])
        trainer.save_checkpoint(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# ---- which state can be saved, and from where
class HalvingCallback:
    """A callback that changes the rate at the beginning of an epoch; a repeated call would show."""

    def on_epoch_begin(self, trainer, epoch):
        trainer.optimizer.lr *= 0.5


class SavingCallback:
    """Saves by hand in one of the hooks."""

    def __init__(self, path, hook, at):
        self.path, self.at = path, at
        setattr(self, hook, self.save)

    def save(self, trainer, *args):
        if trainer.step == self.at:
            trainer.save_checkpoint(self.path)


@pytest.mark.parametrize(
    ("hook", "step"),
    [("on_fit_begin", 0), ("on_epoch_begin", 13), ("on_step_end", 17), ("on_epoch_end", 26), ("on_fit_end", 52)],
)
def test_saving_in_any_hook(path, hook, step):
    def make_trainer():
        trainer = native_trainer()
        trainer.optimizer.lr = 0.1
        return trainer

    uninterrupted = make_trainer()
    uninterrupted.fit(X, Y, **FIT, callbacks=[HalvingCallback(), StepCounter()])
    make_trainer().fit(X, Y, **FIT, callbacks=[HalvingCallback(), StepCounter(), SavingCallback(path, hook, step)])
    trainer = Trainer.resume(path)
    assert trainer.step == step
    trainer.fit(X, Y, **FIT, callbacks=[HalvingCallback(), StepCounter()])
    assert full_state(trainer) == full_state(uninterrupted)


class StatefulCallback:
    """Its state is an array in Fortran order, whose sum depends on that, a mask and a long list."""

    def __init__(self, lr):
        self.lr, self.m, self.mask, self.norms = lr, {}, np.array([True, False]), [0.5] * 200000

    def step(self, params, lr):
        for name, p in params.items():
            self.m[name] = np.float32(0.9) * self.m[name] + p.grad if name in self.m else p.grad.copy(order="K")
            norm = np.float32(np.sqrt((self.m[name] ** 2).sum()))
            self.norms.append(float(norm))
            p.value -= np.float32(lr) * self.m[name] / (1 + norm) * self.mask[0]


class Warm(SGD):
    """A built-in optimizer that also counts its steps."""

    t = 0

    def step(self, params, lr):
        self.t += 1
        super().step(params, min(lr, 0.01 * self.t))


class Plateau:
    """A rate that depends on earlier calls."""

    def __init__(self, rate):
        self.rate, self.asked = rate, 0

    def __call__(self, step):
        self.asked += 1
        return self.rate / (1 + self.asked // 7)


@pytest.mark.parametrize(
    "optimizer", [lambda: StatefulCallback(0.1), lambda: Warm(0.1), lambda: StatefulCallback(Plateau(0.1))]
)
def test_any_state_of_an_optimizer_and_its_schedule(path, optimizer):
    def make_trainer():
        model = Sequential([Conv2D(2, 3), Flatten(), Dense(50), ReLU(), Dense(3)], (1, 6, 6))
        return Trainer(model, "softmax_cross_entropy", optimizer())

    uninterrupted = make_trainer()
    uninterrupted.fit(X, Y, **FIT)
    interrupt_fit(make_trainer(), 11).save_checkpoint(path)
    trainer = Trainer.resume(path, custom_objects={c.__name__: c for c in (StatefulCallback, Warm, Plateau)})
    trainer.fit(X, Y, **FIT)
    assert full_state(trainer) == full_state(uninterrupted)


def test_a_changed_seed_is_the_one_that_is_resumed(path):
    uninterrupted = interrupt_fit(native_trainer(), 5)
    uninterrupted.seed = np.int64(77)
    uninterrupted.save_checkpoint(path)
    trainer = Trainer.resume(path)
    for each in (uninterrupted, trainer):
        each.fit(X, Y, **FIT)
    assert full_state(trainer) == full_state(uninterrupted)


# ---- refused
def test_all_classes_missing_in_custom_objects_are_named_at_once(path):
    interrupt_fit(python_trainer(), 3).save_checkpoint(path)
    with pytest.raises(
        ValueError, match=r"custom_objects: .*'NoiseLayer'.*'PythonAdam'.*'Schedule'.*'largest'.*'squares'"
    ):
        Trainer.resume(path)
    with pytest.raises(ValueError, match=r"custom_objects={'squares': squares}"):
        Trainer.resume(path, custom_objects={name: part for name, part in CUSTOM.items() if name != "squares"})


def test_a_model_with_other_layers_is_refused_and_unchanged(path):
    interrupt_fit(mixed_trainer(), 9).save_checkpoint(path)
    model = Sequential([Flatten(), Dense(3)], (1, 6, 6))
    before = model.state_dict()
    with pytest.raises(ValueError, match="model: expected"):
        Trainer.resume(path, model=model)
    assert all(np.array_equal(value, before[name]) for name, value in model.state_dict().items())


class Unsavable(PythonAdam):
    """Has state that no file can hold."""

    def __init__(self, lr):
        super().__init__(lr)
        self.log = open


class Momentum:
    """Its state holds views of the parameters, or one object twice, or is in __slots__."""

    def __init__(self, lr, kind):
        self.lr, self.kind = lr, kind

    def step(self, params, lr):
        grads = [p.grad for p in params.values()]
        self.kept = {"views": grads, "value": {"a": (1, grads[0][:1])}, "twice": [[0.0]] * 2}[self.kind]


class Slots:
    __slots__ = ("lr", "velocity")

    def __init__(self, lr):
        self.lr, self.velocity = lr, 3

    def step(self, params, lr):
        pass


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (Momentum(0.1, "views"), r"Momentum\['kept'\]\[0\]: cannot be saved: it is part of the model's parameters"),
        (Momentum(0.1, "value"), r"Momentum\['kept'\]\['a'\]\[1\]: cannot be saved: it is part of"),
        (Momentum(0.1, "twice"), r"Momentum\['kept'\]\[1\]: cannot be saved: it is also Momentum\['kept'\]\[0\]"),
        (Slots(0.1), "Slots: cannot be saved: its class has __slots__; give its class a state_dict"),
    ],
    ids=["views", "value", "twice", "slots"],
)
def test_state_that_would_be_restored_differently_is_refused(path, optimizer, message):
    trainer = python_trainer()
    trainer.optimizer = optimizer
    trainer.train_batch(X, Y)
    with pytest.raises(TypeError, match=message):
        trainer.save_checkpoint(path)


@pytest.mark.parametrize(
    "change",
    [{"in_epoch": False}, {"epochs_done": 5}, {"in_epoch": "x"}, {"should_stop": 1}, {"losses": None}],
    ids=str,
)
def test_an_inconsistent_position_is_refused(path, change):
    interrupt_fit(native_trainer(), 16).save_checkpoint(path)
    config, tensors, _ = safetensors_file.read(path, "checkpoint")
    pairs = config["fit"]["dict"]
    config["fit"]["dict"] = [[name, change.get(name, value)] for name, value in pairs]
    safetensors_file.write(path, "checkpoint", config, tensors)
    with pytest.raises(FileError):
        Trainer.resume(path)


def test_an_unbuilt_model_stays_unbuilt_if_resuming_is_refused(path):
    interrupt_fit(python_trainer(), 3).save_checkpoint(path)
    model = Sequential([Conv2D(2, 3), NoiseLayer(), Flatten(), Dense(3)])
    with pytest.raises(FileError):
        Trainer.resume(path, model=model, custom_objects=CUSTOM | {"PythonAdam": mixed_trainer})
    assert model.network is None


class Forgetful(PythonAdam):
    """Does not store its constructor argument."""

    def __init__(self, rate):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: setattr(t, "optimizer", Unsavable(0.1)), "optimizer.*'log'.*cannot be saved"),
        (lambda t: setattr(t, "optimizer", Forgetful(1)), "'rate'"),
    ],
    ids=["state", "argument"],
)
def test_what_cannot_be_saved_is_reported_before_the_first_step(path, change, message):
    trainer = python_trainer()
    change(trainer)
    if not hasattr(trainer.optimizer, "lr"):
        trainer.optimizer.lr = 0.1
    with pytest.raises(TypeError, match=message):
        trainer.save_checkpoint(path)
    with pytest.raises(TypeError, match=message):
        trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])
    assert trainer.step == 0 and not path.exists()


def test_an_unbuilt_model_has_nothing_to_save(path):
    trainer = Trainer(Sequential([Flatten(), Dense(3)]), "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(ValueError, match="not built"):
        trainer.save_checkpoint(path)
