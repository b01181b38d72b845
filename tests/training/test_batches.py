"""fit on batches: the bits of fit on arrays, every kind of source, what is refused, and what a resume expects."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from batch_fits import (
    BATCHES,
    CUTS,
    RANDOM,
    WEIGHTED,
    WEIGHTS,
    Crash,
    Loader,
    Sequence,
    X,
    Y,
    assert_same,
    forever,
    interrupted,
    make_trainer,
    on_arrays,
)

from minidl import Layer, Sequential, Trainer
from minidl.callbacks import Checkpoint, EarlyStopping
from minidl.layers import Dense, Flatten
from minidl.optimizers import Adam
from minidl.saving import safetensors_file
from minidl.training.batch_feed import UNKNOWN, check_batches


class Scaled(Layer):
    """A layer in NumPy."""

    def forward(self, x, training):
        return 2 * x

    def backward(self, dy):
        return 2 * dy


@pytest.mark.parametrize(
    "source", [BATCHES, tuple(BATCHES), Loader(), Sequence()], ids=lambda source: type(source).__name__
)
def test_the_bits_of_arrays(source):
    trainer = make_trainer()
    trainer.fit(source, epochs=3, validation_data=(X, Y), verbose=0)
    assert_same(trainer, on_arrays(validation_data=(X, Y)))
    if isinstance(source, Sequence):
        assert source.ended == 3


def test_an_iterator():
    trainer = make_trainer()
    trainer.fit(forever(), epochs=3, steps_per_epoch=4, verbose=0)
    assert_same(trainer, on_arrays())
    once = make_trainer()
    once.fit(iter(BATCHES), verbose=0)
    assert_same(once, on_arrays(epochs=1))


@pytest.mark.oracle
def test_a_loader_of_pytorch():
    from torch import tensor
    from torch.utils.data import DataLoader, TensorDataset

    trainer = make_trainer()
    trainer.fit(DataLoader(TensorDataset(tensor(X), tensor(Y)), batch_size=16), epochs=3, verbose=0)
    assert_same(trainer, on_arrays())


def test_an_iterator_goes_on_where_it_stands():
    trainer, batches = make_trainer(), forever()
    trainer.fit(batches, steps_per_epoch=4, verbose=0)
    trainer.fit(batches, epochs=2, steps_per_epoch=4, verbose=0)
    assert_same(trainer, on_arrays())


def test_layers_in_numpy_and_an_unbuilt_model():
    trainer = make_trainer(Scaled(), input_shape=None)
    trainer.fit(BATCHES, epochs=3, verbose=0)
    assert_same(trainer, on_arrays(Scaled()))


def test_weights():
    trainer = make_trainer()
    trainer.fit(WEIGHTED, epochs=3, verbose=0)
    assert_same(trainer, on_arrays(weights=WEIGHTS, normalize_weights=False))
    zeros = np.concatenate([WEIGHTS, np.zeros(9)])
    rows = np.concatenate([X, X[:9]])[order := RANDOM.permutation(59)]
    labels, weights = np.concatenate([Y, Y[:9]])[order], zeros[order]
    active = np.flatnonzero(weights)
    ends = [0, *(active[16 * k] for k in (1, 2, 3)), 59]
    trainer, arrays = make_trainer(), make_trainer()
    cut = [(rows[a:b], labels[a:b], weights[a:b]) for a, b in pairwise(ends)]
    trainer.fit(cut, epochs=2, verbose=0)
    as_they_are = {"sample_weight": weights, "normalize_weights": False}
    arrays.fit(rows, labels, 2, batch_size=16, shuffle=False, verbose=0, **as_they_are)
    assert_same(trainer, arrays)


def test_batches_with_and_without_weights():
    trainer = make_trainer()
    history = trainer.fit([BATCHES[0], WEIGHTED[1]], verbose=0)
    assert math.isfinite(history["loss"][0])


def test_callbacks_and_progress(capsys):
    class Steps:
        every_n_steps = 2
        seen = ()

        def on_step_end(self, trainer, step, loss):
            self.seen += ((step, loss),)

    class Stop:
        def on_step_end(self, trainer, step, loss):
            trainer.should_stop = step == 5

    one, other = Steps(), Steps()
    trainer = make_trainer()
    options = {"epochs": 5, "validation_data": (X, Y)}
    trainer.fit(BATCHES, callbacks=[one, EarlyStopping(patience=9), Stop()], verbose=1, **options)
    assert_same(trainer, on_arrays(callbacks=[other, EarlyStopping(patience=9), Stop()], **options))
    assert one.seen == other.seen
    assert [step for step, _ in one.seen] == [1, 3, 5]
    assert capsys.readouterr().out.count("epoch ") == 2
    for source in (forever(), iter(BATCHES)):
        make_trainer().fit(source, steps_per_epoch=4, verbose=2)


# ---- refusals


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (BATCHES, {"validation_split": 0.1}, "validation_split: expected it to be left out with batches, got 0.1"),
        (BATCHES, {"class_weight": "balanced"}, "class_weight: expected it to be left out"),
        (BATCHES, {"sample_weight": WEIGHTS}, "sample_weight: expected it to be left out"),
        (BATCHES, {"batch_size": 16}, "batch_size: expected it to be left out with batches, got 16"),
        (BATCHES, {"gradient_accumulation_steps": 2}, "gradient_accumulation_steps: expected it to be left out"),
        (BATCHES, {"steps_per_epoch": 0}, "steps_per_epoch: expected at least 1"),
        (iter(BATCHES), {"steps_per_epoch": 9}, "steps_per_epoch: expected 9 batches in each epoch, got an end aft"),
        (BATCHES, {"epochs": -1}, "epochs: expected at least 0"),
        (BATCHES, {"validation_data": X}, "validation_data: expected"),
        (iter(BATCHES), {"epochs": 2}, "steps_per_epoch: expected a number for 2 epochs, as an iterator is read once"),
        ([], {}, "X: expected at least one batch, got none"),
        (iter([]), {}, "X: expected at least one batch, got none"),
        ([X, Y], {}, "batch 0: expected .* got ndarray"),
        ([(X,)], {}, r"batch 0: expected \(X, y\) or \(X, y, sample_weight\), got a tuple of 1"),
        ([(X, Y[:3])], {}, "batch 0: y: expected 50 targets"),
        ([(X[:0], Y[:0])], {}, "batch 0: expected at least one example, got none"),
        ([(X[:1], Y[:1])], {}, "layer 1, BatchNorm1D: .*"),
        ([BATCHES[0], (X[:, :4], Y)], {}, r"batch 1 of epoch 0: X: expected shape \(n, 5\)"),
        ([BATCHES[0], (X[:0], Y[:0])], {}, "batch 1 of epoch 0: expected at least one example"),
        ([BATCHES[0], None], {}, "X: expected batches .* got None"),
    ],
)
def test_refusals(source, options, message):
    trainer = make_trainer()
    with pytest.raises((TypeError, ValueError), match=message):
        trainer.fit(source, verbose=0, **options)
    assert trainer.step or trainer.interrupted is None


def whole_epoch(y, scores):
    """A metric that does not count."""
    return float(len(y))


ONE_HOT = [(X[cut], np.eye(3)[Y[cut]]) for cut in CUTS]
KINDS = "batch 1 of epoch 0: y: expected {}, as in the batches before, got {}: metrics take"


@pytest.mark.parametrize(
    ("source", "expected", "got"),
    [
        ([BATCHES[0], ONE_HOT[1]], "int64 (n,)", "float32 (n, 3)"),
        ([ONE_HOT[0], BATCHES[1]], "float32 (n, 3)", "int64 (n,)"),
    ],
    ids=["labels first", "numbers first"],
)
def test_labels_and_probabilities_in_one_epoch(source, expected, got, tmp_path):
    """A metric that counts takes both; one that gets all targets of an epoch does not."""
    trainer = make_trainer(metrics=[whole_epoch])
    with pytest.raises(ValueError, match=re.escape(KINDS.format(expected, got))):
        trainer.fit(source, verbose=0)
    assert trainer.step == trainer.interrupted.step == 1
    trainer.save_checkpoint(tmp_path / "c")
    resumed = Trainer.resume(tmp_path / "c", custom_objects={"whole_epoch": whole_epoch})
    with pytest.raises(ValueError, match=re.escape(KINDS.format(expected, got))):
        resumed.fit(source, verbose=0)
    assert resumed.step == 1
    trainer.fit(X, Y, verbose=0)
    trainer.fit(ONE_HOT, epochs=2, verbose=0)
    for metrics in ((), ["accuracy"]):
        other = make_trainer(metrics=metrics)
        other.fit(source, verbose=0)
        assert other.step == 2


def test_arrays_are_no_batches():
    with pytest.raises(TypeError, match="y: expected an array, got None"):
        make_trainer().fit(X)
    with pytest.raises(ValueError, match="steps_per_epoch: expected None with arrays, got 3; use batch_size="):
        make_trainer().fit(X, Y, steps_per_epoch=3)
    for batches in (iter(BATCHES), BATCHES, tuple(BATCHES), [list(batch) for batch in WEIGHTED], Loader()):
        for options in ({}, {"steps_per_epoch": 4}):
            with pytest.raises(TypeError, match=r"with y, got a .*: for batches \(X, y\), leave out y$"):
                make_trainer().fit(batches, Y, **options)
    rows = [[X[i], X[i]] for i in range(50)]  # numbers, of shape (50, 2, 5)
    Trainer(Sequential([Flatten(), Dense(3)], (2, 5)), "softmax_cross_entropy", Adam(0.01)).fit(rows, Y, verbose=0)
    for nothing in (None, 3, "batches", {}):
        with pytest.raises((TypeError, ValueError), match="X: expected"):
            make_trainer().fit(nothing)


def test_an_iterator_that_ends_too_early():
    trainer = make_trainer()
    with pytest.raises(ValueError, match="expected 3 batches in each epoch, got an end after 1"):
        trainer.fit(iter(BATCHES), epochs=2, steps_per_epoch=3, verbose=0)
    assert trainer.step == 4
    assert trainer.epoch == 1


def test_an_iterable_that_is_empty_the_second_time():
    class Once:
        batches = tuple(BATCHES)

        def __iter__(self):
            batches, self.batches = self.batches, ()
            return iter(batches)

    with pytest.raises(ValueError, match="X: expected at least one batch in each epoch, got none"):
        make_trainer().fit(Once(), epochs=2, verbose=0)


def test_errors_of_the_source_come_through():
    def broken():
        yield BATCHES[0]
        raise OSError("no such file")

    trainer = make_trainer()
    with pytest.raises(OSError, match="no such file"):
        trainer.fit(broken(), verbose=0)
    assert trainer.step == 1


# ---- interrupted fits


@pytest.mark.parametrize("step", [1, 3, 4, 6, 7, 8, 9])
@pytest.mark.parametrize("batches", [BATCHES, WEIGHTED], ids=["plain", "weighted"])
def test_a_resumed_fit_ends_as_an_uninterrupted_one(step, batches, tmp_path):
    whole = make_trainer()
    whole.fit(batches, epochs=3, validation_data=(X, Y), verbose=0)
    options = {"epochs": 3, "validation_data": (X, Y)}
    in_process = interrupted(step, batches, tmp_path / "c", **options)
    resumed = Trainer.resume(tmp_path / "c", num_threads=1)
    for trainer in (in_process, resumed):
        trainer.fit(batches, verbose=0, **options)
        assert_same(trainer, whole)


def test_a_file_without_a_position_is_completed(tmp_path):
    """As they were written while each epoch began at the first batch."""
    whole = make_trainer()
    whole.fit(BATCHES, epochs=3, verbose=0)
    interrupted(6, BATCHES, tmp_path / "c", epochs=3)
    config, tensors, _ = safetensors_file.read(tmp_path / "c", "checkpoint")
    fit = config["fit"]["dict"]
    place = next(i for i, (name, _) in enumerate(fit) if name == "batches")
    fit[place][1]["dict"] = [pair for pair in fit[place][1]["dict"] if pair[0] != "position"]
    safetensors_file.write(tmp_path / "c", "checkpoint", config, tensors)
    resumed = Trainer.resume(tmp_path / "c")
    resumed.fit(BATCHES, epochs=3, verbose=0)
    assert_same(resumed, whole)


def test_a_fit_may_be_interrupted_twice_in_an_epoch(tmp_path):
    whole, path = make_trainer(), tmp_path / "c"
    whole.fit(BATCHES, epochs=3, verbose=0)
    interrupted(5, BATCHES, path, epochs=3)
    with pytest.raises(KeyboardInterrupt):
        Trainer.resume(path).fit(BATCHES, epochs=3, callbacks=[Checkpoint(path, every_n_steps=1), Crash(7)], verbose=0)
    resumed = Trainer.resume(path)
    resumed.fit(BATCHES, epochs=3, verbose=0)
    assert_same(resumed, whole)


def test_other_batches_are_refused(tmp_path):
    interrupted(6, BATCHES, tmp_path / "c", epochs=3)
    for source, options, message in (
        (
            BATCHES[::-1],
            {},
            "expected the same 2 batches, as in the fit that was interrupted, got others. Call fit",
        ),
        (BATCHES[:1], {}, "X: expected the same 2 batches"),
        (WEIGHTED, {}, "X: expected the same 2 batches"),
        (iter(BATCHES), {"steps_per_epoch": 4}, "batches: expected 'an iterable', as in the fit that was interrupted"),
        (BATCHES, {"steps_per_epoch": 4}, "steps_per_epoch: expected None, as in the fit"),
        (BATCHES, {"validation_data": (X, Y)}, "validation_data: expected none"),
    ):
        trainer = Trainer.resume(tmp_path / "c")
        with pytest.raises(ValueError, match=message):
            trainer.fit(source, epochs=3, verbose=0, **options)
        assert trainer.step == 6
    with pytest.raises(ValueError, match="batches: expected 'an iterable', as in the fit that was"):
        Trainer.resume(tmp_path / "c").fit(X, Y, epochs=3, verbose=0)


def test_an_iterators_fit_cannot_be_completed(tmp_path, capsys):
    interrupted(6, forever(), tmp_path / "c", epochs=3, steps_per_epoch=4)
    trainer = Trainer.resume(tmp_path / "c")
    with pytest.raises(ValueError, match="got an iterator: its batches cannot be read again"):
        trainer.fit(forever(), epochs=3, steps_per_epoch=4, verbose=0)
    trainer.interrupted = None
    trainer.fit(forever(), epochs=1, steps_per_epoch=4, verbose=0)
    assert (trainer.step, trainer.epoch) == (10, 2)

    in_process = interrupted(6, source := forever(), tmp_path / "d", epochs=3, steps_per_epoch=4)
    in_process.fit(source, steps_per_epoch=4, verbose=1)
    assert "discards the fit that was interrupted at step 6" in capsys.readouterr().out


def test_a_loader_that_shuffles_begins_another_fit(capsys, tmp_path):
    class Shuffled:
        random = np.random.default_rng(3)

        def __iter__(self):
            return iter([BATCHES[i] for i in self.random.permutation(4)])

    trainer, source = make_trainer(), Shuffled()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(source, epochs=2, callbacks=[Checkpoint(tmp_path / "c", every_n_steps=1), Crash(3)], verbose=0)
    trainer.fit(source, epochs=2, verbose=1)
    assert "discards the fit" in capsys.readouterr().out
    assert trainer.step == 11


def test_without_metrics_no_targets_are_kept(tmp_path):
    trainer = make_trainer(metrics=())
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(BATCHES, epochs=2, callbacks=[Checkpoint(tmp_path / "c", 1), Crash(3)], verbose=0)
    assert trainer.interrupted.batches["targets"] is None
    Trainer.resume(tmp_path / "c").fit(BATCHES, epochs=2, verbose=0)


@pytest.mark.parametrize(
    "change",
    [
        {"count": -1},
        {"position": -1},
        {"digest": 3},
        {"opening": 3},
        {"varies": 0},
        {"weights": np.ones(31)},
        {"weights": np.full(32, -1.0)},
        {"weights": np.ones(32, "float32")},
        {"targets": np.zeros(31, int)},
        {"targets": None},
        {"more": 1},
    ],
    ids=str,
)
def test_a_state_of_batches_is_checked(change):
    state = {"count": 2, "position": 2, "digest": "a", "weights": np.ones(32), "targets": np.zeros(32, int)} | UNKNOWN
    check_batches(state, 32, True)
    with pytest.raises(ValueError, match="expected"):
        check_batches(state | change, 32, True)
    with pytest.raises(ValueError, match="expected the state of its batches"):
        check_batches(None, 32, True)
