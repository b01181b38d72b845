"""model.summary(): numbers, table and notebook."""

import re

import pytest

from minidl import Layer, Sequential
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale


def lenet5(dtype="float32"):
    """The counts of each layer are those of LeCun et al. (1998), with all maps connected."""
    layers = [Rescale(1 / 255), Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 5)]
    layers += [ReLU(), MaxPool2D(2), Flatten(), Dense(120), ReLU(), Dense(84), ReLU(), Dense(10)]
    return Sequential(layers, input_shape=(1, 28, 28), dtype=dtype)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float64", 8)])
def test_counts_of_lenet5(dtype, size):
    summary = lenet5(dtype).summary()
    counts = [0, 156, 0, 0, 2416, 0, 0, 0, 48120, 0, 10164, 0, 850]
    assert [row.parameters for row in summary.rows] == counts
    assert summary.parameters == 61706
    assert summary.parameter_bytes == 61706 * size
    outputs = [row.output for row in summary.rows]
    assert outputs[1:5] == [(6, 28, 28), (6, 28, 28), (6, 14, 14), (16, 10, 10)]
    assert outputs[7:9] == [(400,), (120,)]
    assert summary.rows[1].tile_bytes == 16 * 6 * 28 * 28 * size
    assert summary.tile_bytes == sum(row.tile_bytes for row in summary.rows)
    assert summary.input == (1, 28, 28)


def test_table_has_a_line_a_layer():
    summary = lenet5().summary()
    text = str(summary)
    lines = text.splitlines()
    assert text == repr(summary)
    assert lines[0].split() == ["layer", "output", "parameters", "memory"]
    assert re.match(r"input +\(1, 28, 28\)$", lines[2].rstrip())
    assert re.match(r"1 Conv2D\(filters=6, .*padding=2.*\) +\(6, 28, 28\) +156 +301 kB$", lines[4])
    assert len(lines) == 3 + 13 + 2
    assert lines[-1].startswith("61,706 parameters (247 kB)")
    assert len({len(line) for line in lines[3:-2]}) == 1  # columns stand below each other


def test_notebooks_get_a_table_with_names_escaped():
    class Odd(Layer):
        def __init__(self, note):
            self.note = note

        def forward(self, x, training):
            return x

    shown = Sequential([Odd("<b>&"), ReLU()], input_shape=(4,)).summary()._repr_html_()
    assert shown.count("<tr>") == 4
    assert "<th>layer</th>" in shown and "&lt;b&gt;&amp;" in shown and "<b>" not in shown
    assert "0 parameters" in shown


def test_needs_a_built_model():
    with pytest.raises(ValueError, match="not built yet"):
        Sequential([Dense(3)]).summary()
