"""JSONLLogger: what the lines look like."""

import json
import math

from interrupted_fits import FIT, X, Y, native

from minidl import Trainer
from minidl.callbacks import JSONLLogger


def strictly(line):
    """The object; NaN and Infinity are no JSON."""
    return json.loads(line, parse_constant={}.__getitem__)


def test_the_lines_are_the_history(tmp_path):
    trainer = native()
    trainer.fit(X, Y, **FIT, validation_split=0.2, callbacks=[JSONLLogger(tmp_path / "a.jsonl")])
    lines = [strictly(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert {name: [line[name] for line in lines] for name in lines[0]} == trainer.history
    assert (tmp_path / "a.jsonl").read_text().startswith('{"epoch": 0, "loss": ')


def test_what_is_no_number_is_null(tmp_path):
    values = iter([math.nan, math.inf, -math.inf, 1 / 3])
    trainer = Trainer(native().model, "softmax_cross_entropy", native().optimizer, [lambda y, scores: next(values)])
    trainer.fit(X, Y, **FIT, callbacks=[JSONLLogger(tmp_path / "a.jsonl")])
    lines = [strictly(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["<lambda>"] for line in lines] == [None, None, None, 1 / 3]
