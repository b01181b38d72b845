"""Crafted callback states in checkpoints are accepted or refused by name before the first step."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint, EarlyStopping, ExponentialMovingAverage, ReduceLROnPlateau
from minidl.callbacks.state_checks import arrays_like
from minidl.layers import Dense
from minidl.optimizers import SGD

X, Y = np.random.default_rng(0).normal(size=(8, 3)), np.arange(8) % 2
FIT = {"epochs": 6, "batch_size": 4, "verbose": 0}
CALLBACKS = {
    "early": lambda path: EarlyStopping("loss", patience=9),
    "plateau": lambda path: ReduceLROnPlateau("loss", patience=9),
    "average": lambda path: ExponentialMovingAverage(0.5),
    "checkpoint": lambda path: Checkpoint(path / "other-{step}", max_to_keep=1),
}
ARRAYS = [np.zeros(3), np.zeros(7, "float32"), {"0.weight": np.zeros(2)}]
ODD = [None, True, -1, 1.5, float("nan"), "x", [], ["x"], {}, {"x": 1}, ["../x-1"], *ARRAYS]


def interrupt_fit(callback):
    """Returns a trainer whose fit was interrupted in its third epoch, and the callback's state at that point."""

    class StopFit(Exception):
        pass

    class Interrupter:
        def on_epoch_end(self, trainer, epoch, logs):
            if epoch == 2:
                raise StopFit

    trainer = Trainer(Sequential([Dense(2)], (3,)), "softmax_cross_entropy", SGD(0.1))
    with pytest.raises(StopFit):
        trainer.fit(X, Y, **FIT, callbacks=[callback, Interrupter()])
    return trainer, callback.state_dict()


def mutations(state):
    """Yields the state without an entry, with an extra one, and with odd values in each place."""
    yield None
    yield {**state, "more": 1}
    for name, value in state.items():
        yield {key: other for key, other in state.items() if key != name}
        yield from ({**state, name: odd} for odd in ODD)
        if isinstance(value, dict):
            for key in value:
                yield from ({**state, name: {**value, key: odd}} for odd in ODD)


@pytest.mark.parametrize("kind", CALLBACKS)
def test_a_crafted_state_is_refused_by_name_or_training_continues(tmp_path, kind):
    trainer, good = interrupt_fit(CALLBACKS[kind](tmp_path))
    trainer.save_checkpoint(tmp_path / "ck")
    refused = 0
    for state in mutations(good):
        resumed = Trainer.resume(tmp_path / "ck")
        ((key, _, needed),) = resumed.interrupted.callbacks
        resumed.interrupted.callbacks[0] = (key, state, needed)
        step = resumed.step
        try:
            resumed.fit(X, Y, **FIT, callbacks=[CALLBACKS[kind](tmp_path)])
            assert resumed.epoch == 6
        except ValueError as error:
            assert str(error).startswith(f"callback {key}: cannot load its state from the checkpoint: "), error
            assert resumed.step == step
            refused += 1
    assert refused > len(ODD)


def test_files_of_other_runs_are_not_deleted(tmp_path):
    """A checkpoint names a file of another run, which `max_to_keep` would delete."""
    callback = CALLBACKS["checkpoint"](tmp_path)
    for name in ("../precious", "precious", "other-1/../../precious", "other-x", "other-1\n"):
        with pytest.raises(ValueError, match="saved: expected names of files of"):
            callback.load_state_dict({"record": None, "saved": [name]})
    callback.load_state_dict({"record": None, "saved": ["other-1", "other-20"]})


def test_errors_of_a_custom_callback_carry_its_name(tmp_path):
    class CustomCallback:
        def on_epoch_end(self, trainer, epoch, logs):
            self.seen = epoch

        def state_dict(self):
            return {"seen": 1}

        def load_state_dict(self, state):
            self.seen = state["saw"]

    trainer, _ = interrupt_fit(CustomCallback())
    trainer.save_checkpoint(tmp_path / "ck")
    with pytest.raises(
        ValueError, match="callback CustomCallback: cannot load its state from the checkpoint: no 'saw'"
    ):
        Trainer.resume(tmp_path / "ck").fit(X, Y, **FIT, callbacks=[CustomCallback()])


@pytest.mark.parametrize("wrong", [np.zeros((3, 2), "float32"), np.zeros((2, 3)), [[0.0] * 3] * 2])
def test_arrays_must_have_the_models_shapes_and_dtypes(wrong):
    check = arrays_like({"w": np.zeros((2, 3), "float32")})
    check("weights", {"w": np.ones((2, 3), "float32")})
    with pytest.raises(ValueError, match=r"weights\['w'\]: expected float32 \(2, 3\), got"):
        check("weights", {"w": wrong})
