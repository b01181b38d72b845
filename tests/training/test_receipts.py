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
from minidl.callbacks import Checkpoint, CSVLogger, EarlyStopping, ExponentialMovingAverage, Receipt, TimeLimit
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
    return fitted(path)


def fitted(path, trainer=None, X=X, y=Y, callbacks=(), **arguments):
    """Fits with a receipt; returns the receipt, or None without one."""
    path.unlink(missing_ok=True)
    (trainer or make_trainer()).fit(X, y, **FIT | arguments, callbacks=[*callbacks, Receipt(path)])
    return json.loads(path.read_text()) if path.exists() else None


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
    assert list(receipt["results"]) == ["epoch", "loss", "accuracy", "lr"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_resumed_fit_has_the_receipt_of_one_that_was_not_interrupted(order, tmp_path, path):
    """Also if the checkpoint was written before the receipt saw the epoch."""

    def fit(trainer, *interrupting):
        callbacks = [Receipt(path), *interrupting, Checkpoint(tmp_path / "c")][::order]
        trainer.fit(SOME_X, SOME_Y, **OF_INTERRUPTED, callbacks=callbacks)
        return json.loads(path.read_text())

    expected = fit(native_trainer())
    for step in (1, 13, 26, 39, 51):
        path.unlink(missing_ok=True)
        with pytest.raises(KeyboardInterrupt):
            fit(native_trainer(), InterruptAt(step))
        assert not path.exists()
        assert fit(Trainer.resume(tmp_path / "c")) == expected


class InterruptAt:
    """Interrupts after a step."""

    rank_zero_only = True

    def __init__(self, step):
        self.every_n_steps = step

    def on_step_end(self, trainer, step, loss):
        raise KeyboardInterrupt


class Once:
    """Raises an error once, or saves, at the end of the second epoch, before the receipt sees it."""

    rank_zero_only = True

    def __init__(self, do):
        self.do = do

    def on_epoch_end(self, trainer, epoch, logs):
        if epoch == 1 and self.do is not None:
            do, self.do = self.do, None
            do(trainer)


def test_an_interruption_at_the_end_of_an_epoch(tmp_path, path):
    expected, file = fitted(path), tmp_path / "c"

    def fail(trainer):
        raise OSError("disk full")

    trainer, callbacks = make_trainer(), [Once(fail), Receipt(path)]
    with pytest.raises(OSError, match="disk full"):
        trainer.fit(X, Y, **FIT, callbacks=callbacks)
    trainer.fit(X, Y, **FIT, callbacks=callbacks)
    expected["run"]["left_out"] = True
    assert json.loads(path.read_text()) == expected
    fitted(path, callbacks=[Once(lambda trainer: trainer.save_checkpoint(file))])
    assert fitted(path, Trainer.resume(file)) == expected


def test_a_fit_that_began_without_it_has_none(tmp_path, path, capsys):
    interrupt_fit(native_trainer(), 16).save_checkpoint(tmp_path / "c")
    trainer = Trainer.resume(tmp_path / "c")
    trainer.fit(SOME_X, SOME_Y, **OF_INTERRUPTED | {"verbose": 1}, callbacks=[Receipt(path)])
    assert not path.exists()
    assert "Receipt: not complete, as it did not see the whole fit" in capsys.readouterr().out


def test_a_second_fit_starts_from_a_checkpoint(tmp_path, path):
    trainer, start = make_trainer(), tmp_path / "start"
    callbacks = [Receipt(path)]
    trainer.fit(X, Y, **FIT, callbacks=callbacks)
    assert Trainer.verify(path, X, Y).equal
    trainer.save_checkpoint(start)
    trainer.fit(X, Y, **FIT, callbacks=callbacks)
    assert Trainer.verify(path, X, Y, start=start).equal
    expected = r"start: expected a checkpoint of epoch 3, step 21, where the fit began, got none"
    with pytest.raises(ValueError, match=expected):
        Trainer.verify(path, X, Y)
    other = Trainer.resume(start)
    other.optimizer.lr = 0.2
    other.save_checkpoint(start)
    found = Trainer.verify(path, X, Y, start=start)
    assert found.first_difference == "configuration" and "another optimizer" in str(found)


def test_a_receipt_of_before_an_argument_of_a_callback_is_verified(tmp_path, path):
    """It has not got the argument; the default is what it was."""
    trainer, start = make_trainer(), tmp_path / "start"
    trainer.save_checkpoint(start)
    receipt = fitted(path, trainer, callbacks=[ExponentialMovingAverage(0.9)])
    (callback,) = receipt["run"]["callbacks"]
    assert callback["minidl"][1].pop("start_step") == 0
    rewrite(path, receipt)
    assert Trainer.verify(path, X, Y, start=start).equal and Trainer.verify(path, X, Y).equal


def test_loaded_weights_need_a_checkpoint(tmp_path, path):
    trainer = make_trainer()
    trainer.model.load_state_dict({name: value + 1 for name, value in trainer.model.state_dict().items()})
    trainer.save_checkpoint(tmp_path / "start")
    fitted(path, trainer)
    found = Trainer.verify(path, X, Y)
    assert found.first_difference == "first weights" and "start from a checkpoint" in found.parts["first weights"]
    assert Trainer.verify(path, X, Y, start=tmp_path / "start").equal


class StopAt:
    """A callback that stops in the middle of an epoch, as TimeLimit may."""

    rank_zero_only = True

    def __init__(self, step):
        self.every_n_steps = step

    def on_step_end(self, trainer, step, loss):
        trainer.should_stop = True


class StopAtBegin(StopAt):
    def on_fit_begin(self, trainer):
        trainer.should_stop = True


def test_a_fit_that_the_clock_ended(path):
    receipt = fitted(path, callbacks=[TimeLimit(1e6), StopAt(9)], epochs=100)
    assert receipt["step"] == 9 and receipt["epochs_done"] == 2 and receipt["run"]["callbacks"] == []
    assert Trainer.verify(path, X, Y).equal
    fitted(path, callbacks=[StopAtBegin(9)])
    assert Trainer.verify(path, X, Y).equal
    fitted(path, epochs=0)
    assert Trainer.verify(path, X, Y).equal


class ReadsStop:
    """A callback whose numbers and weights depend on whether the fit is about to stop."""

    def on_epoch_end(self, trainer, epoch, logs):
        logs["stopping"] = float(trainer.should_stop)
        for param in trainer.model.params.values():
            param.value = param.value * (0.5 if trainer.should_stop else 1.0)


def test_verifying_does_not_stop_a_fit_that_ended_by_itself(path):
    for callbacks in ([ReadsStop()], [EarlyStopping("loss", patience=1), ReadsStop()]):
        fitted(path, callbacks=callbacks, epochs=12)
        assert Trainer.verify(path, X, Y, custom_objects={"ReadsStop": ReadsStop}).equal


def test_the_place_in_the_list_of_callbacks_does_not_matter(path):
    trainer = make_trainer()
    trainer.fit(X, Y, **FIT | {"epochs": 9}, callbacks=[Receipt(path), EarlyStopping("accuracy"), ReadsStop()])
    assert Trainer.verify(path, X, Y, custom_objects={"ReadsStop": ReadsStop}).equal


def test_memory_maps_are_the_same_data_as_arrays(tmp_path, path):
    X, y = RNG.normal(size=(9000, 4)).astype("float32"), RNG.integers(0, 3, 9000)
    np.save(tmp_path / "X.npy", X)
    on_disk = np.load(tmp_path / "X.npy", mmap_mode="r")
    fitted(path, X=on_disk, y=y, validation_data=(on_disk, y))
    assert Trainer.verify(path, X, y, validation_data=(X, y)).equal
    X[5000, 2] += 1
    assert "X" in Trainer.verify(path, X, y, validation_data=(on_disk, y)).parts["data"]


def test_weights_of_numpy_and_sample_weights(path):
    weights = np.linspace(0, 1, 50)
    receipt = fitted(path, class_weight={np.int64(1): np.float32(2)}, sample_weight=weights)
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
        (["fit", "epochs"], 1000, "epoch 4"),
        (["step"], 20, "epoch 4"),
        (["data", "y"], "0" * 64, "data"),
    ],
)
def test_the_first_difference_is_named(keys, value, part, receipt, path):
    rewrite(path, changed(receipt, *keys, value=value))
    found = Trainer.verify(path, X, Y)
    assert not found.equal and found.first_difference == part == list(found.parts)[-1]
    assert str(found).endswith(f"not equal: the runs part at {part}")
    assert all(text == "equal" for name, text in found.parts.items() if name != part)


def test_the_end_of_a_run_is_compared(receipt, path):
    rewrite(path, changed(receipt, "fit", "epochs", value=2))
    ends = "differs: the fit ended after epoch 2, step 14; that of the receipt after epoch 3, step 21"
    assert Trainer.verify(path, X, Y).parts["epoch 3"] == ends
    rewrite(path, changed(receipt, "fit", "epochs", value=4))
    assert Trainer.verify(path, X, Y).parts["epoch 4"] == "differs: the fit of the receipt ended after epoch 3"


def test_a_run_that_diverges_differs(receipt, path):
    rewrite(path, changed(receipt, "run", "optimizer", "minidl", 1, "lr", value=1e38))
    found = Trainer.verify(path, X, Y)
    assert found.first_difference == "epoch 1" and "differs: step " in found.parts["epoch 1"]


def test_missing_validation_data_are_named(path):
    fitted(path, validation_data=(X, Y), callbacks=[EarlyStopping()])
    assert Trainer.verify(path, X, Y).parts == {"data": "differs: validation_data: expected those of the fit"}
    fitted(path, validation_split=0.2, callbacks=[EarlyStopping()])
    found = Trainer.verify(path, X, Y, validation_data=(X, Y))
    assert found.parts == {"data": "differs: validation_data: expected none, as in the fit"}


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


def test_another_commit_of_the_version_is_noted(receipt, path):
    rewrite(path, receipt | {"build": receipt["build"] | {"commit": "abc"}})
    (note,) = Trainer.verify(path, X, Y).notes
    assert note.startswith("commit: the receipt is of abc, ")


def test_what_a_file_says_is_printed_as_one_line(receipt, path):
    rewrite(path, receipt | {"build": receipt["build"] | {"minidl": "9\ndata  equal\x1b[8m\ud800" + "x" * 999}})
    lines = str(Trainer.verify(path, X, Y)).splitlines()
    assert len(lines) == 10 and all(line.isprintable() and len(line) < 350 for line in lines)


# ---- objects of the user's


class Silent:
    """A callback that holds something that JSON cannot."""

    def __init__(self, function):
        self.function = function

    def on_epoch_end(self, trainer, epoch, logs):
        pass


def test_custom_objects_are_passed_by_name(path):
    fitted(path, make_trainer(layers=[NoiseLayer()]), callbacks=[StepCounter()])
    with pytest.raises(FileError, match=r"cannot verify this receipt: custom_objects: .*{'NoiseLayer': NoiseLayer"):
        Trainer.verify(path, X, Y)
    objects = {"NoiseLayer": NoiseLayer, "StepCounter": StepCounter}
    assert Trainer.verify(path, X, Y, custom_objects=objects).equal


def test_what_a_receipt_cannot_hold_is_refused_before_the_first_step(path, tmp_path):
    trainer = make_trainer()
    with pytest.raises(TypeError, match=r"Receipt: callbacks.*function"):
        trainer.fit(X, Y, **FIT, callbacks=[Silent(np.zeros(3)), Receipt(path)])
    with pytest.raises(ValueError, match="Receipt: expected a fit on arrays X and y, got batches"):
        trainer.fit([(X, Y)], epochs=1, verbose=0, callbacks=[Receipt(path)])
    with pytest.raises(OSError, match="expected an existing folder"):
        trainer.fit(X, Y, **FIT, callbacks=[Receipt(tmp_path / "none" / "receipt.json")])
    assert trainer.step == 0 and not path.exists()
    watching = Silent(np.zeros(3))
    watching.rank_zero_only = True  # training is the same without it
    receipt = fitted(path, trainer, callbacks=[watching, CSVLogger(tmp_path / "log.csv")])
    assert receipt["run"]["callbacks"] == [] and receipt["run"]["left_out"] is True


# ---- refusals


def test_files_that_are_no_receipts(receipt, path, tmp_path):
    deep = json.dumps(receipt | {"steps": [[]]}).replace("[[]]", "[" * 900 + "]" * 900)
    texts = ["", "[1]", "{}", "[" * 100_000, deep]
    texts += [json.dumps({"minidl_receipt": version, "build": 3}) for version in (1, 2, True)]
    for text in texts:
        path.write_text(text)
        with pytest.raises(FileError, match=r"receipt.json: expected a receipt of minidl: "):
            Trainer.verify(path, X, Y)
    rewrite(path, changed(receipt, "run", "model", "layers", 0, "minidl", 1, "units", value=2**40))
    with pytest.raises(FileError, match="cannot verify this receipt: "):
        Trainer.verify(path, X, Y)
    with pytest.raises(FileNotFoundError):
        Trainer.verify(tmp_path / "none", X, Y)
    with pytest.raises(TypeError, match="y: expected the targets of the fit, got None"):
        Trainer.verify(path, X, None)
    with pytest.raises(ValueError, match="num_threads: "):
        Trainer.verify(path, X, Y, num_threads=0)


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


@pytest.fixture
def command(path, tmp_path, capsys):
    """Returns the status and what is printed for a file of data with this content."""

    def run(content=None, **arrays):
        data = tmp_path / "train.npz"
        if content is None:
            np.savez_compressed(data, **arrays)
        else:
            data.write_bytes(content)
        with pytest.raises(SystemExit) as exit_:
            __main__.main(["verify", str(path), "--data", str(data)])
        printed = capsys.readouterr()
        return exit_.value.code, printed.out, printed.err

    return run


def test_the_command(receipt, path, command):
    assert command(X=X, y=Y) == (0, f"{Trainer.verify(path, X, Y)}\n", "")
    assert command(X=-X, y=Y)[:2] == (1, f"{Trainer.verify(path, -X, Y)}\n")


@pytest.mark.parametrize(
    "arrays",
    [
        {"X": X}, {"X": X, "Y": Y}, {"X": X.astype(object), "y": Y}, {"X": X, "y": Y, "y.a": Y},
        {"X": X, "y": Y, "X_val": X}, {"X": X, "y": Y, "X_val": X, "sample_weight_val": Y},
        {"X": X, "y": Y, "y_val": Y, "sample_weight_val": Y},
    ],
    ids=lambda arrays: " ".join(arrays),
)  # fmt: skip
def test_other_arrays_are_refused(arrays, receipt, command):
    status, printed, error = command(**arrays)
    assert (status, printed) == (2, "") and error.startswith("verify: --data: expected ")


def test_damaged_data_are_refused(receipt, command, tmp_path):
    np.savez_compressed(tmp_path / "whole.npz", X=X, y=Y)
    np.save(tmp_path / "array.npy", X)
    whole = (tmp_path / "whole.npz").read_bytes()
    damaged = [whole[: len(whole) // 2], (tmp_path / "array.npy").read_bytes(), b"", b"\0" * 99]
    damaged += [whole[:k] + bytes([whole[k] ^ 255]) + whole[k + 1 :] for k in range(30, len(whole), 41)]
    for content in damaged:
        status, printed, error = command(content)
        assert status < 2 or (printed == "" and error.startswith("verify: --data: expected "))


def test_the_command_with_validation_and_outputs(tmp_path, capsys):
    data = receipts.data_of("stopped")
    arrays = {f"y.{name}": y for name, y in data["y"].items()}
    arrays |= {f"y_val.{name}": y for name, y in data["validation_data"][1].items()}
    np.savez(tmp_path / "train.npz", X=data["X"], X_val=data["validation_data"][0], **arrays)
    with pytest.raises(SystemExit) as exit_:
        __main__.main(["verify", str(receipts.FOLDER / "stopped.json"), "--data", str(tmp_path / "train.npz")])
    assert exit_.value.code == 0 and "equal, in every bit" in capsys.readouterr().out


def test_the_command_names_the_remedy_for_custom_objects(path, command):
    fitted(path, make_trainer(layers=[NoiseLayer()]))
    status, _, error = command(X=X, y=Y)
    assert status == 2 and "verify it from Python, by Trainer.verify" in error


def test_threads_do_not_matter(path):
    fitted(path, Trainer(Sequential([Dense(3)]), "softmax_cross_entropy", Adam(), num_threads=2))
    assert all(Trainer.verify(path, X, Y, num_threads=n).equal for n in (1, 3))
