"""Receipts: what they hold, what verifying them says, and what has none."""

import copy
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import receipts
from interrupted_fits import FIT as OF_INTERRUPTED
from interrupted_fits import NoiseLayer, StepCounter, interrupt_fit, native_trainer
from interrupted_fits import X as SOME_X
from interrupted_fits import Y as SOME_Y

import minidl_c
from minidl import FileError, Sequential, Trainer, __main__
from minidl.callbacks import CSVLogger, TimeLimit
from minidl.layers import Dense, ReLU
from minidl.optimizers import SGD, Adam
from minidl_c import cpu

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 4)).astype("float32"), np.arange(50) % 3
FIT = {"epochs": 3, "batch_size": 8, "verbose": 0}


def make_trainer(lr=0.1, seed=0, layers=(), **options):
    model = Sequential([Dense(6), ReLU(), *layers, Dense(3)], input_shape=(4,), seed=2)
    return Trainer(model, "softmax_cross_entropy", SGD(lr, momentum=0.9), ["accuracy"], seed=seed, **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "receipt.json"


@pytest.fixture
def receipt(path):
    """A receipt, which is also in the file."""
    trainer = make_trainer()
    trainer.fit(X, Y, **FIT)
    return trainer.receipt(path, X, Y)


def rewrite(path, receipt):
    path.write_text(json.dumps(receipt))


# ---- equal


@pytest.mark.parametrize("name", receipts.RUNS)
def test_receipts_of_the_project(name):
    found = receipts.verify(name, None)
    assert found.equal, found
    assert list(found.parts)[:3] == ["data", "first weights", "epoch 1"] and list(found.parts)[-1] == "predictions"


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["v3", "v4"])
def test_receipts_of_the_project_on_an_instruction_set(isa):
    built = (Path(minidl_c.__file__).parent / isa / "build.json").is_file()
    if not built or isa not in cpu.supported():
        pytest.skip(f"no {isa}: not built here, or not for this processor")
    code = "import receipts as r, minidl_c; print(minidl_c.isa, *(r.verify(*run).equal for run in r.ALL_THREADS))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MINIDL_ISA": isa}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == [isa, *6 * ["True"]]


def test_hashes_are_those_of_the_bytes(receipt):
    trainer = make_trainer()
    trainer.fit(X, Y, **FIT)
    weights = b"".join(value.tobytes() for value in trainer.model.state_dict().values())
    assert receipt["weights"]["last"] == receipt["weights"]["epochs"][-1] == hashlib.sha256(weights).hexdigest()
    assert receipt["predictions"] == hashlib.sha256(trainer.predict(X).tobytes()).hexdigest()
    assert receipt["results"]["loss"] == trainer.history["loss"][-1]


def test_a_resumed_fit_has_the_receipt_of_one_that_was_not_interrupted(tmp_path, path):
    whole = native_trainer()
    whole.fit(SOME_X, SOME_Y, **OF_INTERRUPTED)
    expected = whole.receipt(path, SOME_X, SOME_Y)
    expected["run"].pop("callbacks")  # the interrupted ones have a callback that interrupts
    for step in (0, 16, 26, 39):
        interrupt_fit(native_trainer(), step).save_checkpoint(tmp_path / "c")
        resumed = Trainer.resume(tmp_path / "c")
        resumed.fit(SOME_X, SOME_Y, **OF_INTERRUPTED)
        resumed.save_checkpoint(tmp_path / "c")
        for trainer in (resumed, Trainer.resume(tmp_path / "c")):
            found = trainer.receipt(path, SOME_X, SOME_Y)
            found["run"].pop("callbacks")
            assert found == expected


def test_a_second_fit_starts_from_a_checkpoint(tmp_path, path):
    trainer, start = make_trainer(), tmp_path / "start"
    trainer.fit(X, Y, **FIT)
    trainer.save_checkpoint(start)
    trainer.fit(X, Y, **FIT)
    trainer.receipt(path, X, Y)
    assert Trainer.verify(path, X, Y, start=start).equal
    expected = r"start: expected a checkpoint of epoch 3, step 21, where the fit began, got none"
    with pytest.raises(ValueError, match=expected):
        Trainer.verify(path, X, Y)
    other = Trainer.resume(start)
    other.optimizer.lr = 0.2
    other.save_checkpoint(start)
    found = Trainer.verify(path, X, Y, start=start)
    assert found.first_difference == "configuration" and "another optimizer" in str(found)


def test_loaded_weights_need_a_checkpoint(tmp_path, path):
    trainer = make_trainer()
    trainer.model.load_state_dict({name: value + 1 for name, value in trainer.model.state_dict().items()})
    trainer.save_checkpoint(tmp_path / "start")
    trainer.fit(X, Y, **FIT)
    trainer.receipt(path, X, Y)
    found = Trainer.verify(path, X, Y)
    assert found.first_difference == "first weights" and "start from a checkpoint" in found.parts["first weights"]
    assert Trainer.verify(path, X, Y, start=tmp_path / "start").equal


class StopAt:
    """A callback that stops in the middle of an epoch, as TimeLimit may."""

    every_n_steps, rank_zero_only = 9, True

    def on_step_end(self, trainer, step, loss):
        trainer.should_stop = True


def test_a_fit_that_the_clock_ended(path):
    trainer = make_trainer()
    trainer.fit(X, Y, **FIT | {"epochs": 100}, callbacks=[TimeLimit(1e6), StopAt()])
    receipt = trainer.receipt(path, X, Y)
    assert receipt["steps"] == 9 and len(receipt["weights"]["epochs"]) == 2 and receipt["run"]["callbacks"] == []
    assert Trainer.verify(path, X, Y).equal


def test_weights_of_numpy_and_sample_weights(path):
    trainer, weights = make_trainer(), np.linspace(0, 1, 50)
    trainer.fit(X, Y, **FIT, class_weight={np.int64(1): np.float32(2)}, sample_weight=weights)
    receipt = trainer.receipt(path, X, Y, sample_weight=weights)
    assert receipt["fit"]["class_weight"] == {"dict": [[1, 2.0]]}
    assert Trainer.verify(path, X, Y, sample_weight=weights).equal
    assert Trainer.verify(path, X, Y).parts == {"data": "differs: sample_weight (shape, dtype or numbers)"}


# ---- where two runs part


def changed(receipt, *keys, value):
    """Returns a copy of a receipt in which the value at these keys is another."""
    copied = place = copy.deepcopy(receipt)
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return copied


@pytest.mark.parametrize(
    ("keys", "value", "part"),
    [
        (["run", "model", "seed"], 3, "first weights"),
        (["run", "seed"], 1, "epoch 1"),
        (["run", "optimizer", "minidl", 1, "lr"], 0.1000001, "epoch 1"),
        (["fit", "batch_size"], 9, "epoch 1"),
        (["weights", "epochs", 1], "0" * 64, "epoch 2"),
        (["weights", "last"], "0" * 64, "last weights"),
        (["results", "accuracy"], 1.0, "results"),
        (["predictions"], "0" * 64, "predictions"),
        (["fit", "epochs"], 2, "epoch 3"),
        (["data", "y"], "0" * 64, "data"),
    ],
)
def test_the_first_difference_is_named(keys, value, part, receipt, path):
    rewrite(path, changed(receipt, *keys, value=value))
    found = Trainer.verify(path, X, Y)
    assert not found.equal and found.first_difference == part == list(found.parts)[-1]
    assert str(found).endswith(f"not equal: the runs part at {part}")
    assert all(text == "equal" for name, text in found.parts.items() if name != part)


def test_a_fit_that_goes_on_is_stopped_at_the_last_step(receipt, path):
    shorter = changed(receipt, "weights", "epochs", value=receipt["weights"]["epochs"][:2])
    rewrite(path, shorter)
    found = Trainer.verify(path, X, Y)
    assert found.parts["epoch 3"] == "differs: the run of the receipt ended after epoch 2"


def test_a_changed_pixel(receipt, path):
    other = X.copy()
    other[3, 2] = np.nextafter(other[3, 2], 9)
    found = Trainer.verify(path, other, Y)
    assert found.parts == {"data": "differs: X (shape, dtype or numbers)"}


def test_another_version_and_build_are_noted(receipt, path):
    rewrite(path, receipt | {"build": receipt["build"] | {"minidl": "0.0.1", "numpy": "1.0", "instruction_set": "v2"}})
    found = Trainer.verify(path, X, Y)
    assert found.equal
    assert found.notes[0] == f"version: the receipt is of minidl 0.0.1, this is {minidl_c.__version__}"
    assert "NumPy 1.0 then" in found.notes[1] and (minidl_c.isa == "v2" or "instruction set v2 then" in found.notes[2])


# ---- objects of the user's


class Silent:
    """A callback that holds something that JSON cannot."""

    def __init__(self, function):
        self.function = function

    def on_epoch_end(self, trainer, epoch, logs):
        pass


def test_custom_objects_are_passed_by_name(path):
    trainer = make_trainer(layers=[NoiseLayer()])
    trainer.fit(X, Y, **FIT, callbacks=[StepCounter()])
    trainer.receipt(path, X, Y)
    with pytest.raises(FileError, match=r"cannot verify this receipt: custom_objects: .*{'NoiseLayer': NoiseLayer"):
        Trainer.verify(path, X, Y)
    objects = {"NoiseLayer": NoiseLayer, "StepCounter": StepCounter}
    assert Trainer.verify(path, X, Y, custom_objects=objects).equal


def test_what_cannot_be_written_is_named_and_does_not_stop_the_fit(path, tmp_path):
    trainer = make_trainer()
    trainer.fit(X, Y, **FIT, callbacks=[Silent(np.zeros(3))])
    with pytest.raises(TypeError, match=r"receipt: cannot be written: callbacks.*function"):
        trainer.receipt(path, X, Y)
    assert not path.exists()
    watching = Silent(np.zeros(3))
    watching.rank_zero_only = True  # training is the same without it
    trainer = make_trainer()
    trainer.fit(X, Y, **FIT, callbacks=[watching, CSVLogger(tmp_path / "log.csv")])
    assert trainer.receipt(path, X, Y)["run"]["callbacks"] == []


# ---- refusals


def test_what_has_no_receipt(path):
    trainer = make_trainer()
    none = "receipt: expected a fit that came to its end, .*, got none"
    with pytest.raises(ValueError, match=none):
        trainer.receipt(path, X, Y)
    trainer.fit(X, Y, **FIT)
    trainer.train_batch(X, Y)
    with pytest.raises(ValueError, match=none):
        trainer.receipt(path, X, Y)
    with pytest.raises(ValueError, match=none):
        interrupt_fit(native_trainer(), 16).receipt(path, SOME_X, SOME_Y)
    trainer = make_trainer()
    trainer.fit([(X, Y)], epochs=1, verbose=0)
    with pytest.raises(ValueError, match="expected a fit on arrays X and y, got one on batches"):
        trainer.receipt(path, X, Y)
    assert not path.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"X": X + 1}, "X: expected the same data, as in the last fit, got other data"),
        ({"y": Y[::-1]}, "y: expected the same data"),
        ({"sample_weight": np.arange(50)}, "sample_weight: expected none, as in the last fit, got other data"),
        ({"validation_data": (X, Y)}, "validation_data: expected none"),
    ],
)
def test_other_data_than_those_of_the_fit_are_refused(data, message, path):
    trainer = make_trainer()
    trainer.fit(X, Y, **FIT)
    with pytest.raises(ValueError, match=message):
        trainer.receipt(path, **{"X": X, "y": Y} | data)


def test_files_that_are_no_receipts(receipt, path, tmp_path):
    texts = ["", "[1]", "{}", "[" * 100_000, '{"minidl_receipt": 2}', '{"minidl_receipt": 1, "build": 3}']
    for text in texts:
        path.write_text(text)
        with pytest.raises(FileError, match=r"receipt.json: expected a receipt of minidl: "):
            Trainer.verify(path, X, Y)
    with pytest.raises(FileNotFoundError):
        Trainer.verify(tmp_path / "none", X, Y)


def places(value, keys=()):
    """Yields the keys of all values in a receipt."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*keys, key)
        yield from places(inner, (*keys, key))


def test_every_damaged_value_is_refused_or_found(receipt, path):
    for keys in places(receipt):
        for value in (None, {}, [], "x", -1, 1e300, True):
            rewrite(path, changed(receipt, *keys, value=value))
            try:
                found = Trainer.verify(path, X, Y)
            except (TypeError, ValueError) as error:
                assert str(error)
            else:
                assert isinstance(found.equal, bool)


# ---- the command line


def test_the_command(receipt, path, tmp_path, capsys):
    data = tmp_path / "train.npz"

    def run(**arrays):
        np.savez(data, **arrays)
        with pytest.raises(SystemExit) as exit_:
            __main__.main(["verify", str(path), "--data", str(data)])
        printed = capsys.readouterr()
        return exit_.value.code, printed.out, printed.err

    assert run(X=X, y=Y) == (0, f"{Trainer.verify(path, X, Y)}\n", "")
    assert run(X=-X, y=Y)[:2] == (1, f"{Trainer.verify(path, -X, Y)}\n")
    for arrays in ({"X": X}, {"X": X, "Y": Y}, {"X": X.astype(object), "y": Y}):
        status, printed, error = run(**arrays)
        assert (status, printed) == (2, "") and error.startswith("verify: --data: expected ")


def test_the_command_with_validation_and_outputs(tmp_path, capsys):
    data = receipts.data_of("stopped")
    arrays = {f"y.{name}": y for name, y in data["y"].items()}
    arrays |= {f"y_val.{name}": y for name, y in data["validation_data"][1].items()}
    np.savez(tmp_path / "train.npz", X=data["X"], X_val=data["validation_data"][0], **arrays)
    with pytest.raises(SystemExit) as exit_:
        __main__.main(["verify", str(receipts.FOLDER / "stopped.json"), "--data", str(tmp_path / "train.npz")])
    assert exit_.value.code == 0 and "equal, in every bit" in capsys.readouterr().out


def test_the_command_names_the_remedy_for_custom_objects(path, tmp_path, capsys):
    trainer = make_trainer(layers=[NoiseLayer()])
    trainer.fit(X, Y, **FIT)
    trainer.receipt(path, X, Y)
    np.savez(tmp_path / "train.npz", X=X, y=Y)
    with pytest.raises(SystemExit) as exit_:
        __main__.main(["verify", str(path), "--data", str(tmp_path / "train.npz")])
    assert exit_.value.code == 2 and "verify it from Python, by Trainer.verify" in capsys.readouterr().err


def test_adam_and_threads_do_not_matter(path):
    trainer = Trainer(Sequential([Dense(3)]), "softmax_cross_entropy", Adam(), num_threads=2)
    trainer.fit(X, Y, **FIT)
    trainer.receipt(path, X, Y)
    assert all(Trainer.verify(path, X, Y, num_threads=n).equal for n in (1, 3))
