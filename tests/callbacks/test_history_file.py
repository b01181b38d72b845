"""What CSVLogger and JSONLLogger share: their files always equal the history."""

import csv
import io
import json
import os

import numpy as np
import pytest
from interrupted_fits import FIT, X, Y, interrupt_and_complete, interrupt_fit, native_trainer

from minidl import Trainer
from minidl.callbacks import Checkpoint, CSVLogger, JSONLLogger
from minidl.saving import atomic

LOGGERS = {"csv": CSVLogger, "jsonl": JSONLLogger}


@pytest.fixture(params=LOGGERS)
def kind(request):
    return request.param


@pytest.fixture
def path(tmp_path, kind):
    return tmp_path / f"log.{kind}"


def expected_content(trainer, kind):
    """Returns the file content that equals the history."""
    rows, text = list(zip(*trainer.history.values(), strict=True)), io.StringIO()
    if kind == "csv":
        csv.writer(text, lineterminator="\n").writerows([list(trainer.history), *rows])
        return text.getvalue()
    return "".join(json.dumps(dict(zip(trainer.history, row, strict=True))) + "\n" for row in rows)


def make_logger(path, kind, **options):
    return LOGGERS[kind](path, **options)


class FileReader:
    """Reads the file after each epoch."""

    def __init__(self, path, kind):
        self.path, self.kind, self.read = path, kind, 0

    def on_epoch_end(self, trainer, epoch, logs):
        assert self.path.read_text() == expected_content(trainer, self.kind)
        self.read += 1


def test_a_complete_line_is_written_after_each_epoch(path, kind):
    trainer, reads = native_trainer(), FileReader(path, kind)
    trainer.fit(X, Y, **FIT, callbacks=[make_logger(path, kind), reads])
    assert reads.read == 4
    assert len(path.read_text().splitlines()) == 4 + (kind == "csv")
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.json"]


def test_an_epoch_is_appended_without_rewriting_the_file(path, kind, monkeypatch):
    written, write = [], atomic.write
    monkeypatch.setattr(atomic, "write", lambda path, parts: (written.append(path), write(path, parts)))
    native_trainer().fit(X, Y, **FIT, callbacks=[make_logger(path, kind)])
    assert written == [str(path)]


@pytest.mark.parametrize("step", [0, 5, 12, 13, 14, 25, 26, 40, 50])
def test_killed_and_resumed_from_an_older_checkpoint_no_epoch_is_duplicated_or_missing(path, kind, step):
    def callbacks():
        return [make_logger(path, kind, overwrite=True), FileReader(path, kind)]

    native_trainer().fit(X, Y, **FIT, callbacks=callbacks())  # this run completed, yet its checkpoint is older
    trainer, _ = interrupt_and_complete(native_trainer, step, callbacks, path.parent / "c")
    assert path.read_text() == expected_content(trainer, kind)
    assert trainer.history["epoch"] == [0, 1, 2, 3]


def test_lines_missing_in_the_file_are_restored(path, kind):
    """A checkpoint may contain an epoch that the file does not: it was saved before the logger ran."""
    interrupt_fit(
        native_trainer(), 30, callbacks=[Checkpoint(path.parent / "c", every_n_steps=31), make_logger(path, kind)]
    )
    os.unlink(path)
    trainer = Trainer.resume(path.parent / "c")
    trainer.fit(X, Y, **FIT, callbacks=[make_logger(path, kind)])
    assert path.read_text() == expected_content(trainer, kind)


@pytest.mark.parametrize("damage", ["half a line", "gone", "more"])
def test_a_file_modified_in_between_is_rewritten(path, kind, damage):
    class FileChanger:
        def on_epoch_begin(self, trainer, epoch):
            if epoch == 2 and damage == "gone":
                os.unlink(path)
            elif epoch == 2:
                content = path.read_bytes()
                path.write_bytes(content[:-5] if damage == "half a line" else content + b"x\n")

    trainer = native_trainer()
    trainer.fit(X, Y, **FIT, callbacks=[make_logger(path, kind), FileChanger()])
    assert path.read_text() == expected_content(trainer, kind)


def test_a_completed_fit_still_writes_the_file(path, kind):
    native_trainer().fit(X, Y, **FIT, callbacks=[Checkpoint(path.parent / "c")])
    trainer = Trainer.resume(path.parent / "c")
    trainer.fit(X, Y, **FIT, callbacks=[make_logger(path, kind)])
    assert path.read_text() == expected_content(trainer, kind)


def test_several_fits_of_a_trainer_and_another_trainer(path, kind):
    trainer = native_trainer()
    trainer.fit(X, Y, **FIT)  # without a logger
    trainer.fit(X, Y, **FIT, callbacks=[make_logger(path, kind)])
    logger = make_logger(path, kind)
    trainer.fit(X, Y, **FIT, callbacks=[logger])
    assert path.read_text() == expected_content(trainer, kind)
    other, logger = native_trainer(), make_logger(path, kind, overwrite=True)
    other.fit(X, Y, **FIT, callbacks=[logger])  # a run that starts from scratch
    assert path.read_text() == expected_content(other, kind)
    one, two = native_trainer(), native_trainer()
    two.fit(X, Y, **FIT | {"epochs": 1})
    for each in (one, two):  # one epoch more than the file, but from another trainer
        each.fit(X, Y, **FIT | {"epochs": 1}, callbacks=[logger])
        assert path.read_text() == expected_content(each, kind)


def test_an_exception_in_another_callback_leaves_a_complete_file(path, kind):
    class FailingCallback:
        def on_epoch_end(self, trainer, epoch, logs):
            if epoch == 1:
                raise KeyError("x")

    trainer, logger = native_trainer(), make_logger(path, kind)
    with pytest.raises(KeyError):
        trainer.fit(X, Y, **FIT, callbacks=[FailingCallback(), logger])  # callbacks after it miss the epoch
    assert len(path.read_text().splitlines()) == 1 + (kind == "csv")
    trainer.fit(X, Y, **FIT, callbacks=[logger])
    assert path.read_text() == expected_content(trainer, kind)


def test_a_partial_epoch_is_a_line(path, kind):
    class Stopper:
        def on_step_end(self, trainer, step, loss):
            trainer.should_stop = step == 17

    trainer = native_trainer()
    trainer.fit(X, Y, **FIT, callbacks=[Stopper(), make_logger(path, kind)])
    assert path.read_text() == expected_content(trainer, kind) and trainer.epoch == 2


def test_zero_epochs_make_an_empty_file(path, kind):
    trainer = native_trainer()
    trainer.fit(X, Y, **FIT | {"epochs": 0}, callbacks=[make_logger(path, kind)])
    assert path.read_bytes() == b""
    trainer.fit(X, Y, **FIT, callbacks=[make_logger(path, kind)])
    assert path.read_text() == expected_content(trainer, kind)


# ---- refused
def test_a_file_of_another_kind_is_refused_and_unchanged(path, kind):
    path.write_text("x,y\n1,2\n")
    trainer = native_trainer()
    with pytest.raises(ValueError, match=f"path: expected a file of a {LOGGERS[kind].__name__}, none, or one that"):
        trainer.fit(X, Y, **FIT, callbacks=[make_logger(path, kind)])
    assert trainer.step == 0 and path.read_text() == "x,y\n1,2\n"


def test_a_refused_fit_changes_no_file(path, kind):
    first = native_trainer()
    first.fit(X, Y, **FIT, callbacks=[make_logger(path, kind)])
    with pytest.raises(OSError, match="expected an existing folder"):
        native_trainer().fit(
            X,
            Y,
            **FIT,
            callbacks=[make_logger(path, kind, overwrite=True), Checkpoint(path.parent / "missing" / "a")],
        )
    assert path.read_text() == expected_content(first, kind)
    assert json.loads((path.parent / f"{path.name}.json").read_text())["run_id"] == first.run_id


def test_unwritable_paths_are_reported_before_the_first_step(path, kind):
    trainer = native_trainer()
    for wrong in (path.parent, path.parent / "missing" / "log", "/dev/null"):
        with pytest.raises(OSError, match=r"missing|directory|regular file"):
            trainer.fit(X, Y, **FIT, callbacks=[make_logger(wrong, kind)])
    assert trainer.step == 0
    with pytest.raises(TypeError, match="path: expected a str"):
        make_logger(3, kind)


def test_repr(kind):
    assert repr(make_logger("a", kind)) == f"{LOGGERS[kind].__name__}('a')"


def test_a_new_name_is_a_new_column(path, kind):
    trainer, logger = native_trainer(), make_logger(path, kind)
    trainer.fit(X, Y, **FIT | {"epochs": 1}, callbacks=[logger])
    trainer.fit(X, Y, **FIT | {"epochs": 1}, validation_split=0.2, callbacks=[logger])
    assert np.isnan(trainer.history["val_loss"][0])
    if kind == "csv":
        assert path.read_text() == expected_content(trainer, kind)
    else:
        first, second = map(json.loads, path.read_text().splitlines())
        assert first["val_loss"] is None and second["val_loss"] == trainer.history["val_loss"][1]
