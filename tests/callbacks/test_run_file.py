"""Whose file a log is: {run}, the id in checkpoints, overwrite=, and the parameters beside it."""

import copy
import json
import os
import pickle
import re
import subprocess
import sys
import threading

import interrupted_fits
import pytest
from interrupted_fits import CUSTOM, FIT, InterruptAfter, X, Y, interrupt_fit, native_trainer, python_trainer

import minidl
from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint, CSVLogger, JSONLLogger
from minidl.callbacks.run_file import run_of
from minidl.estimators import SequentialClassifier
from minidl.layers import Dense, Flatten
from minidl.optimizers import SGD
from minidl.saving import safetensors_file

LOGGERS = {"csv": CSVLogger, "jsonl": JSONLLogger}
ANOTHER = r"path: expected a new one or that of this run, got '.*', the log of another run; .*{run}.*overwrite=True"


def strict(text):
    """Returns parsed JSON without NaN and infinities."""

    def refuse(name):
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def epochs_in(path):
    """Returns the epochs in a log, from its lines."""
    lines = path.read_text().splitlines()
    return [
        int(line.split(",")[0]) if line[0] != "{" else json.loads(line)["epoch"] for line in lines if line[0] != "e"
    ]


@pytest.fixture(params=LOGGERS)
def make(request):
    return LOGGERS[request.param]


def fit(logger, trainer=None, **options):
    trainer = native_trainer() if trainer is None else trainer
    trainer.fit(X, Y, **FIT | options, callbacks=[logger])
    return trainer


def test_the_file_of_another_run_is_refused_before_the_first_step(make, tmp_path):
    fit(make(tmp_path / "log"))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    trainer = native_trainer()
    with pytest.raises(ValueError, match=ANOTHER):
        fit(make(tmp_path / "log"), trainer)
    assert trainer.step == 0 and {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    fit(make(tmp_path / "log", overwrite=True), trainer, epochs=1)
    assert epochs_in(tmp_path / "log") == [0] and run_of(str(tmp_path / "log")) == trainer.run_id
    fit(make(tmp_path / "log"), trainer, epochs=2)  # the same run
    assert epochs_in(tmp_path / "log") == [0, 1, 2]


class FitsAnother:
    """Fits another trainer when an epoch begins, which writes to the same file."""

    def __init__(self, logger, epoch=0):
        self.logger, self.epoch, self.trainer = logger, epoch, native_trainer()

    def on_epoch_begin(self, trainer, epoch):
        if epoch == self.epoch:
            fit(self.logger, self.trainer)


def test_the_file_of_a_run_that_began_later_is_refused(make, tmp_path):
    """Ownership is known to the first write."""
    other = FitsAnother(make(tmp_path / "log"))
    with pytest.raises(ValueError, match=ANOTHER):
        native_trainer().fit(X, Y, **FIT, callbacks=[make(tmp_path / "log"), other])
    assert epochs_in(tmp_path / "log") == [0, 1, 2, 3] and run_of(str(tmp_path / "log")) == other.trainer.run_id
    (tmp_path / "log").unlink()  # parameters without a log: their run has ended
    other = FitsAnother(make(tmp_path / "log"))
    with pytest.raises(ValueError, match=ANOTHER):
        native_trainer().fit(X, Y, **FIT, callbacks=[make(tmp_path / "log"), other])
    assert run_of(str(tmp_path / "log")) == other.trainer.run_id


def test_a_file_that_another_run_has_taken_is_left_to_it(make, tmp_path):
    """With overwrite=True, a file is replaced once in a fit."""
    other = FitsAnother(make(tmp_path / "log", overwrite=True), epoch=2)
    with pytest.raises(ValueError, match=ANOTHER):
        native_trainer().fit(X, Y, **FIT, callbacks=[make(tmp_path / "log", overwrite=True), other])
    assert epochs_in(tmp_path / "log") == [0, 1, 2, 3] and run_of(str(tmp_path / "log")) == other.trainer.run_id


@pytest.mark.parametrize("left", [False, True])
def test_one_of_the_runs_at_the_same_time_gets_the_file(left, make, tmp_path):
    if left:
        fit(make(tmp_path / "log"))
        (tmp_path / "log").unlink()
    trainers, errors = [native_trainer() for _ in range(3)], []
    began = threading.Barrier(3)

    class Waits:
        def on_fit_begin(self, trainer):
            began.wait()

    def work(trainer):
        try:
            trainer.fit(X, Y, **FIT, callbacks=[make(tmp_path / "log"), Waits()])
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work, args=[trainer]) for trainer in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    owner = {trainer.run_id: trainer for trainer in trainers}[run_of(str(tmp_path / "log"))]
    assert len(errors) == 2 and all(re.match(ANOTHER, error) for error in errors)
    assert owner.epoch == 4 and epochs_in(tmp_path / "log") == [0, 1, 2, 3]


def test_one_of_several_processes_gets_the_file(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {os.path.dirname(interrupted_fits.__file__)!r})
from interrupted_fits import FIT, X, Y, native_trainer
from minidl.callbacks import CSVLogger
class Waits:
    def on_fit_begin(self, trainer):
        print("ready", flush=True)
        sys.stdin.readline()
native_trainer().fit(X, Y, **FIT, callbacks=[CSVLogger({str(tmp_path / "log")!r}), Waits()])
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    jobs = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(2)]
    for job in jobs:
        assert job.stdout.readline() == "ready\n"
    for job in jobs:
        job.stdin.write("go\n")
        job.stdin.flush()
    errors = [job.communicate()[1] for job in jobs]
    assert sorted(job.returncode for job in jobs) == [0, 1]
    assert sum("the log of another run" in error for error in errors) == 1
    assert epochs_in(tmp_path / "log") == [0, 1, 2, 3]


@pytest.mark.parametrize("step", [5, 30])
@pytest.mark.parametrize("path", ["log", "{run}.log"])
def test_a_resumed_run_goes_on_in_its_file(make, path, step, tmp_path):
    """Also if its checkpoint is from before the first epoch, and with new names."""
    if "{run}" in path:
        fit(make(tmp_path / path))  # another one
    logger = make(tmp_path / path)
    callbacks = [Checkpoint(tmp_path / "c", every_n_steps=step + 1), InterruptAfter(45), logger]
    trainer = native_trainer()
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, **FIT, callbacks=callbacks)
    if step == 5:  # the checkpoint is rewritten later
        trainer = interrupt_fit(native_trainer(), 5, callbacks=[logger := make(tmp_path / "early")])
        trainer.save_checkpoint(tmp_path / "c")
        fit(logger, trainer)
    name = logger.file

    class Adds:
        def on_epoch_end(self, trainer, epoch, logs):
            logs["more"] = epoch

    resumed, again = Trainer.resume(tmp_path / "c"), make(logger.path)
    assert resumed.run_id == trainer.run_id
    resumed.fit(X, Y, **FIT, callbacks=[Adds(), again])
    assert again.file == name
    with open(name) as file:
        assert "more" in file.read()
    fits = strict((tmp_path / f"{name}.json").read_text())["fits"]
    assert [one["first_epoch"] for one in fits] == [0]


def test_a_run_that_is_complete_goes_on_after_a_resume(make, tmp_path):
    fit(make(tmp_path / "log"), trainer := native_trainer())
    trainer.save_checkpoint(tmp_path / "c")
    resumed = Trainer.resume(tmp_path / "c")
    fit(make(tmp_path / "log"), resumed)  # nothing to do
    fit(make(tmp_path / "log"), resumed, epochs=2)
    assert epochs_in(tmp_path / "log") == [0, 1, 2, 3, 4, 5]


def test_each_run_has_a_number(make, tmp_path):
    path = tmp_path / "{lr}-{run}" / "{run}.log"
    loggers = [make(path) for _ in range(3)]
    trainers = [fit(logger) for logger in loggers]
    folder = str(tmp_path / "{lr}-")
    assert [logger.file for logger in loggers] == [f"{folder}{n}/{n}.log" for n in range(3)]
    assert loggers[0].path == str(path) and "{run}" in repr(loggers[0])
    fit(loggers[0], trainers[2])  # a run keeps its own, whichever logger
    assert loggers[0].file == loggers[2].file
    (tmp_path / "{lr}-1" / "1.log").unlink()
    (tmp_path / "{lr}-1" / "1.log.json").unlink()
    fit(again := make(path))
    assert again.file == loggers[1].file


def test_before_the_first_epoch_no_number_is_taken(make, tmp_path):
    logger = make(tmp_path / "{run}.log")
    assert logger.file is None
    interrupt_fit(native_trainer(), 3, callbacks=[logger])
    assert logger.file is None and list(tmp_path.iterdir()) == []
    fit(logger, epochs=0)  # nor without an epoch
    assert logger.file is None and list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="expected an existing folder"):
        fit(make(tmp_path / "missing" / "{run}.log"))


def test_folders_down_to_that_of_the_number_are_made(make, tmp_path):
    loggers = [make(tmp_path / "a" / "b" / "{run}" / "log"), make(tmp_path / "c{run}" / "d" / "log")]
    native_trainer().fit(X, Y, **FIT, callbacks=loggers)
    assert [logger.file for logger in loggers] == [str(tmp_path / "a" / "b" / "0" / "log"), str(tmp_path / "c0/d/log")]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        fit(make(tmp_path / "file" / "{run}" / "log"), trainer := native_trainer())
    assert trainer.step == 0


def test_runs_at_the_same_time_get_different_numbers(make, tmp_path):
    loggers = [make(tmp_path / "{run}") for _ in range(4)]
    threads = [threading.Thread(target=fit, args=[logger]) for logger in loggers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(logger.file.rpartition("/")[2]) for logger in loggers) == [0, 1, 2, 3]


def test_fits_of_a_grid_search_have_a_file_each(make, tmp_path):
    from sklearn.model_selection import GridSearchCV

    classifier = SequentialClassifier(epochs=2, callbacks=[make(tmp_path / "{run}.log")], random_state=0)
    search = GridSearchCV(classifier, {"lr": [0.1, 0.01]}, cv=2).fit(X[:, 0].reshape(90, -1), Y)
    files = sorted(path.name for path in tmp_path.glob("*.log"))
    assert files == [f"{n}.log" for n in range(5)]
    rates = [strict((tmp_path / f"{name}.json").read_text())["fits"][0]["optimizer"]["lr"] for name in files]
    assert sorted(rates[:4]) == [0.01, 0.01, 0.1, 0.1]
    assert search.best_estimator_.callbacks_[0].file.endswith("4.log")


def test_partial_fit_is_one_run(make, tmp_path):
    classifier = SequentialClassifier(callbacks=[make(tmp_path / "{run}.log")], random_state=0)
    for _ in range(3):
        classifier.partial_fit(X[:, 0].reshape(90, -1), Y, classes=[0, 1, 2])
    assert epochs_in(tmp_path / "0.log") == [0, 1, 2]
    assert len(strict((tmp_path / "0.log.json").read_text())["fits"]) == 1


@pytest.mark.parametrize("way", [copy.deepcopy, lambda logger: pickle.loads(pickle.dumps(logger))])
def test_copies(make, way, tmp_path):
    logger = make(tmp_path / "{run}", overwrite=True)
    fit(logger)
    fit(again := way(logger))
    assert again.file != logger.file and again.overwrite is True


def test_logs_of_earlier_versions_are_known_by_their_epochs(make, tmp_path):
    """Without parameters beside them, and an id in the checkpoint."""
    path, trainer = tmp_path / "log", native_trainer()
    callbacks = [make(path), Checkpoint(tmp_path / "c", every_n_steps=30), InterruptAfter(45)]
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, **FIT, callbacks=callbacks)
    config, tensors, _ = safetensors_file.read(tmp_path / "c", "checkpoint")
    assert config.pop("run_id") == trainer.run_id
    safetensors_file.write(tmp_path / "c", "checkpoint", config, tensors)
    (tmp_path / "log.json").unlink()
    with pytest.raises(ValueError, match=ANOTHER):
        fit(make(path))
    changed = native_trainer()
    changed.fit(X, Y, **FIT | {"batch_size": 9})
    with pytest.raises(ValueError, match=ANOTHER):
        fit(make(path), changed)
    fit(make(path), Trainer.resume(tmp_path / "c"))
    assert epochs_in(path) == [0, 1, 2, 3]


def test_the_id_in_a_checkpoint_is_checked(tmp_path):
    fit(CSVLogger(tmp_path / "log"), trainer := native_trainer())
    trainer.save_checkpoint(tmp_path / "c")
    config, tensors, _ = safetensors_file.read(tmp_path / "c", "checkpoint")
    for wrong in (3, "a", None, "A" * 32):
        safetensors_file.write(tmp_path / "c", "checkpoint", config | {"run_id": wrong}, tensors)
        with pytest.raises(ValueError, match="run_id: expected 32 hexadecimal digits, got"):
            Trainer.resume(tmp_path / "c")
    with pytest.raises(AttributeError):
        trainer.run_id = "a"


def test_trainers_without_a_logger_have_no_id_in_their_checkpoints(tmp_path):
    native_trainer().save_checkpoint(tmp_path / "c")
    native_trainer().save_checkpoint(tmp_path / "d")
    assert (tmp_path / "c").read_bytes() == (tmp_path / "d").read_bytes()
    assert native_trainer().run_id != native_trainer().run_id


@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_copies_of_a_trainer_are_runs_of_their_own(way, built, make, tmp_path):
    trainer = native_trainer() if built else Trainer(Sequential([Flatten(), Dense(3)]), "mean_squared_error", SGD(0.1))
    before = trainer.run_id
    assert len({before, trainer.run_id, way(trainer).run_id, way(trainer).run_id}) == 3
    assert (pickle.loads(pickle.dumps(trainer)).run_id == before) is built
    if built:
        fit(make(tmp_path / "{run}"), trainer)
        copies, loggers = [way(trainer), way(trainer)], [make(tmp_path / "{run}"), make(tmp_path / "{run}")]
        for copied, logger in zip(copies, loggers, strict=True):
            with pytest.raises(ValueError, match=ANOTHER):
                fit(make(tmp_path / "0"), copied)
            fit(logger, copied, epochs=1)
        assert [os.path.basename(logger.file) for logger in loggers] == ["1", "2"]
        assert epochs_in(tmp_path / "0") == [0, 1, 2, 3] and epochs_in(tmp_path / "2") == [0, 1, 2, 3, 4]
        fit(make(tmp_path / "0"), trainer, epochs=1)


def test_copies_of_an_estimator_are_runs_of_their_own(make, tmp_path):
    classifier = SequentialClassifier(callbacks=[make(tmp_path / "{run}")], random_state=0)
    flat = X[:, 0].reshape(90, -1)
    classifier.partial_fit(flat, Y, classes=[0, 1, 2])
    copies = [copy.deepcopy(classifier), copy.deepcopy(classifier), classifier]
    for number, copied in enumerate(copies):
        for _ in range(number + 1):
            copied.partial_fit(flat, Y)
    assert [len(epochs_in(tmp_path / name)) for name in "012"] == [4, 2, 3]


# ---- parameters


def test_the_parameters_of_each_fit(make, tmp_path):
    trainer = native_trainer()
    fit(make(tmp_path / "log"), trainer, epochs=2)
    fit(make(tmp_path / "log"), trainer, epochs=2)  # the same again
    trainer.optimizer.lr = 0.01
    fit(make(tmp_path / "log"), trainer, epochs=3, validation_split=0.2)
    found = strict((tmp_path / "log.json").read_text())
    assert found["run_id"] == trainer.run_id
    first, last = found["fits"]
    assert (first["first_epoch"], last["first_epoch"]) == (0, 4)
    assert (first["fit"]["epochs"], first["fit"]["batch_size"], last["fit"]["epochs"]) == (2, 7, 3)
    assert (first["validation_examples"], last["validation_examples"]) == (None, 18)
    assert first["optimizer"] == {"class": "SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0}
    assert last["optimizer"]["lr"] == 0.01
    assert (first["seed"], first["model_seed"], first["metrics"]) == (5, 2, ["accuracy"])
    assert first["loss"] == repr(trainer.loss) and first["callbacks"] == [repr(make(tmp_path / "log"))]
    assert first["model"] == str(trainer.model.summary()).splitlines()
    assert first["environment"]["minidl"] == minidl.__version__


def test_the_parameters_of_the_first_fit_and_of_the_last_ones_are_kept(make, tmp_path):
    trainer, log = native_trainer(), tmp_path / "log"
    for step in range(20):
        trainer.optimizer.lr = 0.01 * (step + 1)
        fit(make(log), trainer, epochs=1)
        fits = strict((tmp_path / "log.json").read_text())["fits"]
        first = [0, *range(step - 14, step + 1)] if step > 15 else [*range(step + 1)]
        assert [one["first_epoch"] for one in fits] == first
        assert [one["optimizer"]["lr"] for one in fits] == [0.01 * (epoch + 1) for epoch in first]
    content = strict((tmp_path / "log.json").read_text())
    content["fits"][1]["model"] = ["x" * 2**24]  # of a version without limits
    (tmp_path / "log.json").write_text(json.dumps(content))
    trainer.optimizer.lr = 1e-3
    fit(make(log), trainer, epochs=1)
    assert epochs_in(log) == [*range(21)] and (tmp_path / "log.json").stat().st_size < 2**20


@pytest.mark.parametrize("fits", [3, None, [3], [{}], [{"first_epoch": "a"}]])
def test_parameters_that_were_edited_are_written_again(fits, make, tmp_path):
    fit(make(tmp_path / "log"), trainer := native_trainer())
    before = (tmp_path / "log.json").read_text()
    (tmp_path / "log.json").write_text(json.dumps({"run_id": trainer.run_id, "fits": fits}))
    fit(make(tmp_path / "log"), trainer)
    (found,) = strict((tmp_path / "log.json").read_text())["fits"]
    assert found == strict(before)["fits"][0] | {"first_epoch": 4}


def test_objects_of_a_user_are_texts(tmp_path):
    trainer = python_trainer()
    fit(JSONLLogger(tmp_path / "log"), trainer)
    (found,) = strict((tmp_path / "log.json").read_text())["fits"]
    assert found["optimizer"] == {"class": "PythonAdam", "lr": "Schedule"} and found["loss"] == "squares"
    assert set(CUSTOM) >= {"PythonAdam", "squares"}
    trainer.optimizer.lr = float("inf")
    assert trainer.run_parameters()["optimizer"]["lr"] == "inf"
    assert trainer.run_parameters()["fit"] is None


def test_objects_that_cannot_be_described_are_names_of_classes(tmp_path):
    class Fails:
        def on_epoch_begin(self, trainer, epoch):
            pass

        def __repr__(self):
            raise RuntimeError("no repr")

    class Optimizer(interrupted_fits.PythonAdam):
        def __init__(self, lr, cyclic, failing, digits):
            super().__init__(lr)
            self.cyclic, self.digits = cyclic, digits

        @property
        def failing(self):
            raise RuntimeError("no value")

    cyclic = [1.0]
    cyclic += [cyclic, cyclic]
    trainer = python_trainer()
    trainer.optimizer = Optimizer(0.01, cyclic, Fails(), 10**5000)
    trainer.fit(X, Y, **FIT, callbacks=[Fails(), JSONLLogger(tmp_path / "log")])
    (found,) = strict((tmp_path / "log.json").read_text())["fits"]
    assert found["optimizer"] == {"class": "Optimizer", "lr": 0.01, "cyclic": "list", "digits": "int"}
    assert found["callbacks"][0] == "Fails" and found["callbacks"][1].startswith("JSONLLogger(")


def test_the_parameters_of_a_fit_on_batches(tmp_path):
    trainer = native_trainer()
    trainer.fit([(X, Y)] * 3, epochs=2, steps_per_epoch=2, callbacks=[CSVLogger(tmp_path / "log")], verbose=0)
    (found,) = strict((tmp_path / "log.json").read_text())["fits"]
    assert found["fit"] == {"batches": "an iterable", "epochs": 2, "steps_per_epoch": 2, "batch_size": None}


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"name": 3}', "[" * 100_000])
def test_other_files_with_this_name_are_kept(content, make, tmp_path):
    beside = tmp_path / "log.json"
    beside.write_text(content)
    with pytest.raises(ValueError, match=r"path: expected no file .*log\.json, or the parameters of a run of minidl"):
        fit(make(tmp_path / "log"))
    assert beside.read_text() == content
    fit(make(tmp_path / "log", overwrite=True), trainer := native_trainer())
    assert strict(beside.read_text())["run_id"] == trainer.run_id


def test_invalid_arguments(make):
    with pytest.raises(TypeError, match="overwrite: expected True or False, got 1"):
        make("log", overwrite=1)
    with pytest.raises(TypeError, match=r"path: expected a str or os\.PathLike, got 3"):
        make(3)
