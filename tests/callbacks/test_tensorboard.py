"""TensorBoard: what is written, with a recording writer and, if installed, with tensorboardX."""

import json
import os
import struct
import sys
from types import SimpleNamespace

import pytest
from interrupted_fits import FIT, X, Y, full_state, interrupt_fit, native_trainer

from minidl import Trainer
from minidl.callbacks import Checkpoint, CSVLogger, TensorBoard


@pytest.fixture
def writers(monkeypatch):
    """The writers that were made, each as a list of its calls."""
    made = []

    class SummaryWriter(list):
        def __init__(self, folder, purge_step, flush_secs, filename_suffix):
            super().__init__()
            self.folder, self.purge_step, self.closed = folder, purge_step, False
            made.append(self)

        def add_scalar(self, name, value, step):
            assert not self.closed
            self.append((name, value, step))

        def close(self):
            self.closed = True

    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=SummaryWriter))
    return made


def test_values_of_each_epoch(writers, tmp_path):
    trainer = native_trainer()
    trainer.fit(X, Y, **FIT, validation_split=0.3, callbacks=[TensorBoard(tmp_path / "a" / "b")])
    (writer,) = writers
    names = [name for name in trainer.history if name != "epoch"]
    expected = [(f"epoch/{name}", trainer.history[name][e], 9 * (e + 1)) for e in range(4) for name in names]
    assert list(writer) == expected and writer.closed
    assert (writer.folder, writer.purge_step) == (str(tmp_path / "a" / "b"), 1)
    assert os.path.isdir(writer.folder)


def test_losses_of_steps(writers, tmp_path):
    class LossRecorder(list):
        def on_step_end(self, trainer, step, loss):
            self.append(loss)

    losses = LossRecorder()
    native_trainer().fit(X, Y, **FIT, callbacks=[TensorBoard(tmp_path, every_n_steps=5), losses])
    result = [(value, step) for name, value, step in writers[0] if name == "step/loss"]
    assert result == [(losses[step - 1], step) for step in range(5, 53, 5)]


def test_a_resume_hides_repeated_steps(writers, tmp_path):
    interrupt_fit(
        native_trainer(), 30, callbacks=[TensorBoard(tmp_path, 1), Checkpoint(tmp_path / "c", every_n_steps=7)]
    )
    trainer = Trainer.resume(tmp_path / "c")
    trainer.fit(X, Y, **FIT, callbacks=[TensorBoard(tmp_path, 1)])
    first, second = writers
    shown = [point for point in first if point[2] < second.purge_step] + list(second)
    uninterrupted = native_trainer()
    uninterrupted.fit(X, Y, **FIT, callbacks=[TensorBoard(tmp_path, 1)])
    timeless = [[point for point in each if "_per_" not in point[0]] for each in (shown, writers[2])]
    assert timeless[0] == timeless[1]
    assert second.purge_step == 29
    assert full_state(trainer) == full_state(uninterrupted)


def test_the_folder_of_another_run_is_refused(writers, tmp_path):
    folder = tmp_path / "run"
    (one := native_trainer()).fit(X, Y, **FIT, callbacks=[TensorBoard(folder)])
    assert json.loads((folder / "run.json").read_text())["run_id"] == one.run_id
    (folder / "events.out.tfevents.1").touch()  # as tensorboardX does
    another = native_trainer()
    another.train_batch(X[:7], Y[:7])  # steps alone make no folder its own
    for _ in range(2):
        with pytest.raises(ValueError, match=r"folder: expected a new one or that of this run, got '.*run', the"):
            another.fit(X, Y, **FIT, callbacks=[TensorBoard(folder)])
        assert another.epoch == 0 and len(writers) == 1
        if another.step:
            another = native_trainer()
            (folder / "run.json").unlink()  # as in earlier versions, and in folders of other programs
    with pytest.raises(ValueError, match=r"the log of another run; .*overwrite=True"):
        one.fit(X, Y, **FIT, callbacks=[TensorBoard(folder)])  # it is not known whose points they are
    one.fit(X, Y, **FIT, callbacks=[TensorBoard(folder, overwrite=True)])
    one.fit(X, Y, **FIT, callbacks=[TensorBoard(folder)])
    another.fit(X, Y, **FIT, callbacks=[TensorBoard(folder, overwrite=True)])
    assert json.loads((folder / "run.json").read_text())["run_id"] == another.run_id
    assert len(writers) == 4
    with pytest.raises(TypeError, match="overwrite: expected True or False, got 1"):
        TensorBoard(folder, overwrite=1)


def test_each_run_has_a_numbered_folder(writers, tmp_path):
    boards = [TensorBoard(tmp_path / "new" / "{run}") for _ in range(2)]
    trainers = [native_trainer() for _ in boards]
    for board, trainer in zip(boards, trainers, strict=True):
        trainer.fit(X, Y, **FIT, callbacks=[board, CSVLogger(tmp_path / "new" / "{run}" / "log.csv")])
    folders = [str(tmp_path / "new" / str(number)) for number in range(2)]
    assert [board.run_folder for board in boards] == [writer.folder for writer in writers] == folders
    assert sorted(os.listdir(folders[1])) == ["log.csv", "log.csv.json", "run.json"]
    trainers[1].save_checkpoint(tmp_path / "c")
    Trainer.resume(tmp_path / "c").fit(X, Y, **FIT | {"epochs": 1}, callbacks=[board := TensorBoard(boards[0].folder)])
    assert board.run_folder == folders[1]


def test_a_number_is_free_if_its_folder_has_no_events(writers, tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "events.out.tfevents.1").touch()  # of another program
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "notes.txt").touch()
    board = TensorBoard(tmp_path / "{run}")
    native_trainer().fit(X, Y, **FIT, callbacks=[board])
    assert board.run_folder == str(tmp_path / "1") == writers[0].folder
    assert os.listdir(tmp_path / "0") == ["events.out.tfevents.1"]


def test_in_one_process_the_file_of_an_interrupted_fit_is_closed(writers, tmp_path):
    board = TensorBoard(tmp_path)
    trainer = interrupt_fit(native_trainer(), 30, callbacks=[board])
    assert not writers[0].closed
    trainer.fit(X, Y, **FIT, callbacks=[board])
    assert [writer.closed for writer in writers] == [True, True] and writers[1].purge_step == 32


def test_sigterm_closes_the_file(writers, tmp_path):
    board, trainer = TensorBoard(tmp_path, 1), native_trainer()
    interrupt_fit(trainer, 3, callbacks=[board])
    board.on_terminate(trainer)
    assert writers[0].closed


def test_a_refused_fit_writes_nothing(writers, tmp_path):
    with pytest.raises(OSError, match="expected an existing folder"):
        native_trainer().fit(X, Y, **FIT, callbacks=[TensorBoard(tmp_path), Checkpoint(tmp_path / "missing" / "a")])
    assert writers == []


def test_invalid_arguments(writers, tmp_path):
    for wrong in (0, 1.5):
        with pytest.raises((TypeError, ValueError), match="every_n_steps: expected"):
            TensorBoard(tmp_path, wrong)
    with pytest.raises(TypeError, match="folder: expected a str"):
        TensorBoard(3)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        native_trainer().fit(X, Y, **FIT, callbacks=[TensorBoard(tmp_path / "file")])
    assert repr(TensorBoard("runs")) == "TensorBoard('runs')"


def test_without_tensorboardx_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r'needs tensorboardX: pip install "minidl\[tensorboard\]"'):
        TensorBoard("runs")


# ---- with tensorboardX
def events(folder):
    """Returns the events of all files in order; a record is its length, 4 bytes, the event, 4 bytes."""
    from tensorboardX.proto.event_pb2 import Event

    result = []
    for file in sorted(folder.glob("*tfevents*")):
        content = file.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            result.append(Event.FromString(content[12 : 12 + size]))
            content = content[16 + size :]
    return result


def test_files_written_by_tensorboardx(tmp_path):
    pytest.importorskip("tensorboardX")
    folder, trainer = tmp_path / "runs", native_trainer()
    trainer.fit(X, Y, **FIT, callbacks=[TensorBoard(folder, every_n_steps=20)])
    result = [(value.tag, event.step, value.simple_value) for event in events(folder) for value in event.summary.value]
    losses = [(step, value) for tag, step, value in result if tag == "epoch/loss"]
    assert losses == [(13 * (i + 1), pytest.approx(loss)) for i, loss in enumerate(trainer.history["loss"])]
    assert [step for tag, step, _ in result if tag == "step/loss"] == [20, 40]
    assert {tag for tag, _, _ in result} >= {"epoch/accuracy", "epoch/lr", "epoch/images_per_second"}
    trainer.fit(X, Y, **FIT, callbacks=[TensorBoard(folder)])
    assert [event.step for event in events(folder) if event.HasField("session_log")] == [1, 53]
