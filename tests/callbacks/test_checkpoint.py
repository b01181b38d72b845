"""Checkpoint: when it saves, under which name, and which files it keeps."""

import os

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import Dense, LayerNorm
from minidl.optimizers import SGD, Adam
from minidl.saving import safetensors_file

X = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
Y = np.arange(20) % 2
FIT = {"batch_size": 8, "verbose": 0}  # 3 steps per epoch


def make_trainer():
    model = Sequential([Dense(2)], input_shape=(3,))
    return Trainer(model, "softmax_cross_entropy", SGD(0.5), ["accuracy"])


@pytest.fixture
def saves(monkeypatch):
    """Records each trainer's step at a save."""
    seen, save = [], Trainer.save_checkpoint

    def noted(trainer, path):
        seen.append((trainer.step, os.path.basename(path)))
        save(trainer, path)

    monkeypatch.setattr(Trainer, "save_checkpoint", noted)
    return seen


def test_saves_after_each_epoch_and_at_the_end(saves, tmp_path):
    make_trainer().fit(X, Y, 3, **FIT, callbacks=[Checkpoint(tmp_path / "a")])
    assert saves == [(3, "a"), (6, "a"), (9, "a"), (9, "a")]
    assert os.listdir(tmp_path) == ["a"]


def test_saves_after_every_nth_step_of_the_trainers_life(saves, tmp_path):
    trainer = make_trainer()
    trainer.train_batch(X, Y)
    trainer.fit(X, Y, 3, **FIT, callbacks=[Checkpoint(tmp_path / "a", every_n_steps=4)])
    assert saves == [(4, "a"), (8, "a"), (10, "a")]  # and at the end of the fit


def test_a_fit_that_failed_before_its_save_leaves_none_to_the_next_one(saves, tmp_path):
    class Failing:
        every_n_steps = 4

        def on_step_end(self, trainer, step, loss):
            raise OSError("no space left")

    saving = Checkpoint(tmp_path / "a", every_n_steps=4)
    with pytest.raises(OSError, match="no space"):
        make_trainer().fit(X, Y, 3, **FIT, callbacks=[saving, Failing()])
    assert saves == []
    make_trainer().fit(X, Y, 3, **FIT, callbacks=[saving])
    assert saves == [(4, "a"), (8, "a"), (9, "a")]


@pytest.mark.parametrize(("keep", "left"), [(1, [9]), (2, [8, 9]), (None, range(1, 10))])
def test_keeps_the_latest_files(saves, tmp_path, keep, left):
    path = tmp_path / "at-{step}.ckpt"
    (tmp_path / "at-x.ckpt").touch()  # other files stay
    (tmp_path / "at-7").touch()
    make_trainer().fit(X, Y, 3, **FIT, callbacks=[Checkpoint(path, every_n_steps=1, max_to_keep=keep)])
    assert sorted(os.listdir(tmp_path)) == sorted(["at-x.ckpt", "at-7", *(f"at-{step}.ckpt" for step in left)])
    assert Checkpoint.latest(path) == str(tmp_path / "at-9.ckpt")
    assert Trainer.resume(Checkpoint.latest(path)).step == 9


def test_a_file_of_another_run_stays_and_is_not_later(tmp_path):
    path = tmp_path / "{epoch}-{step}"
    (tmp_path / "70-900").touch()
    make_trainer().fit(X, Y, 2, **FIT, callbacks=[Checkpoint(path, max_to_keep=1)])
    assert sorted(os.listdir(tmp_path)) == ["2-6", "70-900"]
    assert Checkpoint.latest(path) == str(tmp_path / "2-6")


def test_a_resumed_run_deletes_its_earlier_files(tmp_path):
    path = tmp_path / "{step}"
    make_trainer().fit(X, Y, 2, **FIT, callbacks=[Checkpoint(path, max_to_keep=2)])
    trainer = Trainer.resume(Checkpoint.latest(path))
    trainer.fit(X, Y, 3, **FIT, callbacks=[Checkpoint(path, max_to_keep=2)])  # another fit of the same trainer
    assert sorted(os.listdir(tmp_path)) == ["12", "15", "3", "6"]
    class_of = Trainer.resume(tmp_path / "12")
    class_of.fit(X, Y, 3, **FIT, callbacks=[Checkpoint(path, max_to_keep=1)])
    assert sorted(os.listdir(tmp_path)) == ["15", "3", "6"]


def test_latest_is_none_without_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Checkpoint.latest("run-{step}") is None
    assert Checkpoint.latest("missing/run") is None
    assert Checkpoint.latest("run") is None
    (tmp_path / "run").touch()
    assert Checkpoint.latest("run") == "run"


class ScriptedScores:
    """Makes validation return given values."""

    def __init__(self, monkeypatch, values):
        self.values = iter(values)
        monkeypatch.setattr(Trainer, "evaluate_rows", lambda *args, **options: {"loss": next(self.values)})


@pytest.mark.parametrize(
    ("name", "lower", "saved"),
    [("val_loss", None, [1, 3, 6]), ("val_loss", True, [1, 3, 6]), ("val_loss", False, [1, 2, 5])],
)
def test_saves_the_best(monkeypatch, saves, tmp_path, name, lower, saved):
    ScriptedScores(monkeypatch, [3.0, 4.0, 2.0, 2.0, 5.0, 1.0])
    checkpoint = Checkpoint(tmp_path / "best", monitor=name, lower_is_better=lower)
    make_trainer().fit(X, Y, 6, **FIT, validation_data=(X, Y), callbacks=[checkpoint])
    assert [step // 3 for step, _ in saves] == saved


def test_nan_is_never_the_best(monkeypatch, saves, tmp_path):
    ScriptedScores(monkeypatch, [float("nan"), 4.0, float("nan"), 3.0])
    make_trainer().fit(
        X, Y, 4, **FIT, validation_data=(X, Y), callbacks=[Checkpoint(tmp_path / "b", monitor="val_loss")]
    )
    assert [step // 3 for step, _ in saves] == [2, 4]


def test_the_best_value_is_kept_by_a_resume(monkeypatch, saves, tmp_path):
    class Interrupter:
        def on_epoch_begin(self, trainer, epoch):
            if epoch == 3:
                raise KeyboardInterrupt

    def callbacks():  # "last" saves what "best" has just learned
        return [Checkpoint(tmp_path / "last"), Checkpoint(tmp_path / "best", monitor="val_loss")]

    ScriptedScores(monkeypatch, [3.0, 1.0, 2.0, 1.5, 0.5])
    with pytest.raises(KeyboardInterrupt):
        make_trainer().fit(X, Y, 5, **FIT, validation_data=(X, Y), callbacks=[*callbacks(), Interrupter()])
    Trainer.resume(tmp_path / "last").fit(X, Y, 5, **FIT, validation_data=(X, Y), callbacks=callbacks())
    assert [step // 3 for step, name in saves if name == "best"] == [1, 2, 5]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"path": None}, TypeError, "path: expected a str or os.PathLike, got None"),
        ({"path": "{step:04d}"}, ValueError, "in the file's name, got {step:04d}"),
        ({"path": "{step}-{loss}", "max_to_keep": 2}, ValueError, "in the file's name, got {loss}"),
        ({"path": "a", "monitor": "gini"}, ValueError, "monitor: expected one of .*, got 'gini'"),
        ({"path": 3}, TypeError, "path: expected a str"),
        ({"path": "a", "max_to_keep": 2}, ValueError, "max_to_keep: expected None for a path without"),
        ({"path": "a{step}", "max_to_keep": 0}, ValueError, "max_to_keep: expected at least 1"),
        ({"path": "{step}/a"}, ValueError, "in the file's name, got {step}"),
        ({"path": "a", "every_n_steps": 0}, ValueError, "every_n_steps: expected at least 1"),
        ({"path": "a", "every_n_steps": 2.0}, TypeError, "every_n_steps: expected an integer"),
        ({"path": "a", "monitor": True}, TypeError, "monitor: expected a name"),
        ({"path": "a", "monitor": "loss", "every_n_steps": 2}, ValueError, "every_n_steps: expected None with monitor"),
        ({"path": "a", "lower_is_better": True}, ValueError, "lower_is_better: expected None without monitor"),
        ({"path": "a", "monitor": "loss", "lower_is_better": 1}, TypeError, "lower_is_better: expected True or False"),
    ],
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Checkpoint(**arguments)


@pytest.mark.parametrize(
    ("best", "message"),
    [
        (
            "val_accuracy",
            r"monitor: .*\['loss', 'accuracy'\], got 'val_accuracy'; it needs validation_data",
        ),
        ("f1", r"monitor: expected one of \['loss', 'accuracy'\], got 'f1'$"),
    ],
)
def test_an_unknown_monitor_is_reported_before_the_first_step(tmp_path, best, message):
    trainer = make_trainer()
    with pytest.raises(ValueError, match=message):
        trainer.fit(X, Y, 1, **FIT, callbacks=[Checkpoint(tmp_path / "a", monitor=best, lower_is_better=False)])
    assert trainer.step == 0
    trainer.fit(X, Y, 1, **FIT, validation_split=0.2, callbacks=[Checkpoint(tmp_path / "a", monitor="val_accuracy")])


def test_weights_changed_by_other_callbacks_at_the_end_are_saved(tmp_path):
    class ZeroWeights:
        def on_fit_end(self, trainer):
            trainer.model.params["0.weight"].value[:] = 0

    make_trainer().fit(X, Y, 2, **FIT, callbacks=[Checkpoint(tmp_path / "a"), ZeroWeights()])
    assert not Trainer.resume(tmp_path / "a").model.params["0.weight"].value.any()


def test_a_path_that_is_a_folder_is_reported_before_the_first_step(tmp_path):
    trainer = make_trainer()
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        trainer.fit(X, Y, 1, **FIT, callbacks=[Checkpoint(tmp_path)])
    assert trainer.step == 0


def test_a_missing_folder_is_reported_before_the_first_step(tmp_path):
    trainer = make_trainer()
    with pytest.raises(OSError, match=r"path: expected an existing folder to write into: .*missing"):
        trainer.fit(X, Y, 1, **FIT, callbacks=[Checkpoint(tmp_path / "missing" / "a")])
    assert trainer.step == 0


# ---- large files
@pytest.mark.slow
def test_a_deep_net_with_adam_is_saved_and_resumed(tmp_path):
    layers = [Dense(2) if i % 2 else LayerNorm() for i in range(2000)]
    trainer = Trainer(Sequential([*layers, Dense(2)], (2,)), "softmax_cross_entropy", Adam(1e-4))
    X, y = np.random.default_rng(0).normal(size=(4, 2)), np.arange(4) % 2
    trainer.fit(X, y, callbacks=[Checkpoint(tmp_path / "deep")], verbose=0)
    assert (tmp_path / "deep").stat().st_size > 2**21
    resumed = Trainer.resume(tmp_path / "deep")
    assert trainer.train_batch(X, y) == resumed.train_batch(X, y)
    weights = resumed.model.state_dict()
    assert all(np.array_equal(value, weights[name]) for name, value in trainer.model.state_dict().items())


class LargeStateCallback:
    """A callback with more state than a file's header can hold."""

    def on_epoch_end(self, trainer, epoch, logs):
        pass

    def state_dict(self):
        return {"words": ["word" * 100] * (safetensors_file.MAX_HEADER // 300)}

    def load_state_dict(self, state):
        pass


def test_a_header_that_is_too_large_is_reported_before_the_first_step(tmp_path):
    trainer = Trainer(Sequential([Dense(2)], (2,)), "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(
        ValueError, match=f"header: expected at most {safetensors_file.MAX_HEADER} bytes, got .* fewer tensors"
    ):
        trainer.fit(
            np.ones((4, 2)), [0, 1, 0, 1], callbacks=[LargeStateCallback(), Checkpoint(tmp_path / "ck")], verbose=0
        )
    assert trainer.step == 0 and not list(tmp_path.iterdir())
