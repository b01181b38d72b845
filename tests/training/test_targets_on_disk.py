"""Targets that are a memory map or a lazy array: the bits of arrays, and checks of rows as they are read."""

import numpy as np
import pytest
from interrupted_fits import InterruptAfter
from odd_arrays import Lazy

from minidl import InputError, Sequential, Trainer
from minidl.layers import Dense, Flatten, RandomFlip, ReLU, Reshape
from minidl.losses import BinaryCrossEntropy, Huber, NativeLoss, Pinball
from minidl.metrics import r2
from minidl.optimizers import Adam
from minidl.training import targets_on_disk
from minidl.training.targets_on_disk import TargetsOnDisk, stays_on_disk
from minidl.utils.data import is_memory_map

RNG = np.random.default_rng(0)
WINDOWS = RNG.normal(size=(300, 2, 6)) * 3
HALF = np.arange(300) % 2 * 1.5


def mapped(folder, array):
    np.save(folder / "y.npy", array)
    return np.load(folder / "y.npy", mmap_mode="r")


def views(folder, array):
    """Yields the same numbers as an array on disk, in four kinds."""
    whole = mapped(folder, array)
    yield whole
    yield np.lib.stride_tricks.as_strided(whole)
    yield whole[::-1][::-1]
    yield Lazy(array)


def make_trainer(loss="mean_squared_error", metrics=("mae", r2)):
    model = Sequential([Flatten(), Dense(8), ReLU(), Dense(12), Reshape((2, 6))], input_shape=(2, 6))
    return Trainer(model, loss, Adam(0.01), metrics)


def results(y, loss="mean_squared_error", metrics=("mae", r2), X=WINDOWS, **fit):
    trainer = make_trainer(loss, metrics)
    history = trainer.fit(X, y, epochs=2, batch_size=32, verbose=0, **fit)
    evaluated = trainer.evaluate(X, y, fit.get("sample_weight"))
    weights = [value.tobytes() for value in trainer.model.state_dict().values()]
    return weights, {k: v for k, v in history.items() if k != "images_per_second"}, evaluated


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", ">f4"])
@pytest.mark.parametrize(
    "fit",
    [{}, {"validation_split": 0.2}, {"sample_weight": HALF}, {"mixup": 0.3}],
    ids=["plain", "split", "weights", "mixup"],
)
def test_the_bits_are_those_of_arrays(tmp_path, dtype, fit):
    y = WINDOWS.astype(dtype)
    expected = results(y, **fit)
    for on_disk in views(tmp_path, y):
        assert results(on_disk, **fit) == expected
    assert results(mapped(tmp_path, y), X=mapped(tmp_path, y), **fit) == results(y, X=y, **fit)


def test_numbers_that_float32_holds_are_reported_as_those_of_arrays(tmp_path, monkeypatch):
    """Of float64 on disk it is not known before they are read."""
    monkeypatch.setattr(targets_on_disk, "CHUNK", 64)
    y = np.round(WINDOWS)
    assert results(mapped(tmp_path, y)) == results(y)
    y[-1, 0, 0] = 1 / 3
    assert results(mapped(tmp_path, y)) == results(y)


def test_validation_data_are_read_row_by_row(tmp_path):
    y = WINDOWS.astype("float32")
    expected = results(y, validation_data=(WINDOWS, y))
    assert results(y, validation_data=(WINDOWS, mapped(tmp_path, y))) == expected
    assert results(y, validation_data=(WINDOWS, Lazy(y))) == expected


def test_rows_of_weight_0_may_hold_anything(tmp_path):
    y = WINDOWS.copy()
    y[::2] = np.nan
    for on_disk in views(tmp_path, y):
        assert results(on_disk, sample_weight=HALF) == results(y, sample_weight=HALF)
    X = mapped(tmp_path, y)
    assert results(X, X=np.lib.stride_tricks.as_strided(X), sample_weight=HALF)[1]["loss"][-1] > 0


@pytest.mark.parametrize("bad, message", [(np.nan, "finite values, got NaN or infinity"), (1e300, "float32")])
def test_a_row_that_is_refused_is_named_when_it_is_read(tmp_path, bad, message):
    y = WINDOWS.copy()
    y[217, 1, 3] = bad
    for on_disk in views(tmp_path, y):
        with pytest.raises(InputError, match=rf"^y: .*{message}"):
            results(on_disk, metrics=())
    y[217, 1, 3] = np.nan
    with pytest.raises(InputError, match=r"first in example 217"):
        results(mapped(tmp_path, y), metrics=())
    with pytest.raises(InputError, match=r"^X: .*first in example 217"):
        results(WINDOWS, X=mapped(tmp_path, y))


def test_a_row_of_validation_data_that_is_refused_is_named_so(tmp_path):
    bad = WINDOWS.astype("float32")
    bad[217] = np.nan
    bad = mapped(tmp_path, bad)
    with pytest.raises(InputError, match=r"^validation_data: X: expected finite values.*first in example 217"):
        results(WINDOWS, validation_data=(bad, WINDOWS))
    with pytest.raises(InputError, match=r"^validation_data: y: expected finite values.*first in example 217"):
        results(WINDOWS, validation_data=(WINDOWS, bad))
    with pytest.raises(InputError, match=r"^validation_data: X: expected finite values.*first in example 217"):
        make_trainer().fit([(WINDOWS, WINDOWS)], verbose=0, validation_data=(bad, WINDOWS))
    with pytest.raises(InputError, match=r"^X: expected finite values"):
        results(WINDOWS, X=bad, validation_split=0.99)


@pytest.mark.parametrize(
    "wrong, message",
    [(WINDOWS[:-1], "y: expected 300 targets, one for each example of X, got 299"),
     (WINDOWS[:, :1], r"y: expected shape \(n, 2, 6\), that of the model's outputs, got \(300, 1, 6\)"),
     (WINDOWS * 1j, "y: expected real numbers")],
)  # fmt: skip
def test_other_targets_are_refused_before_the_first_step(tmp_path, wrong, message):
    for on_disk in (mapped(tmp_path, wrong), Lazy(wrong)):
        with pytest.raises(InputError, match=message):
            results(on_disk)


@pytest.mark.parametrize("weight", [None, HALF])
def test_a_fit_is_completed_with_the_same_targets_in_memory_and_back(tmp_path, weight):
    y = WINDOWS.copy()  # of float64, which float32 rounds
    if weight is not None:
        y[weight == 0] = [np.nan] * 5 + [1e300]
    on_disk, changed = mapped(tmp_path, y), y.copy()
    changed[1, 0, 0] += 0.1
    fit = {"epochs": 2, "batch_size": 32, "verbose": 0, "sample_weight": weight}
    for one, other in ((on_disk, y), (y, on_disk), (Lazy(y), y), (on_disk, Lazy(y))):
        trainer = make_trainer()
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(WINDOWS, one, **fit, callbacks=[InterruptAfter(7)])
        trainer.save_checkpoint(tmp_path / "c")
        with pytest.raises(ValueError, match="y: expected the same data"):
            Trainer.resume(tmp_path / "c").fit(WINDOWS, changed, **fit)
        resumed = Trainer.resume(tmp_path / "c")
        resumed.fit(WINDOWS, other, **fit)
        uninterrupted = make_trainer()
        uninterrupted.fit(WINDOWS, y, **fit)
        assert resumed.step == uninterrupted.step and resumed.history["loss"] == uninterrupted.history["loss"]


def test_one_number_on_disk_for_all_quantiles(tmp_path):
    y, fit = WINDOWS[:, 0, 0].copy(), {"epochs": 2, "batch_size": 32, "verbose": 0}
    trainers = [Trainer(Sequential([Flatten(), Dense(2)], (2, 6)), Pinball([0.1, 0.9]), Adam(0.01)) for _ in range(2)]
    for trainer, targets in zip(trainers, (y, mapped(tmp_path, y)), strict=True):
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(WINDOWS, targets, **fit, callbacks=[InterruptAfter(7)])
        trainer.fit(WINDOWS, y, **fit)
    assert trainers[0].history["loss"] == trainers[1].history["loss"]


def test_what_stays_on_disk(tmp_path):
    y, losses = mapped(tmp_path, WINDOWS), (Huber(2.0), BinaryCrossEntropy(), NativeLoss())
    network = Sequential([ReLU()], input_shape=(2, 6)).network
    moving = Sequential([RandomFlip()], input_shape=(1, 2, 6)).network
    assert [stays_on_disk(network, loss, y) for loss in losses] == [True, False, True]
    assert not stays_on_disk(network, losses[0], WINDOWS) and not stays_on_disk(moving, losses[0], y)
    assert not stays_on_disk(network, lambda scores, y: (scores, y), y)


def test_views_of_maps_are_maps(tmp_path):
    whole = mapped(tmp_path, WINDOWS)
    for view in (whole[3:], np.asarray(whole), np.lib.stride_tricks.sliding_window_view(whole, 3, axis=0)):
        assert is_memory_map(view)
    assert not is_memory_map(np.array(whole)) and not is_memory_map(np.frombuffer(b"12345678"))


def test_rows_are_read_as_they_are_needed():
    lazy = Lazy(WINDOWS)
    targets = TargetsOnDisk(lazy, 300, np.arange(300), lambda rows: rows)
    assert lazy.asked == {0} and targets.shape == WINDOWS.shape and len(targets.of(np.arange(5))) == 5
    np.testing.assert_array_equal(targets.of(np.arange(7, 3, -1))[1:3], WINDOWS[[6, 5]])
