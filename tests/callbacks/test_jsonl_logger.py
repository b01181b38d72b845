"""JSONLLogger: the format of the lines."""

import json
import math

from interrupted_fits import FIT, X, Y, native_trainer

from minidl import Trainer
from minidl.callbacks import JSONLLogger


def parse_strictly(line):
    """Parses a line; NaN and Infinity are not JSON."""
    return json.loads(line, parse_constant={}.__getitem__)


def test_the_lines_equal_the_history(tmp_path):
    trainer = native_trainer()
    trainer.fit(X, Y, **FIT, validation_split=0.2, callbacks=[JSONLLogger(tmp_path / "a.jsonl")])
    lines = [parse_strictly(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert {name: [line[name] for line in lines] for name in lines[0]} == trainer.history
    assert (tmp_path / "a.jsonl").read_text().startswith('{"epoch": 0, "loss": ')


def test_non_finite_numbers_are_null(tmp_path):
    values = iter([math.nan, math.inf, -math.inf, 1 / 3])
    trainer = Trainer(
        native_trainer().model, "softmax_cross_entropy", native_trainer().optimizer, [lambda y, scores: next(values)]
    )
    trainer.fit(X, Y, **FIT, callbacks=[JSONLLogger(tmp_path / "a.jsonl")])
    lines = [parse_strictly(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["<lambda>"] for line in lines] == [None, None, None, 1 / 3]
