"""Malformed checkpoints are refused or do no harm."""

import json

import numpy as np
import pytest
from interrupted_fits import X, Y, interrupt_fit, native_trainer

from minidl import Sequential, Trainer
from minidl.layers import Dense
from minidl.optimizers import SGD
from minidl.saving import atomic, safetensors_file
from minidl.saving.safetensors_file import FileError
from minidl.training import checkpoint_content


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def test_a_model_file_is_not_a_checkpoint(path):
    trainer = native_trainer()
    trainer.model.save(path)
    with pytest.raises(FileError, match="expected a checkpoint"):
        Trainer.resume(path)
    trainer.save_checkpoint(path)
    with pytest.raises(FileError, match="expected a model"):
        Sequential.load(path)


def set_value(config, tensors, entry, value):
    """Returns the configuration with a value replaced."""
    *inner, last = entry
    node = config
    for key in inner:
        node = node[key]
    if value is KeyError:
        del node[last]
    else:
        node[last] = value
    return config, tensors


WRONG = [None, -1, 2**70, "", "x", [], {}, 0.5, True, [1], {"made": 1}, {"custom": []}, {"tuple": []}, KeyError]
TOP = ("model", "loss", "metrics", "optimizer", "remembered", "updates", "seed", "step", "epoch", "history", "fit")


@pytest.mark.parametrize("entry", TOP)
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_valid_file_with_nonsense_is_a_file_error_or_harmless(path, entry, value):
    interrupt_fit(native_trainer(), 16).save_checkpoint(path)
    config, tensors, _ = safetensors_file.read(path, "checkpoint")
    if json.dumps(config[entry]) == json.dumps(value, default=str):
        return
    safetensors_file.write(path, "checkpoint", *set_value(config, tensors, [entry], value))
    try:
        trainer = Trainer.resume(path)
        trainer.train_batch(X, Y)
        trainer.fit(X, Y, epochs=1, verbose=0)
    except ValueError:  # FileError, or the record of a different fit
        return


@pytest.mark.parametrize("which", ["missing", "other shape", "other dtype"])
def test_tensors_that_do_not_fit_are_refused(path, which):
    interrupt_fit(native_trainer(), 16).save_checkpoint(path)
    config, tensors, _ = safetensors_file.read(path, "checkpoint")
    for name in tensors:
        if which == "other shape" and name.startswith("history/"):
            continue  # any number of floats is valid
        damaged = dict(tensors)
        if which == "missing":
            del damaged[name]
        else:
            damaged[name] = np.zeros(3) if which == "other shape" else tensors[name].astype("int8")
        safetensors_file.write(path, "checkpoint", config, damaged)
        with pytest.raises(FileError):
            Trainer.resume(path)


def test_a_history_of_several_lengths(path):
    trainer = native_trainer()
    trainer.fit(X, Y, epochs=2, verbose=0)
    trainer.save_checkpoint(path)
    config, tensors, _ = safetensors_file.read(path, "checkpoint")
    safetensors_file.write(path, "checkpoint", config, tensors | {"history/loss": tensors["history/loss"][:1]})
    with pytest.raises(FileError, match=r"history: expected an entry of each list for each epoch, got .*1 for 'loss'"):
        Trainer.resume(path)
    del trainer.history["loss"][0]
    with pytest.raises(TypeError, match="cannot be saved: a resume would refuse it: history: expected an entry"):
        trainer.save_checkpoint(path)
    with pytest.raises(ValueError, match="history: expected an entry of each list for each epoch, got 2 for 'a'"):
        trainer.history = {"a": [1, 2], "b": [3]}
    trainer.history = {"mine": [0.5, 0.25]}  # without "epoch"
    trainer.fit(X, Y, epochs=1, verbose=0)
    assert {len(values) for values in trainer.history.values()} == {3}
    assert Trainer.resume(trainer.save_checkpoint(path) or path).history["mine"][:2] == [0.5, 0.25]


def test_resuming_removes_what_a_killed_save_left(path):
    interrupt_fit(native_trainer(), 3).save_checkpoint(path)
    left = path.parent / f"{atomic._temporary_prefix(str(path))}0123456789abcdef.tmp"
    left.write_bytes(b"half")
    Trainer.resume(path)
    assert not left.exists() and path.exists()


class Careful:
    """A user's schedule that accepts numbers only."""

    def __init__(self, rate):
        self.rate = 1.0 * rate

    def __call__(self, step):
        return self.rate


def test_state_that_could_not_be_saved_again_is_refused(path):
    """Attributes of a user's class are restored unchecked; only its constructor checks them."""
    trainer = Trainer(Sequential([Dense(2)], (3,)), "softmax_cross_entropy", SGD(Careful(0.1)))
    config, tensors, _ = checkpoint_content.pack(trainer, None)
    config["remembered"]["dict"][0][1]["object"][1]["dict"][0][1] = "../../etc/passwd"
    safetensors_file.write(path, checkpoint_content.KIND, config, tensors)
    with pytest.raises(FileError, match="cannot resume from this checkpoint"):
        Trainer.resume(path, custom_objects={"Careful": Careful})
