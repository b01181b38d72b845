"""CSVLogger: the format of the table."""

import csv
import math

import numpy as np
from interrupted_fits import FIT, X, Y, native_trainer

from minidl import Trainer
from minidl.callbacks import CSVLogger


def test_the_table_equals_the_history(tmp_path):
    trainer = native_trainer()
    trainer.fit(X, Y, **FIT, validation_split=0.2, callbacks=[CSVLogger(tmp_path / "a.csv")])
    header, *rows = csv.reader((tmp_path / "a.csv").read_text().splitlines())
    assert header == list(trainer.history)
    assert header[:3] == ["epoch", "loss", "accuracy"] and rows[0][0] == "0"
    assert [[float(row[i]) for row in rows] for i in range(len(header))] == list(trainer.history.values())


def test_numpy_can_read_it(tmp_path):
    trainer = native_trainer()
    trainer.fit(X, Y, **FIT, callbacks=[CSVLogger(tmp_path / "a.csv")])
    table = np.genfromtxt(tmp_path / "a.csv", delimiter=",", names=True)
    assert table["loss"].tolist() == trainer.history["loss"]


def test_unusual_numbers_and_names(tmp_path):
    def odd(y, scores):
        return next(values)

    odd.__name__ = 'a, "b"'
    values = iter([math.nan, math.inf, -math.inf, 1 / 3])
    model = native_trainer().model
    trainer = Trainer(model, "softmax_cross_entropy", native_trainer().optimizer, [odd])
    trainer.fit(X, Y, **FIT, callbacks=[CSVLogger(tmp_path / "a.csv")])
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [row['a, "b"'] for row in rows] == ["nan", "inf", "-inf", "0.3333333333333333"]
