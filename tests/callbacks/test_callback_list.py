"""Callbacks: which hooks are called, when, and what they may do."""

import re

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.callbacks.callback_list import CallbackList
from minidl.layers import Dense
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD

X = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
Y = np.arange(20) % 2


class Recorder:
    """Records every hook that is called."""

    def __init__(self):
        self.calls = []

    def on_fit_begin(self, trainer):
        self.calls.append("fit begins")

    def on_epoch_begin(self, trainer, epoch):
        assert trainer.epoch == epoch
        self.calls.append(f"epoch {epoch} begins")

    def on_step_end(self, trainer, step, loss):
        assert trainer.step == step + 1
        self.calls.append(f"step {step}")

    def on_epoch_end(self, trainer, epoch, logs):
        assert trainer.epoch == epoch + 1
        assert {name: values[-1] for name, values in trainer.history.items()} == logs
        self.calls.append(f"epoch {epoch} ends")

    def on_fit_end(self, trainer):
        self.calls.append("fit ends")


def make_trainer(seed=0):
    model = Sequential([Dense(2)], input_shape=(3,))
    return Trainer(model, "softmax_cross_entropy", SGD(0.5), ["accuracy"], seed=seed)


def callback_with(name, function):
    """Returns a callback with this one hook."""
    return type("Hook", (), {name: lambda self, *args: function(*args)})()


def test_hooks_are_called_in_order_over_the_trainers_life():
    recorder, trainer = Recorder(), make_trainer()
    trainer.fit(X, Y, epochs=1, batch_size=8, callbacks=[recorder], verbose=0)
    trainer.fit(X, Y, epochs=2, batch_size=16, callbacks=[recorder], verbose=0)
    assert recorder.calls == [
        *("fit begins", "epoch 0 begins", "step 0", "step 1", "step 2", "epoch 0 ends", "fit ends"),
        *("fit begins", "epoch 1 begins", "step 3", "step 4", "epoch 1 ends"),
        *("epoch 2 begins", "step 5", "step 6", "epoch 2 ends", "fit ends"),
    ]


def test_every_step_is_reported_with_its_loss_before_the_update():
    seen, trainer = [], make_trainer()

    def look(trainer, step, loss):
        seen.append((loss, trainer.model.state_dict()["0.weight"].tobytes()))

    trainer.fit(X, Y, batch_size=8, shuffle=False, verbose=0, callbacks=[callback_with("on_step_end", look)])
    by_hand = make_trainer()
    for start, (loss, weights) in zip((0, 8, 16), seen, strict=True):
        rows = slice(start, start + 8)
        expected = softmax_cross_entropy(by_hand.model.predict(X[rows]), Y[rows])[0].mean()
        assert loss == pytest.approx(expected, rel=1e-6)
        assert by_hand.train_batch(X[rows], Y[rows]) == loss
        assert by_hand.model.state_dict()["0.weight"].tobytes() == weights


def test_callbacks_are_called_in_list_order():
    calls = []
    several = [callback_with("on_fit_end", lambda trainer, i=i: calls.append(i)) for i in range(3)]
    make_trainer().fit(X, Y, callbacks=iter(several), verbose=0)
    assert calls == [0, 1, 2]


def test_a_rank_without_watchers_knows_the_paths_of_checkpoints(tmp_path):
    """An error on any rank names them."""
    callbacks = CallbackList([Checkpoint(tmp_path / "c"), recorder := Recorder()], watchers=False)
    assert list(callbacks) == [recorder] and callbacks.checkpoints == [str(tmp_path / "c")]


def test_stopping_within_an_epoch():
    def stop(trainer, step, loss):
        trainer.should_stop = step == 3

    trainer, recorder = make_trainer(), Recorder()
    history = trainer.fit(
        X, Y, epochs=9, batch_size=8, verbose=0, callbacks=[callback_with("on_step_end", stop), recorder]
    )
    assert trainer.step == 4
    assert history["epoch"][0] == 0 and len(history["epoch"]) <= 2
    assert recorder.calls[-1] == "fit ends"


def test_stopping_after_an_epoch_and_fitting_again():
    trainer = make_trainer()
    stop = callback_with("on_epoch_end", lambda trainer, epoch, logs: setattr(trainer, "should_stop", epoch == 1))
    assert trainer.fit(X, Y, epochs=9, callbacks=[stop], verbose=0)["epoch"] == [0, 1]
    assert trainer.fit(X, Y, epochs=2, verbose=0)["epoch"] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["on_fit_begin", "on_epoch_begin"])
def test_stopping_before_the_first_step_leaves_no_epoch(name):
    trainer = make_trainer()
    before = trainer.model.state_dict()["0.weight"]
    stop = callback_with(name, lambda trainer, *epoch: setattr(trainer, "should_stop", True))
    history = trainer.fit(X, Y, epochs=3, callbacks=[stop], verbose=0)
    assert trainer.step == 0
    assert not any(np.isnan(history.get("loss", [])))
    np.testing.assert_array_equal(trainer.model.state_dict()["0.weight"], before)


def test_hooks_may_read_everything():
    def look(trainer, epoch, logs):
        result = trainer.evaluate(X, Y)
        assert result["loss"] == logs["val_loss"] and result["accuracy"] == logs["val_accuracy"]
        trainer.model.predict(X)

    callbacks = [callback_with("on_epoch_end", look)]
    make_trainer().fit(X, Y, epochs=2, validation_data=(X, Y), callbacks=callbacks, verbose=0)


@pytest.mark.parametrize("again", ["fit", "train_batch"])
def test_training_inside_a_hook_is_refused(again):
    trainer = make_trainer()
    callback = callback_with("on_epoch_begin", lambda trainer, epoch: getattr(trainer, again)(X, Y))
    with pytest.raises(RuntimeError, match="training already"):
        trainer.fit(X, Y, callbacks=[callback], verbose=0)
    trainer.fit(X, Y, verbose=0)  # and it is free again


def test_a_step_hook_changes_no_bit():
    """Without one, steps run in chunks without Python in between."""
    states = []
    for callbacks in ([], [callback_with("on_step_end", lambda *args: None)]):
        trainer = make_trainer()
        history = trainer.fit(X, Y, epochs=30, batch_size=3, callbacks=callbacks, verbose=0)
        losses = np.array(history["loss"]).tobytes()
        states.append((losses, trainer.model.state_dict()["0.weight"].tobytes()))
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (object(), "with none of them"),
        (Recorder, "pass an object"),
        (callback_with("on_epoch_ends", print), "on_epoch_ends"),
        (print, "with none of them"),
        (None, "with none of them"),
    ],
)
def test_non_callbacks_are_refused(callback, message):
    trainer = make_trainer()
    expected = re.escape("callbacks: expected objects with hooks from on_fit_begin, ")
    with pytest.raises(TypeError, match=f"{expected}.*{message}"):
        trainer.fit(X, Y, callbacks=[Recorder(), callback], verbose=0)
    assert trainer.step == 0


class KerasHook:
    def on_epoch_end(self, epoch, logs=None):
        raise AssertionError


class NoTrainer:
    def on_fit_begin(self):
        raise AssertionError


class KeywordOnly:
    def on_save(self, trainer, *, path):
        raise AssertionError


class OneTooMany:
    def on_step_end(self, trainer, step, loss, more):
        raise AssertionError


@pytest.mark.parametrize(
    ("kind", "expected", "got"),
    [
        (KerasHook, "on_epoch_end(trainer, epoch, logs)", "on_epoch_end(epoch, logs=None)"),
        (NoTrainer, "on_fit_begin(trainer)", "on_fit_begin()"),
        (KeywordOnly, "on_save(trainer)", "on_save(trainer, *, path)"),
        (OneTooMany, "on_step_end(trainer, step, loss)", "on_step_end(trainer, step, loss, more)"),
    ],
)
def test_a_hook_with_wrong_arguments_is_refused_before_a_step(kind, expected, got):
    trainer = make_trainer()
    with pytest.raises(TypeError, match=re.escape(f"callbacks: expected {expected} of {kind.__name__}, got {got}")):
        trainer.fit(X, Y, callbacks=[kind()], verbose=0)
    assert trainer.step == 0


def test_a_hook_may_have_extra_defaults_and_be_a_c_function():
    seen = []
    callback = callback_with("on_fit_begin", seen.append)
    callback.on_epoch_end = lambda trainer, epoch, logs, more=1: seen.append(epoch)
    callback.on_fit_end = [].append
    make_trainer().fit(X, Y, epochs=1, callbacks=[callback], verbose=0)
    assert seen[1:] == [0]


def test_a_hook_that_is_none_is_ignored():
    recorder = Recorder()
    recorder.on_step_end = None
    make_trainer().fit(X, Y, epochs=1, callbacks=[recorder], verbose=0)
