"""Sources of batches: where an epoch begins, what a checkpoint keeps of it; sources without a length; their ends."""

import contextlib

import numpy as np
import pytest
from batch_fits import (
    BATCHES,
    Endless,
    Items,
    Loader,
    NoLength,
    Sequence,
    Unsized,
    X,
    Y,
    assert_same,
    forever,
    interrupted,
    make_trainer,
    on_arrays,
)

from minidl import Trainer

KINDS_OF_SOURCES = ("list", "Loader", "Unsized", "Sequence", "Endless")


@pytest.mark.parametrize("steps", [1, 3, 4, 6, 9])
@pytest.mark.parametrize("make", [lambda: BATCHES, Loader, Unsized, Sequence, Endless], ids=KINDS_OF_SOURCES)
def test_an_epoch_goes_on_where_the_last_one_ended(make, steps):
    trainer, endless = make_trainer(), make_trainer()
    trainer.fit(make(), epochs=3, steps_per_epoch=steps, verbose=0)
    endless.fit(forever(), epochs=3, steps_per_epoch=steps, verbose=0)
    assert_same(trainer, endless)


@pytest.mark.parametrize("make", [Unsized, NoLength, Items], ids=lambda make: make.__name__)
def test_batches_without_a_length(make):
    trainer = make_trainer()
    trainer.fit(make(), epochs=3, verbose=2)
    assert_same(trainer, on_arrays())


@pytest.mark.oracle
def test_an_iterable_dataset_of_pytorch():
    from torch import tensor
    from torch.utils.data import DataLoader, IterableDataset

    class Rows(IterableDataset):
        def __iter__(self):
            return iter(zip(tensor(X), tensor(Y), strict=True))

    loader = DataLoader(Rows(), batch_size=16)
    with pytest.raises(TypeError):
        len(loader)
    trainer, parts = make_trainer(), make_trainer()
    trainer.fit(loader, epochs=3, verbose=0)
    assert_same(trainer, on_arrays())
    parts.fit(loader, epochs=2, steps_per_epoch=3, verbose=0)
    endless = make_trainer()
    endless.fit(forever(), epochs=2, steps_per_epoch=3, verbose=0)
    assert_same(parts, endless)


@pytest.mark.parametrize(
    ("steps", "ended"), [(None, [0, 1, 2]), (4, [0, 1, 2]), (2, [1]), (3, [1, 2]), (8, [0, 0, 1, 1, 2, 2])], ids=str
)
def test_on_epoch_end_is_called_when_a_source_has_been_read_to_its_end(steps, ended):
    trainer = make_trainer()

    class Source(Sequence):
        calls = ()

        def on_epoch_end(self):
            self.calls += (trainer.epoch,)

    source = Source()
    trainer.fit(source, epochs=3, steps_per_epoch=steps, verbose=0)
    assert list(source.calls) == ended


def test_a_length_that_is_too_small_loses_no_batch():
    class Wrong(Loader):
        def __len__(self):
            return 2

    trainer, endless = make_trainer(), make_trainer()
    trainer.fit(Wrong(), epochs=3, steps_per_epoch=2, verbose=0)
    endless.fit(forever(), epochs=3, steps_per_epoch=2, verbose=0)
    assert_same(trainer, endless)


def test_a_sequence_that_ends_before_its_length():
    class Short(Sequence):
        def __len__(self):
            return 6

    trainer = make_trainer()
    message = r"X: expected 6 batches, as its len\(\) says, got IndexError at 4: list index out of range"
    with pytest.raises(ValueError, match=message):
        trainer.fit(Short(), verbose=0)
    assert trainer.step == 4


def test_an_iterable_that_gives_nothing_the_second_time():
    class Once:
        def __init__(self):
            self.batches = list(BATCHES)

        def __iter__(self):
            while self.batches:
                yield self.batches.pop(0)

    trainer, steps = make_trainer(), len(BATCHES) + 2
    with pytest.raises(ValueError, match=f"steps_per_epoch: expected {steps} batches.*got an end after {len(BATCHES)}"):
        trainer.fit(Once(), epochs=2, steps_per_epoch=steps, verbose=0)
    assert trainer.step == len(BATCHES)


@pytest.mark.parametrize("step", [1, 3, 4, 5, 6, 8, 9, 10])
@pytest.mark.parametrize("kind", [Loader, Unsized])
def test_a_checkpoint_keeps_the_position_in_the_source(kind, step, tmp_path):
    """Three batches of four in each epoch."""
    whole, options = make_trainer(), {"epochs": 4, "steps_per_epoch": 3, "validation_data": (X, Y)}
    whole.fit(kind(), verbose=0, **options)
    in_process = interrupted(step, kind(), tmp_path / "c", **options)
    for trainer in (in_process, Trainer.resume(tmp_path / "c", num_threads=1)):
        trainer.fit(kind(), verbose=0, **options)
        assert_same(trainer, whole)


class Begins:
    """Saves, or stops as by Ctrl-C, when an epoch begins."""

    def __init__(self, epoch, path, stops):
        self.epoch, self.path, self.stops = epoch, path, stops

    def on_epoch_begin(self, trainer, epoch):
        if epoch == self.epoch:
            trainer.save_checkpoint(self.path)
            if self.stops:
                raise KeyboardInterrupt


@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("steps_per_epoch", [None, 3, 4, 5])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_an_epoch_that_has_begun_without_a_step_is_completed(epoch, steps_per_epoch, stops, tmp_path):
    whole, trainer = make_trainer(), make_trainer()
    options = {"epochs": 3, "steps_per_epoch": steps_per_epoch, "verbose": 0}
    whole.fit(BATCHES, **options)
    with contextlib.suppress(KeyboardInterrupt):
        trainer.fit(BATCHES, **options, callbacks=[Begins(epoch, tmp_path / "c", stops)])
    for one in ([trainer] if stops else []) + [Trainer.resume(tmp_path / "c")]:
        one.fit(BATCHES, **options)
        assert_same(one, whole)


@pytest.mark.parametrize("passed", [1, 2])
def test_a_source_that_fails_when_it_begins_again(passed, tmp_path):
    class Broken(Loader):
        begun = 0

        def __iter__(self):
            self.begun += 1
            if self.begun == passed + 1:
                raise OSError("the disk is away")
            return super().__iter__()

    whole, trainer, source = make_trainer(), make_trainer(), Broken()
    whole.fit(BATCHES, epochs=3, verbose=0)
    with pytest.raises(OSError, match="away"):
        trainer.fit(source, epochs=3, verbose=0)
    trainer.save_checkpoint(tmp_path / "c")
    for one in (trainer, Trainer.resume(tmp_path / "c")):
        one.fit(source, epochs=3, verbose=0)
        assert_same(one, whole)


@pytest.mark.parametrize("step", [5, 6])
def test_other_batches_before_the_position_are_refused(step, tmp_path):
    interrupted(step, BATCHES[::-1] + BATCHES, tmp_path / "c", epochs=4, steps_per_epoch=3)
    for other in (BATCHES * 2, BATCHES[:1]):
        trainer = Trainer.resume(tmp_path / "c")
        with pytest.raises(ValueError, match=f"X: expected the same {step} batches, as in the fit that was inter"):
            trainer.fit(other, epochs=4, steps_per_epoch=3, verbose=0)


def test_epochs_of_one_source_may_have_other_kinds_of_targets(tmp_path):
    source = [(x, np.eye(3)[y]) if k >= 2 else (x, y) for k, (x, y) in enumerate(BATCHES)]
    trainer = interrupted(3, source, tmp_path / "c", epochs=2, steps_per_epoch=2)
    trainer.fit(source, epochs=2, steps_per_epoch=2, verbose=0)
    assert trainer.step == 4


class Late:
    """Is refused after the first batch was read."""

    def on_fit_begin(self, trainer):
        raise ValueError("late")


@pytest.mark.parametrize("input_shape", [(5,), None])
@pytest.mark.parametrize(
    "wrong", [{"callbacks": [Late()]}, {"validation_data": (X, Y[:3])}, {"validation_data": (X[:0], Y[:0])}]
)
def test_a_refused_fit_takes_no_batch_of_an_iterator(wrong, input_shape):
    trainer, whole, source = make_trainer(input_shape=input_shape), make_trainer(input_shape=input_shape), iter(BATCHES)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"late|validation_data"):
            trainer.fit(source, verbose=0, **wrong)
    trainer.fit(source, verbose=0)
    whole.fit(iter(BATCHES), verbose=0)
    assert_same(trainer, whole)
    assert trainer.refused_feed is None


def test_another_iterator_has_nothing_of_the_refused_one():
    trainer, whole = make_trainer(), make_trainer()
    with pytest.raises(ValueError, match="late"):
        trainer.fit(iter(BATCHES[::-1]), verbose=0, callbacks=[Late()])
    trainer.fit(iter(BATCHES), verbose=0)
    whole.fit(iter(BATCHES), verbose=0)
    assert_same(trainer, whole)


def test_a_refused_first_batch_is_not_lost():
    trainer, whole, source = make_trainer(), make_trainer(), iter(BATCHES)
    trainer.loss = whole.loss = "mean_squared_error"
    with pytest.raises(ValueError, match="batch 0: y: expected"):
        trainer.fit(source, verbose=0)
    trainer.loss = whole.loss = "softmax_cross_entropy"
    trainer.fit(source, verbose=0)
    whole.fit(iter(BATCHES), verbose=0)
    assert_same(trainer, whole)


def test_no_epochs_take_no_batch_of_an_iterator():
    trainer, whole, source = make_trainer(), make_trainer(), iter(BATCHES)
    trainer.fit(source, epochs=0, verbose=0)
    trainer.fit(source, verbose=0)
    whole.fit(iter(BATCHES), verbose=0)
    assert_same(trainer, whole)
