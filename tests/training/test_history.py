"""History: a dict of lists that can also plot itself."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint, CSVLogger, JSONLLogger
from minidl.layers import Dense
from minidl.optimizers import SGD
from minidl.training.history import History

RNG = np.random.default_rng(0)
X, Y = RNG.random((40, 6)), RNG.integers(0, 3, 40)
PLAIN = {"epoch": [0, 1], "loss": [1.0, 0.5]}


def trainer():
    return Trainer(Sequential([Dense(3)], (6,)), "softmax_cross_entropy", SGD(0.1), ["accuracy"])


def test_it_is_a_dict():
    history = History(PLAIN)
    assert history == PLAIN and dict(history) == PLAIN and isinstance(history, dict)
    assert repr(history) == repr(PLAIN) and list(history) == list(PLAIN)
    assert json.loads(json.dumps(history)) == PLAIN


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, History.copy, lambda history: pickle.loads(pickle.dumps(history))]
)
def test_copies_are_histories(copied):
    history = History(PLAIN)
    other = copied(history)
    assert type(other) is History and other == history and other is not history
    other["lr"] = [0.1, 0.1]
    assert "lr" not in history


def test_fit_returns_the_trainers_history():
    made = trainer()
    assert made.history == {} and type(made.history) is History
    history = made.fit(X, Y, epochs=2, validation_split=0.2, verbose=0)
    assert history is made.history and type(history) is History
    assert list(history) == [
        "epoch", "loss", "accuracy", "val_loss", "val_accuracy", "lr", "images_per_second",
    ]  # fmt: skip
    assert made.fit(X, Y, epochs=1, verbose=0) is history and len(history["epoch"]) == 3


def test_a_resumed_trainer_has_a_history(tmp_path):
    path, made = tmp_path / "run.safetensors", trainer()
    made.fit(X, Y, epochs=3, callbacks=[Checkpoint(path)], verbose=0)
    resumed = Trainer.resume(path)
    assert type(resumed.history) is History and resumed.history == made.history
    assert resumed.fit(X, Y, epochs=5, verbose=0) is resumed.history and len(resumed.history["loss"]) == 8


def test_plot():
    pytest.importorskip("matplotlib")
    history = trainer().fit(X, Y, epochs=3, validation_split=0.2, verbose=0)
    loss, accuracy = history.plot().axes
    assert loss.lines[1].get_ydata().tolist() == history["val_loss"]
    assert accuracy.lines[0].get_ydata().tolist() == history["accuracy"]


def test_plot_without_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'a plot needs matplotlib: pip install "minidl\[plot\]"'):
        History(PLAIN).plot()


def test_matplotlib_is_not_imported_without_a_plot():
    program = "import sys, minidl; minidl.plots.filters; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_epochs_count_from_0_in_data_and_from_1_in_displays(tmp_path, capsys):
    hooks = []
    watch = type(
        "Watch", (), {"on_epoch_end": lambda self, trainer, epoch, logs: hooks.append((epoch, logs["epoch"]))}
    )()
    trainer = Trainer(Sequential([Dense(2)], (3,)), "softmax_cross_entropy", SGD(0.1))
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    loggers = [CSVLogger(tmp_path / "log.csv"), JSONLLogger(tmp_path / "log.jsonl"), Checkpoint(tmp_path / "c-{epoch}")]
    history = trainer.fit(X, y, epochs=2, verbose=1, callbacks=[watch, *loggers])
    assert history["epoch"] == [0, 1] and hooks == [(0, 0), (1, 1)] and trainer.epoch == 2
    rows = (tmp_path / "log.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "0", "1"]
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1]
    assert {path.name for path in tmp_path.glob("c-*")} == {"c-1", "c-2"}  # number of completed epochs
    assert [line[:9] for line in capsys.readouterr().out.splitlines()] == ["epoch 1/2", "epoch 2/2"]
    pytest.importorskip("matplotlib")
    assert history.plot().axes[0].lines[0].get_xdata().tolist() == [1, 2]
