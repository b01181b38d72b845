"""Data that can no longer be read in the middle of a fit: the trainer must stay usable, and what it learned savable."""

import pickle

import pytest
from interrupted_fits import FIT, X, Y, full_state, native_trainer

from minidl import Trainer

WHOLE = {"epochs": 4, "batch_size": 90, "verbose": 0}  # a step, and a read, in each epoch


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


class Failing:
    """A lazy array that raises from a call on, as a file on a disk that is gone."""

    def __init__(self, calls, array=X):
        self.array, self.shape, self.dtype, self.calls = array, array.shape, array.dtype, calls

    def __len__(self):
        return len(self.array)

    def __getitem__(self, rows):
        self.calls -= 1
        if self.calls < 0:
            raise OSError("the disk is gone")
        return self.array[rows]


class Save:
    def __init__(self, path):
        self.path = path

    def on_epoch_end(self, trainer, epoch, logs):
        trainer.save_checkpoint(self.path)


def assert_usable(trainer, path):
    trainer.save_checkpoint(path)
    Trainer.resume(path)
    assert pickle.loads(pickle.dumps(trainer)).step == trainer.step
    trainer.fit(X, Y, epochs=2, verbose=0)
    trainer.save_checkpoint(path)


@pytest.mark.parametrize("calls", [0, 1, 4, 5])
def test_data_that_fail_for_good_leave_a_usable_trainer(path, calls):
    trainer = native_trainer()
    with pytest.raises(OSError, match="the disk is gone") as raised:
        trainer.fit(Failing(calls), Y, **WHOLE)
    said = "cannot be completed" in "".join(getattr(raised.value, "__notes__", ()))
    assert said == (trainer.epoch < 4)  # else it failed after the last step
    assert (trainer.epoch == 4) == (calls == 5)
    assert trainer.interrupted is None
    assert_usable(trainer, path)


def test_validation_data_that_fail_for_good(path):
    trainer = native_trainer()
    with pytest.raises(OSError, match="the disk is gone"):
        trainer.fit(X, Y, epochs=3, validation_data=(Failing(1), Y), verbose=0)
    assert trainer.interrupted is None
    assert_usable(trainer, path)


def test_the_error_that_interrupted_the_fit_is_kept(path):
    trainer, data = native_trainer(), Failing(10**6)

    class Broken:
        def on_step_end(self, trainer, step, loss):
            data.calls = 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.fit(data, Y, callbacks=[Broken()], **FIT)
    assert trainer.interrupted is None
    assert_usable(trainer, path)


def test_a_fit_with_a_checkpoint_can_be_completed_after_its_data_failed(path):
    uninterrupted, trainer = native_trainer(), native_trainer()
    uninterrupted.fit(X, Y, **WHOLE)
    with pytest.raises(OSError, match="the disk is gone"):
        trainer.fit(Failing(3), Y, callbacks=[Save(path)], **WHOLE)
    assert trainer.interrupted.in_epoch
    trainer.fit(X, Y, **WHOLE)
    assert full_state(trainer) == full_state(uninterrupted)
