"""The tables of docs/coming-from/: rows of code in another library and in minidl, and the names that the pages explain.

A table whose last column is minidl is one of phrases.
"""

import copy
import inspect
import itertools
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import sklearn.metrics

import minidl
from minidl import Sequential, Trainer
from minidl.estimators import SequentialClassifier
from minidl.layers import Dense, Flatten, ReLU
from minidl.optimizers import SGD

BOOKS = Path(__file__).parents[1] / "docs" / "coming-from"
MODULES = (
    *("layers", "losses", "optimizers", "schedules", "callbacks"),
    *("initializers", "metrics", "datasets", "estimators"),
)
INPUTS = ((16, 8, 8), (16, 20), (64,))  # images, signals, vectors: a layer takes the first that both accept
ROWS, CLASSES = 60, 10


class Row(NamedTuple):
    """A row of a table: its section, the number of the table there, the library of its header, both cells' code."""

    page: str
    section: str
    table: int
    library: str
    theirs: list[str]
    ours: list[str]


def rows_of(page):
    """Yields the rows of the tables of phrases in a page."""
    section, library, table = "", "", 0
    for line in (BOOKS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section, table = line[3:], 0
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        if len(cells) < 2:
            library = library if line.startswith("|--") else ""
        elif cells[-1] == "minidl":
            library = re.match(r"`?([\w-]+)", cells[0])[1]
            table += 1
        elif library:
            code = (re.findall(r"`([^`]+)`", cell) for cell in (cells[0], cells[-1]))
            yield Row(page, section, table, library, *code)


ALL = [row for path in sorted(BOOKS.glob("*.md")) for row in rows_of(path.name)]


def rows(*libraries, section=None, table=None, theirs=""):
    """Returns rows of libraries as parameters: of a section and table, with code that begins with some text."""
    chosen = [row for row in ALL if row.library in libraries and section in (None, row.section)]
    chosen = [row for row in chosen if table in (None, row.table)]
    chosen = [row for row in chosen if not theirs or (row.theirs and row.theirs[0].startswith(theirs))]
    return [pytest.param(row, id=" ".join(row.theirs or row.ours)) for row in chosen]


def foreign_program(page):
    """Returns the indented program of a page."""
    text = (BOOKS / page).read_text(encoding="utf-8")
    block = max(re.findall(r"^(?:(?: {4}.*)?\n)+", text, re.M), key=len)
    return inspect.cleandoc(block) + "\n"


def arrays():
    """Returns rows of 64 numbers and labels of ten classes."""
    return np.random.default_rng(0).standard_normal((ROWS, 64)).astype(np.float32), np.arange(ROWS) % CLASSES


def minidl_names():
    """Returns what the names in the columns of minidl mean; writes a model and a checkpoint into the current folder."""
    names = {name: value for module in MODULES for name, value in public(f"minidl.{module}").items()}
    X, y = arrays()
    model = Sequential([Dense(32), ReLU(), Dense(CLASSES)], input_shape=(64,))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), ["accuracy"])
    trainer.fit(X, y, verbose=0)
    model.save("model.safetensors")
    trainer.save_checkpoint("run.safetensors")
    classifier = SequentialClassifier([Dense(8), ReLU(), Dense(CLASSES)], epochs=2).fit(X, y)
    return names | {
        "minidl": minidl, "np": np, "copy": copy, "Sequential": Sequential, "Trainer": Trainer, "Layer": minidl.Layer,
        "X": X, "y": y, "X_val": X, "y_val": y, "weights": np.ones(ROWS), "images_last": np.zeros((4, 8, 8, 3)),
        "images": np.zeros((4, 1, 8, 8)), "cnn": Sequential([Flatten(), Dense(CLASSES)], (1, 8, 8)),
        "model": model, "trainer": trainer, "loss": "softmax_cross_entropy", "optimizer": SGD(0.1),
        "history": trainer.history, "loader": [(X, y)], "path": "model.safetensors", "state": model.state_dict(),
        "classifier": classifier, "layer_list": [Dense(3)], "generator": itertools.repeat((X, y)), "sklearn": sklearn,
    }  # fmt: skip


@cache
def public(module):
    """Returns the public names of a module."""
    module = import_module(module)
    names = getattr(module, "__all__", None) or [name for name in vars(module) if name[0] != "_"]
    return {name: getattr(module, name) for name in names}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder as the current one, with a folder of photos; data sets are kept in it."""
    image = pytest.importorskip("PIL.Image")
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        image.new("RGB", (40, 36)).save(tmp_path / "photos" / name / "1.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
