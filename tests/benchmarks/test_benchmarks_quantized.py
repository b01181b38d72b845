"""Runs the benchmark of quantized nets in its shortest form, and checks what it writes."""

import json

import numpy as np


def test_quantized_accuracy(start, tmp_path):
    """A table is learned, also in integers; a run that is there is not made again."""
    X = np.random.default_rng(0).normal(size=(800, 3)).round(3)
    rows = np.column_stack([X, (X[:, 0] > X[:, 1]).astype(int)])
    (tmp_path / "table.csv").write_text("\n".join(",".join(f"{v:g}" for v in row) for row in rows) + "\n")
    options = ["--results", tmp_path / "r.jsonl", "--table", tmp_path / "table.csv", "--nets", "MLP", "--threads", 1]
    done = start("quantized_accuracy.py", *options, "--seeds", 1)
    assert done.returncode == 0, done.stderr
    (row,) = map(json.loads, (tmp_path / "r.jsonl").read_text().splitlines())
    assert min(row["float"], row["int8"], row["trained"]) > 95
    again = start("quantized_accuracy.py", *options, "--seeds", 1)
    assert "MLP " in again.stdout and "float" not in again.stdout.split("seeds")[0]
