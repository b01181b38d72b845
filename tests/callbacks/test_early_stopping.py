"""EarlyStopping: when it stops, and which weights it leaves."""

import numpy as np
import pytest
from interrupted_fits import (
    FIT,
    StepCounter,
    X,
    Y,
    batchnorm_trainer,
    comparable,
    full_state,
    interrupt_and_complete,
    interrupt_fit,
)

from minidl import Trainer
from minidl.callbacks import Checkpoint, EarlyStopping

NAN = float("nan")
LONG = {"epochs": 12, "validation_split": 0.3}  # 9 steps per epoch


def weights(trainer):
    return comparable(trainer.model.state_dict())


class WeightRecorder:
    """Records the weights after each epoch."""

    def __init__(self):
        self.after_epochs = []

    def on_epoch_end(self, trainer, epoch, logs):
        self.after_epochs.append(weights(trainer))


class Reloader:
    """Restores a callback's state after each epoch, as a resumed fit does."""

    def __init__(self, callback, arguments):
        self.callback, self.arguments = callback, arguments

    def on_epoch_end(self, trainer, epoch, logs):
        state = self.callback.state_dict()
        vars(self.callback).update(vars(EarlyStopping(**self.arguments)))
        self.callback.on_fit_begin(trainer)
        self.callback.load_state_dict(state)


def fitted(monkeypatch, values, resumed=False, **arguments):
    """Fits with these validation values; returns trainer, callback and the weights after each epoch."""
    left, early, seen, trainer = iter(values), EarlyStopping(**arguments), WeightRecorder(), batchnorm_trainer()
    monkeypatch.setattr(Trainer, "evaluate_rows", lambda *args, **options: {"loss": next(left)})
    callbacks = [seen, early, *([Reloader(early, arguments)] if resumed else [])]
    trainer.fit(X, Y, len(values), batch_size=45, validation_data=(X, Y), callbacks=callbacks, verbose=0)
    return trainer, early, seen.after_epochs


@pytest.mark.parametrize(
    ("values", "arguments", "epochs", "best"),
    [
        ([3, 2, 1, 2, 0], {}, 4, 2),
        ([3, 2, 1, 2, 0], {"patience": 1}, 4, 2),
        ([3, 2, 1, 2, 0], {"patience": 2}, 5, 4),
        ([3, 2, 1, 2, 2, 0], {"patience": 2}, 5, 2),
        ([3, 2, 2, 2, 0], {"patience": 2}, 4, 1),  # an equal value is no improvement, and the first one is kept
        ([3, 2, 1, 2, 2], {"patience": 9}, 5, 2),  # to the last epoch
        ([1, 2, 3, 4, 5], {"lower_is_better": False}, 5, 4),
        ([5, 4, 3], {"lower_is_better": False}, 2, 0),
        ([3, NAN, 2, NAN, NAN, 1], {"patience": 2}, 5, 2),
        ([NAN, 2, 1], {"patience": 2}, 3, 2),
        ([float("inf"), 2, 1], {}, 3, 2),
        ([9, 8.5, 8.1, 7.9, 7.6], {"patience": 3, "min_delta": 1}, 5, 4),  # slowly, but 7.9 is better than 9 by 1
        ([9, 8.5, 8.1, 8.0, 7.0], {"patience": 3, "min_delta": 1}, 4, 3),  # too slowly, and yet the best weights
        ([9, 8, 7], {"min_delta": 1}, 2, 1),  # by more than min_delta, and by exactly min_delta
        ([1, 1.5, 2.1, 3], {"patience": 2, "min_delta": 1, "lower_is_better": False}, 4, 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("resumed", [False, True])
def test_when_it_stops_and_which_weights_it_leaves(monkeypatch, resumed, values, arguments, epochs, best):
    trainer, early, after_epochs = fitted(monkeypatch, values, resumed, **arguments)
    assert len(trainer.history["loss"]) == epochs
    assert early.best_epoch == best
    assert early.best == (None if best is None else values[best])
    assert early.stopped_epoch == epochs - 1 or epochs == len(values)
    assert weights(trainer) == after_epochs[-1 if best is None else best]
    assert "1.running_mean" in trainer.model.state_dict()  # buffers too


def test_values_that_are_always_nan_are_named(monkeypatch):
    with pytest.warns(UserWarning, match=r"^val_loss: expected numbers, got NaN in each of the 2 epochs of this fit"):
        trainer, early, after_epochs = fitted(monkeypatch, [NAN, NAN, 2], patience=2)
    assert len(trainer.history["loss"]) == 2 and early.best_epoch is None
    assert weights(trainer) == after_epochs[-1]


def test_a_fit_that_it_does_not_stop(monkeypatch):
    _, early, _ = fitted(monkeypatch, [3, 1, 2], patience=5)
    assert early.stopped_epoch is None


def test_a_fit_stopped_by_others_ends_with_the_best_weights():
    class Stopper:
        def on_step_end(self, trainer, step, loss):
            trainer.should_stop = step == 40  # within an epoch

    trainer, early, seen = batchnorm_trainer(), EarlyStopping(patience=99), WeightRecorder()
    trainer.fit(X, Y, **FIT | LONG, callbacks=[seen, early, Stopper()])
    assert trainer.step == 41
    assert early.best_epoch == int(np.argmin(trainer.history["val_loss"])) < trainer.epoch - 1
    assert weights(trainer) == seen.after_epochs[early.best_epoch]


def test_an_exception_leaves_the_latest_weights():
    uninterrupted, early = batchnorm_trainer(), EarlyStopping(patience=99)
    interrupt_fit(uninterrupted, 80, **LONG, callbacks=[early])
    plain = interrupt_fit(batchnorm_trainer(), 80, **LONG)
    assert early.best_epoch < 8
    assert full_state(uninterrupted) == full_state(plain)


def test_the_last_callback_in_the_list_wins():
    class ZeroWeights:
        def on_fit_end(self, trainer):
            trainer.model.params["0.weight"].value[:] = 0

    for callbacks, expected in (([EarlyStopping(), ZeroWeights()], False), ([ZeroWeights(), EarlyStopping()], True)):
        trainer = batchnorm_trainer()
        trainer.fit(X, Y, **FIT | LONG, callbacks=callbacks)
        assert trainer.model.params["0.weight"].value.any() == expected


# ---- several fits
def test_a_second_fit_starts_from_scratch():
    trainer, early = batchnorm_trainer(), EarlyStopping("loss", patience=99)
    trainer.fit(X, Y, **FIT, callbacks=[early])
    first = early.best
    trainer.optimizer.lr = 0.0
    trainer.model.params["4.weight"].value[:] = 100
    trainer.model.params["4.bias"].value[:] = [0, 0, 1e5]
    trainer.fit(X, Y, **FIT, callbacks=[early])
    assert early.best > first and early.best_epoch >= 4
    assert (trainer.model.params["4.weight"].value == 100).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_resuming_at_any_step_has_the_same_result(tmp_path, dtype):
    def make():
        return batchnorm_trainer(dtype)

    uninterrupted, early = make(), EarlyStopping(patience=5)
    uninterrupted.fit(X, Y, **FIT | LONG, callbacks=[early])
    assert early.stopped_epoch is not None and 0 < early.best_epoch < early.stopped_epoch
    for step in [0, 7, 8, 9, *range(10, uninterrupted.step, 4), uninterrupted.step - 2]:
        trainer, (again,) = interrupt_and_complete(
            make, step, lambda: [EarlyStopping(patience=5)], tmp_path / "c", **LONG
        )
        assert full_state(trainer) == full_state(uninterrupted), step
        assert comparable(again.state_dict()) == comparable(early.state_dict()), step


@pytest.mark.parametrize("every", [None, 1])
def test_a_file_from_the_end_of_the_fit_holds_the_best_weights(tmp_path, every):
    path = tmp_path / "c"
    trainer, early = batchnorm_trainer(), EarlyStopping(patience=2)
    trainer.fit(X, Y, **FIT | LONG, callbacks=[Checkpoint(path, every_n_steps=every), early])
    assert early.best_epoch < early.stopped_epoch
    assert weights(Trainer.resume(path)) == weights(trainer)
    resumed, again = Trainer.resume(path), EarlyStopping(patience=2)
    resumed.fit(X, Y, **FIT | LONG, callbacks=[again])  # nothing is left to do
    assert full_state(resumed) == full_state(trainer) and again.best == early.best
    for each in (trainer, resumed):
        each.fit(X, Y, **FIT | {"epochs": 1})
    assert full_state(resumed) == full_state(trainer)


def test_a_file_from_after_the_last_epoch_is_completed_with_the_best_weights(tmp_path):
    class Saver:
        def on_save(self, trainer):
            if trainer.epoch == 4 and trainer.step == 36:
                trainer.save_checkpoint(tmp_path / str(len(list(tmp_path.iterdir()))))

    fit, trainer = {**LONG, "epochs": 4}, batchnorm_trainer()
    trainer.fit(X, Y, **FIT | fit, callbacks=[EarlyStopping(patience=9), Saver()])
    assert len(list(tmp_path.iterdir())) == 2  # after the epoch, and at the end
    assert weights(Trainer.resume(tmp_path / "0")) != weights(Trainer.resume(tmp_path / "1"))
    for file in tmp_path.iterdir():
        resumed = Trainer.resume(file)
        resumed.fit(X, Y, **FIT | fit, callbacks=[EarlyStopping(patience=9)])
        assert full_state(resumed) == full_state(trainer)


def test_a_fit_that_fails_to_start_in_between_has_no_effect(tmp_path):
    uninterrupted, early = batchnorm_trainer(), EarlyStopping(patience=5)
    uninterrupted.fit(X, Y, **FIT | LONG, callbacks=[early])
    trainer, same = batchnorm_trainer(), EarlyStopping(patience=5)
    interrupt_fit(trainer, uninterrupted.step - 3, **LONG, callbacks=[same])
    assert same.best_epoch == early.best_epoch
    before = comparable(same.state_dict())
    for epochs in (12, 3):
        with pytest.raises(OSError, match="expected an existing folder"):
            missing = Checkpoint(tmp_path / "missing" / "a")
            trainer.fit(X, Y, **FIT | LONG | {"epochs": epochs}, callbacks=[same, missing])
        assert comparable(same.state_dict()) == before
    trainer.fit(X, Y, **FIT | LONG, callbacks=[same])
    assert full_state(trainer) == full_state(uninterrupted)
    assert comparable(same.state_dict()) == comparable(early.state_dict())


def test_several_are_distinguished_by_their_monitor(tmp_path):
    def callbacks():
        return [EarlyStopping(patience=5), EarlyStopping("accuracy", patience=99)]

    path, uninterrupted = tmp_path / "c", batchnorm_trainer()
    loss, accuracy = callbacks()
    uninterrupted.fit(X, Y, **FIT | LONG, callbacks=[loss, accuracy])
    interrupt_fit(batchnorm_trainer(), 40, **LONG, callbacks=[*callbacks(), Checkpoint(path, every_n_steps=1)])
    trainer, again = Trainer.resume(path), callbacks()[::-1]
    trainer.fit(X, Y, **FIT | LONG, callbacks=again)
    assert [comparable(a.state_dict()) for a in again] == [comparable(a.state_dict()) for a in (accuracy, loss)]


def test_resuming_without_it_is_refused(tmp_path):
    path = tmp_path / "c"
    interrupt_fit(batchnorm_trainer(), 2, **LONG, callbacks=[EarlyStopping(), Checkpoint(path, every_n_steps=1)])
    for callbacks in ([], [EarlyStopping("loss")]):
        with pytest.raises(ValueError, match="callbacks: expected EarlyStopping 'val_loss' as well"):
            Trainer.resume(path).fit(X, Y, **FIT | LONG, callbacks=callbacks)


def test_custom_callbacks_next_to_it_change_nothing(tmp_path):
    """Nor does their order."""
    result = []
    for callbacks in ([EarlyStopping(patience=3), StepCounter()], [StepCounter(), EarlyStopping(patience=3)]):
        trainer = batchnorm_trainer()
        trainer.fit(X, Y, **FIT | LONG, callbacks=callbacks)
        result.append(full_state(trainer))
    assert result[0] == result[1]


# ---- refused
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"monitor": 3}, TypeError, "monitor: expected a name"),
        ({"monitor": "val_gini"}, ValueError, "monitor: expected one of .*, got 'val_gini'"),
        ({"patience": -1}, ValueError, "patience: expected at least 0"),
        ({"patience": 1.5}, TypeError, "patience: expected an integer"),
        ({"min_delta": -0.1}, ValueError, "min_delta: expected a number of at least 0"),
        ({"min_delta": NAN}, ValueError, "min_delta: expected a finite number"),
        ({"lower_is_better": 1}, TypeError, "lower_is_better: expected True or False"),
    ],
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        EarlyStopping(**arguments)


def test_an_unknown_monitor_is_reported_before_the_first_step():
    trainer = batchnorm_trainer()
    with pytest.raises(ValueError, match=r"monitor: .*, got 'val_loss'; it needs validation_data"):
        trainer.fit(X, Y, **FIT, callbacks=[EarlyStopping()])
    assert trainer.step == 0


def test_fit_says_which_weights_it_restores(capsys):
    trainer, early = batchnorm_trainer(), EarlyStopping("loss", patience=2, min_delta=100)
    trainer.fit(X, Y, **FIT | {"epochs": 9, "verbose": 1}, callbacks=[early])
    last = capsys.readouterr().out.splitlines()[-1]
    restored = f"restored the weights after the epoch with loss {early.best:.4f}, a mean over its steps before"
    assert last == f"EarlyStopping: stopped after 2 epochs without improvement; {restored} their updates"
    early = EarlyStopping(patience=1, min_delta=100)
    trainer.fit(X, Y, **FIT | LONG | {"verbose": 1}, callbacks=[early])
    assert capsys.readouterr().out.endswith(f"; restored the weights with val_loss {early.best:.4f}\n")
    trainer.fit(X, Y, **FIT | {"epochs": 1, "verbose": 1}, callbacks=[EarlyStopping("loss")])
    assert capsys.readouterr().out.splitlines()[-1].startswith("epoch 1/1 ")
    trainer.fit(X, Y, **FIT | {"epochs": 9, "verbose": 0}, callbacks=[EarlyStopping("loss", min_delta=100)])
    assert capsys.readouterr().out == ""


def test_repr():
    assert repr(EarlyStopping(patience=3)) == "EarlyStopping('val_loss', patience=3)"
