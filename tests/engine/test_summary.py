"""model.summary(): counts, table and notebook display."""

import copy
import os
import pickle
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from contract.basics import dense
from contract.windows import conv2d, conv_transpose2d, depthwise_conv2d
from faulty_layers import Scale

from minidl import Layer, Sequential
from minidl.layers import (
    BatchNorm2D,
    Block,
    Conv2D,
    ConvTranspose2D,
    Dense,
    DepthwiseConv2D,
    Flatten,
    MaxPool2D,
    Normalize,
    Parallel,
    ReLU,
    Rescale,
    Reshape,
    Residual,
)


def lenet5(dtype="float32"):
    """The counts of each layer are those of LeCun et al. (1998), with all maps connected."""
    layers = [Rescale(1 / 255), Conv2D(6, 5, padding=2), ReLU(), MaxPool2D(2), Conv2D(16, 5)]
    layers += [ReLU(), MaxPool2D(2), Flatten(), Dense(120), ReLU(), Dense(84), ReLU(), Dense(10)]
    return Sequential(layers, input_shape=(1, 28, 28), dtype=dtype)


def with_branches():
    block = Residual(Conv2D(4, 3, padding=1), BatchNorm2D(), shortcut=Conv2D(4, 1))
    return Sequential([Parallel(Conv2D(2, 1), [ReLU(), block], join="concat"), Flatten(), Dense(3)], (3, 5, 5))


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float64", 8)])
def test_counts_of_lenet5(dtype, size):
    summary = lenet5(dtype).summary()
    counts = [0, 156, 0, 0, 2416, 0, 0, 0, 48120, 0, 10164, 0, 850]
    assert [row.parameters for row in summary.rows] == counts
    assert summary.parameters == 61706
    assert summary.parameter_bytes == 61706 * size
    macs = [0, 28 * 28 * 6 * 25, 0, 0, 10 * 10 * 16 * 6 * 25, 0, 0, 0, 400 * 120, 0, 120 * 84, 0, 84 * 10]
    assert [row.macs for row in summary.rows] == macs
    assert summary.macs == sum(macs)
    outputs = [row.output for row in summary.rows]
    assert outputs[1:5] == [(6, 28, 28), (6, 28, 28), (6, 14, 14), (16, 10, 10)]
    assert outputs[7:9] == [(400,), (120,)]
    assert summary.rows[1].example_bytes == 6 * 28 * 28 * size
    assert summary.input == (1, 28, 28)


# ---- multiply-adds
@pytest.mark.parametrize(
    ("layer", "in_shape", "macs"),
    [
        (Conv2D(8, (3, 5), stride=2, padding=1), (3, 9, 10), 8 * 5 * 4 * 3 * 15),
        (Conv2D(8, 3, groups=2, use_bias=False), (4, 6, 6), 8 * 4 * 4 * 2 * 9),
        (DepthwiseConv2D(3, depth_multiplier=2), (4, 6, 6), 8 * 4 * 4 * 9),
        (ConvTranspose2D(8, 3, stride=2), (4, 5, 6), 5 * 6 * 4 * 8 * 9),
        (ConvTranspose2D(8, 3, groups=2), (4, 5, 6), 5 * 6 * 4 * 4 * 9),
        (Dense(7), (5,), 35),
        (BatchNorm2D(), (4, 5, 5), 0),
        (Residual(Conv2D(4, 3, padding=1), shortcut=Conv2D(4, 1)), (4, 5, 5), 25 * 16 * 10),
        (Block(Flatten(), Block(Dense(2))), (4, 5, 5), 200),
    ],
    ids=lambda value: type(value).__name__,
)
def test_multiply_adds(layer, in_shape, macs):
    assert Sequential([layer], in_shape).summary().macs == layer.macs == macs


def test_a_custom_layer_sets_its_multiply_adds_in_build():
    class Mix(Scale):
        def build(self, in_shape):
            self.macs = in_shape[0] ** 2
            return super().build(in_shape)

    assert Sequential([Scale(), Residual(Mix())], (6,)).summary().macs == 36


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:.*images are:UserWarning")  # some random shapes look like channels last
@pytest.mark.parametrize("kind", [conv2d, conv_transpose2d, depthwise_conv2d, dense], ids=lambda kind: kind.__name__)
def test_pytorch_counts_the_same_multiply_adds(kind):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    rng = np.random.default_rng(0)
    for _ in range(50):
        case = kind(rng)
        params = Sequential([case.layer], case.in_shape).layers[0].params
        tensors = {name: torch.tensor(param.value) for name, param in params.items()}
        with FlopCounterMode(display=False) as counted:
            case.torch(torch.zeros(1, *case.in_shape), **tensors)
        assert 2 * case.layer.macs == counted.get_total_flops() > 0


# ---- containers
def test_a_container_has_totals_and_the_rows_of_its_layers():
    summary = with_branches().summary()
    assert [(row.name, row.depth, row.parameters, row.macs) for row in summary.rows] == [
        ("0 Parallel()", 0, 8 + 112 + 8 + 16, 25 * (6 + 108 + 12)),
        ("0.branches.0.0 Conv2D(filters=2, kernel_size=1)", 1, 8, 150),
        ("0.branches.1.0 ReLU()", 1, 0, 0),
        ("0.branches.1.1 Residual()", 1, 112 + 8 + 16, 25 * (108 + 12)),
        ("0.branches.1.1.body.0 Conv2D(filters=4, kernel_size=3, padding=1)", 2, 112, 25 * 108),
        ("0.branches.1.1.body.1 BatchNorm2D()", 2, 8, 0),
        ("0.branches.1.1.shortcut.0 Conv2D(filters=4, kernel_size=1)", 2, 16, 300),
        ("1 Flatten()", 0, 0, 0),
        ("2 Dense(units=3)", 0, 453, 450),
    ]
    assert summary.parameters == 144 + 453
    assert summary.parameter_bytes == 4 * summary.parameters
    lines = str(summary).splitlines()
    assert lines[3].startswith("0 Parallel() ")
    assert lines[7].startswith("    0.branches.1.1.body.0 Conv2D(")


def test_a_container_shows_one_layer_per_line():
    assert repr(with_branches()) == (
        "Sequential(\n"
        "  (0): Parallel(\n"
        "    (branches.0.0): Conv2D(filters=2, kernel_size=1)\n"
        "    (branches.1.0): ReLU()\n"
        "    (branches.1.1): Residual(\n"
        "      (body.0): Conv2D(filters=4, kernel_size=3, padding=1)\n"
        "      (body.1): BatchNorm2D()\n"
        "      (shortcut.0): Conv2D(filters=4, kernel_size=1)\n"
        "    )\n"
        "  )\n"
        "  (1): Flatten()\n"
        "  (2): Dense(units=3)\n"
        ")"
    )
    assert repr(Parallel(ReLU(), [], join="add")) == "Parallel(\n  join='add'\n  (branches.0.0): ReLU()\n)"


# ---- memory
def test_memory_grows_with_the_batch_where_a_layer_needs_all_of_it():
    normed = Sequential([Conv2D(16, 3, padding=1), BatchNorm2D(), Flatten(), Dense(4)], (3, 16, 16))
    steps = [normed.summary(n, num_threads=1).step_bytes for n in (16, 64, 256)]
    kept = 4 * 16 * 16 * 16  # one output of one example
    for batch, low, high in zip((48, 192), steps, steps[1:], strict=False):
        assert 3 * batch * kept < high - low < 6 * batch * kept


def test_memory_is_independent_of_the_batch_where_tiles_are_processed_in_turn():
    model = Sequential([Conv2D(16, 3, padding=1), ReLU(), MaxPool2D(2)], (3, 32, 32))
    small, large = (model.summary(n, num_threads=1).step_bytes for n in (256, 4096))
    assert large < 1.1 * small
    assert model.summary(256, num_threads=2).step_bytes >= 1.5 * small


def test_a_numpy_layer_needs_arrays_of_the_whole_batch():
    native, mixed = (Sequential([Conv2D(4, 1), *extra], (1, 20, 20)) for extra in ([], [Scale(), Residual(Scale())]))
    array = 128 * 4 * 400 * 4  # one output of all examples
    assert mixed.summary(128).step_bytes > native.summary(128).step_bytes + 9 * array  # and what its plan keeps


RUN = """
import sys
import numpy as np
from fit_memory import read_status
from models import lenet5, resnet20
from pathlib import Path
from minidl import Trainer
from minidl.optimizers import SGD

def fit(model):
    X, y = np.zeros((128, *model.input_shape), np.uint8), np.zeros(128, int)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.01, momentum=0.9), num_threads=2)
    trainer.fit(X, y, batch_size=64, verbose=0)

fit(lenet5())  # what a first fit imports and starts is not the model's
before = read_status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
model = resnet20(input_shape=(3, 16, 16))
fit(model)
summary = model.summary(batch_size=64, num_threads=2)
print(1024 * (read_status("VmHWM") - before), summary.training_bytes + summary.parameter_bytes)  # momentum
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_estimate_matches_training():
    root = Path(__file__).parents[2]
    path = os.pathsep.join(str(folder) for folder in (root, root / "examples", root / "benchmarks"))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
    used, estimated = map(int, done.stdout.split())
    assert estimated > 50e6
    assert 0.9 < used / estimated < 1.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size: expected an integer"),
        ({"num_threads": 0}, "num_threads: expected 1 to 1024, got 0"),
        ({"batch_size": 2**62}, "examples: expected at most"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        lenet5().summary(**arguments)


# ---- how it looks
def test_table_has_one_line_per_layer():
    summary = lenet5().summary(batch_size=32)
    text = str(summary)
    lines = text.splitlines()
    assert text == repr(summary)
    assert lines[0].split() == ["layer", "output", "parameters", "multiply-adds", "memory"]
    assert re.match(r"input +\(1, 28, 28\)$", lines[2].rstrip())
    assert re.match(r"1 Conv2D\(filters=6, .*padding=2.*\) +\(6, 28, 28\) +156 +117,600 +18.8 kB$", lines[4])
    assert len(lines) == 3 + 13 + 2
    assert lines[-1].startswith("61,706 parameters (247 kB), 416,520 multiply-adds an example; ")
    assert re.search(r"; training with batches of 32: [\d.]+ MB$", lines[-1])
    assert len({len(line) for line in lines[3:-2]}) == 1  # columns are aligned


def test_notebook_table_escapes_names():
    class Odd(Layer):
        def __init__(self, note):
            self.note = note

        def forward(self, x, training):
            return x

    shown = Sequential([Odd("<b>&"), Block(ReLU())], input_shape=(4,)).summary()._repr_html_()
    assert shown.count("<tr>") == 5
    assert "&lt;b&gt;&amp;" in shown and "<b>" not in shown
    assert "0 parameters" in shown


class Table(HTMLParser):
    """Parses a table into cells (tag, style, text) by line; asserts that tags are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.lines, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.lines.append([])
        if tag in ("td", "th"):
            self.lines[-1].append((tag, dict(attrs)["style"], ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in ("td", "th"):
            tag, style, text = self.lines[-1][-1]
            self.lines[-1][-1] = (tag, style, text + data)


def test_notebook_shows_the_cells_of_the_text_table(monkeypatch):
    monkeypatch.setattr("minidl.engine.summary.WIDTH", 200)  # no layer takes two lines
    summary = with_branches().summary()
    head, *lines = Table(summary._repr_html_()).lines
    assert [text for _, _, text in head] == ["layer", "output", "parameters", "multiply-adds", "memory"]
    assert {tag for tag, _, _ in head} == {"th"} and {tag for line in lines for tag, _, _ in line} == {"td"}
    displayed = [re.split(r"  +", line.strip()) for line in str(summary).splitlines()[2:-2]]
    assert [[text for _, _, text in line if text] for line in lines] == displayed
    for line in [head, *lines]:  # words left, numbers right: the notebook's default alignment varies
        assert [style.split(";")[0] for _, style, _ in line] == ["text-align: left"] * 2 + ["text-align: right"] * 3
    indents = [float(re.search(r"padding-left: ([\d.]+)em", line[0][1])[1]) for line in lines]
    assert indents == [0.5 + 1.5 * depth for depth in (0, *(row.depth for row in summary.rows))] and max(indents) == 3.5


def test_unbuilt_model_is_refused():
    with pytest.raises(ValueError, match="not built yet"):
        Sequential([Dense(3)]).summary()


def test_frozen_layers_are_marked(monkeypatch):
    monkeypatch.setattr("minidl.engine.summary.WIDTH", 200)  # no layer takes two lines
    model = with_branches()
    assert model.summary().trainable == model.summary().parameters and "frozen" not in str(model.summary())
    model.layers[0].trainable = False
    summary, head = model.summary(), model.params["2.weight"].value.size + 3
    assert summary.trainable == head < summary.parameters
    assert f"{head:,} of them trainable" in str(summary) and f"{head:,} of them trainable" in summary._repr_html_()
    lines = str(summary).splitlines()
    assert [line.count(", frozen") for line in lines if re.match(r" *0\.branches\.0\.0 ", line)] == [1]
    assert not any("frozen" in line for line in lines if "ReLU" in line or line.startswith("2 "))


# ---- width
def test_a_layer_with_many_arguments_takes_several_lines():
    X = np.random.default_rng(0).standard_normal((50, 6, 5, 7)).astype("f4")
    summary = Sequential([Residual(Normalize.from_data(X)), Flatten(), Dense(3)], X.shape[1:]).summary()
    lines = summary.splitlines()
    assert len(summary.rows[1].name) > 150 and 90 < max(map(len, lines)) <= 100
    start = next(i for i, line in enumerate(lines) if "Normalize" in line)
    stop = next(i for i, line in enumerate(lines) if line.startswith("1 Flatten"))
    assert re.fullmatch(r"  0\.body\.0 Normalize\(.*,  +\(6, 5, 7\) +0 +0 +840 B", lines[start])
    assert all(line.startswith("      ") for line in lines[start + 1 : stop])
    shown = " ".join([lines[start][: lines[start].index("  (6")], *lines[start + 1 : stop]])
    assert " ".join(shown.split()) == summary.rows[1].name
    assert len({len(line) for line in lines[:-1]}) == 1


def test_wide_numbers_leave_half_of_the_width_to_layers():
    lines = Sequential([Reshape((1,) * 30), Flatten(), Dense(3)], (1,)).summary().splitlines()
    (first,) = (line for line in lines if line.startswith("0 Reshape"))
    assert re.match(r"0 Reshape\(shape=\((1, )+1,  +\(", first) and 44 < first.index("  ") <= 50


def test_a_summary_has_the_methods_of_its_text():
    summary = Sequential([Dense(3)], (2,)).summary()
    assert summary.splitlines() == str(summary).split("\n") and summary.upper() == str(summary).upper()
    with pytest.raises(AttributeError, match="Summary has no 'lines'"):
        _ = summary.lines
    assert copy.deepcopy(summary) == summary == pickle.loads(pickle.dumps(summary))
