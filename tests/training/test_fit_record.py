"""Interrupted fits: which call completes one, which is refused, which starts another."""

import numpy as np
import pytest
from interrupted_fits import FIT, WEIGHTS, InterruptAfter, StepCounter, X, Y, full_state, interrupt_fit, native_trainer

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import Dense, Flatten
from minidl.optimizers import SGD


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


# ---- refused
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": X[:80], "y": Y[:80]}, "X: expected the same"),
        ({"X": X + np.float32(1e-3)}, "X: expected the same data, as in the fit that was interrupted, got other data"),
        ({"y": Y[::-1]}, "y: expected the same"),
        ({"sample_weight": WEIGHTS}, "sample_weight: expected none, .* got other data"),
        ({"class_weight": {0: 2.0}}, "class_weight: expected None"),
        ({"batch_size": 8}, "batch_size: expected 7, .* got 8"),
        ({"epochs": 5}, "epochs: expected 4"),
        ({"shuffle": False}, "shuffle: expected True"),
        ({"validation_split": 0.1}, r"validation_split: expected 0\.0"),
        ({"validation_data": (X, Y)}, "validation_data: expected none, .* got other data"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_a_different_fit_is_refused_and_changes_nothing(path, changed, message):
    interrupt_fit(native_trainer(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    before = full_state(trainer)
    with pytest.raises(ValueError, match=message):
        trainer.fit(**{"X": X, "y": Y, **FIT, **changed})
    assert full_state(trainer) == before
    uninterrupted = native_trainer()
    uninterrupted.fit(X, Y, **FIT)
    trainer.fit(X, Y, **FIT)  # still possible
    assert full_state(trainer) == full_state(uninterrupted)


def test_callbacks_with_state_are_required_and_new_ones_allowed(path):
    uninterrupted = native_trainer()
    uninterrupted.fit(X, Y, **FIT, callbacks=[StepCounter()])
    interrupt_fit(native_trainer(), 16, callbacks=[StepCounter()]).save_checkpoint(path)
    trainer = Trainer.resume(path)
    with pytest.raises(ValueError, match="callbacks: expected StepCounter as well"):
        trainer.fit(X, Y, **FIT)
    trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(path), StepCounter()])
    assert full_state(trainer) == full_state(uninterrupted)


def test_a_fit_that_never_started_keeps_the_position(path, tmp_path):
    uninterrupted = native_trainer()
    uninterrupted.fit(X, Y, **FIT)
    interrupt_fit(native_trainer(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    with pytest.raises(OSError, match="expected an existing folder"):
        trainer.fit(X, Y, **FIT, callbacks=[Checkpoint(tmp_path / "missing" / "a")])
    assert trainer.interrupted is not None
    trainer.fit(X, Y, **FIT)
    assert full_state(trainer) == full_state(uninterrupted)


def test_in_one_process_the_same_call_completes_and_a_different_one_starts_over(path):
    uninterrupted = native_trainer()
    uninterrupted.fit(X, Y, **FIT)
    trainer, other = interrupt_fit(native_trainer(), 16), interrupt_fit(native_trainer(), 16)
    assert trainer.interrupted.step == 17
    trainer.fit(X, Y, **FIT)
    assert full_state(trainer) == full_state(uninterrupted) and trainer.interrupted is None
    other.fit(X, Y, epochs=1, batch_size=9, verbose=0)
    assert other.step == 17 + 10
    with pytest.raises(TypeError, match="interrupted: expected None"):
        other.interrupted = 3


def test_an_interrupted_fit_can_be_abandoned(path):
    interrupt_fit(native_trainer(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    trainer.interrupted = None
    trainer.fit(X, Y, epochs=1, batch_size=8, verbose=0)
    assert trainer.epoch == 2


def test_a_step_by_hand_ends_an_interrupted_fit(path):
    interrupt_fit(native_trainer(), 16).save_checkpoint(path)
    trainer = Trainer.resume(path)
    trainer.train_batch(X, Y)
    trainer.fit(X, Y, epochs=1, batch_size=8, verbose=0)
    assert trainer.step == 17 + 1 + 12


def test_layout_and_byte_order_do_not_matter(path):
    interrupt_fit(native_trainer(), 16).save_checkpoint(path)
    for same in (np.asfortranarray(X), X.astype(">f4"), np.repeat(X, 2, axis=0)[::2], X.tolist()):
        trainer = Trainer.resume(path)
        if isinstance(same, list):  # of float64
            with pytest.raises(ValueError, match="X: expected the same"):
                trainer.fit(same, Y, **FIT)
        else:
            trainer.fit(same, Y, **FIT)


class Keyed(StepCounter):
    """Identified by a key from the user; its repr changes with every step, like that of a dataclass."""

    rank_zero_only = True

    def __init__(self, state_key):
        super().__init__()
        self.state_key = state_key

    def __repr__(self):
        return f"Keyed({self.steps})"


def test_callbacks_are_matched_by_class_or_key_in_any_order(path):
    first = [StepCounter(), Keyed("a"), Keyed("b")]
    interrupt_fit(native_trainer(), 16, callbacks=first).save_checkpoint(path)
    first[1].steps = 100  # after the file was written
    trainer, again = Trainer.resume(path), [Keyed("b"), Keyed("c"), StepCounter()]
    trainer.fit(X, Y, **FIT, callbacks=again)
    assert [callback.steps for callback in again] == [52, 52 - 17, 52]


def test_a_checkpoint_callback_may_change_its_path_or_be_omitted(path, tmp_path):
    uninterrupted = native_trainer()
    uninterrupted.fit(X, Y, **FIT)
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    interrupt_fit(native_trainer(), 16, callbacks=[Checkpoint(old / "{step}", every_n_steps=1, max_to_keep=3)])
    old.rename(new)
    for callbacks in ([], [Checkpoint(path)], [Checkpoint(new / "{step}", every_n_steps=1, max_to_keep=3)]):
        trainer = Trainer.resume(new / "17")
        trainer.fit(X, Y, **FIT, callbacks=callbacks)
        assert full_state(trainer) == full_state(uninterrupted)
    assert sorted(file.name for file in new.iterdir()) == ["50", "51", "52"]


def test_the_effect_of_a_fit_on_the_previous_one_is_reported(path, capsys):
    loud = FIT | {"verbose": 1}
    trainer = interrupt_fit(native_trainer(), 16)
    trainer.fit(X, Y, **loud)
    assert capsys.readouterr().out.startswith("completes the fit that was interrupted at step 17\nepoch 2/4")
    other = interrupt_fit(native_trainer(), 16)
    assert repr(other.interrupted) == "<fit at step 17, 1 of 4 epochs done>"
    other.fit(X, Y, epochs=1, batch_size=9, verbose=1)
    assert capsys.readouterr().out.startswith("discards the fit that was interrupted at step 17: epochs: expected 4,")
    finished = native_trainer()
    finished.fit(X, Y, **FIT, callbacks=[Checkpoint(path)])
    Trainer.resume(path).fit(X, Y, **loud)
    assert capsys.readouterr().out == "nothing to do: the saved fit is complete\n"
    Trainer.resume(path).fit(X, Y, **loud | {"epochs": 2})
    assert capsys.readouterr().out.startswith("the saved fit is complete: trains 2 more epochs\nepoch 1/2")


# ---- Python optimizers
class DecayingOptimizer:
    """Its rate depends on the number of its steps."""

    def __init__(self, lr):
        self.lr = lr

    def step(self, params, lr):
        for param in params.values():
            param.value -= lr * param.grad
        self.lr *= 0.97


class StepHook:
    """A no-op hook that makes Python see each step."""

    def on_step_end(self, trainer, step, loss):
        pass


def decaying():
    trainer = native_trainer()
    return Trainer(trainer.model, "softmax_cross_entropy", DecayingOptimizer(0.3), seed=5)


def test_a_rate_changed_by_a_step_applies_to_the_next(path):
    trainers = [decaying() for _ in range(3)]
    for trainer, callbacks in zip(trainers, ([], [StepHook()], [Checkpoint(path, every_n_steps=7)]), strict=True):
        trainer.fit(X, Y, **FIT, callbacks=callbacks)
        assert full_state(trainer) == full_state(trainers[0])
    interrupt_fit(decaying(), 16).save_checkpoint(path)
    resumed = Trainer.resume(path, custom_objects={"DecayingOptimizer": DecayingOptimizer})
    resumed.fit(X, Y, **FIT)
    assert full_state(resumed) == full_state(trainers[0])
    by_hand = decaying()
    for _ in range(3):
        before = by_hand.model.params["6.bias"].value.copy()
        rate = by_hand.optimizer.lr
        by_hand.train_batch(X, Y)
        change = by_hand.model.params["6.bias"].value - before
        np.testing.assert_allclose(change, -rate * by_hand.model.params["6.bias"].grad, rtol=1e-4)


def test_saving_within_a_step_is_refused(path):
    trainer = decaying()
    step = trainer.optimizer.step

    def saves(params, lr):
        step(params, lr)
        trainer.save_checkpoint(path)

    trainer.optimizer.step = saves
    for train in (lambda: trainer.fit(X, Y, **FIT), lambda: trainer.train_batch(X, Y)):
        with pytest.raises(RuntimeError, match="save_checkpoint: a step is being done"):
            train()
    assert not path.exists()
    del trainer.optimizer.step
    trainer.save_checkpoint(path)


# ---- changes by the caller
def test_data_modified_after_an_interrupt_is_different_data():
    for look in (False, True):
        data = X.copy()
        trainer = native_trainer()
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(data, Y, **FIT, callbacks=[InterruptAfter(16)])
        assert not look or trainer.interrupted is not None
        data *= 2
        trainer.fit(data, Y, **FIT)
        assert trainer.epoch == 1 + 4


def test_a_fit_whose_last_hook_fails_is_complete():
    trainer = native_trainer()

    class FailingCallback:
        def on_fit_end(self, trainer):
            raise KeyError("x")

    with pytest.raises(KeyError):
        trainer.fit(X, Y, **FIT, callbacks=[FailingCallback()])
    assert trainer.interrupted is None
    trainer.fit(X, Y, **FIT)
    assert trainer.epoch == 8


def rate_below_zero(step):
    return -1.0


@pytest.mark.parametrize("change", ["callback", "rate", "optimizer"])
def test_a_refused_first_fit_leaves_the_model_unbuilt(change, tmp_path):
    model = Sequential([Flatten(), Dense(3)])
    optimizer = SGD(rate_below_zero) if change == "rate" else SGD(0.1)
    if change == "optimizer":
        optimizer = DecayingOptimizer(0.1)
        del optimizer.lr
    callbacks = [Checkpoint(tmp_path / "missing" / "x")] if change == "callback" else []
    trainer = Trainer(model, "softmax_cross_entropy", optimizer)
    with pytest.raises((TypeError, ValueError, OSError)):
        trainer.fit(X, Y, **FIT, callbacks=callbacks)
    trainer.optimizer = SGD(0.1)
    trainer.fit(X[:, :, :5], Y, **FIT)
    assert model.input_shape == (1, 5, 6) and trainer.epoch == 4


def test_a_hook_that_fails_after_the_last_step_leaves_the_trained_model():
    class FailingCallback:
        def on_fit_end(self, trainer):
            raise ValueError("the disk is full")

    model = Sequential([Dense(3)])  # not built before
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(ValueError, match="the disk is full"):
        trainer.fit(np.ones((8, 4), "f4"), np.zeros(8, int), epochs=2, callbacks=[FailingCallback()], verbose=0)
    assert trainer.step == 2 and trainer.interrupted is None
    assert model.predict(np.ones((1, 4))).argmax() == 0
