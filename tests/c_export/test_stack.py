"""The stack that the comment of a file states is that of the compiler."""

import re
import subprocess
from collections import defaultdict

import numpy as np
import pytest
from c_export.compiled import CC
from c_export.compiled_programs import convolution, program_of, write

import minidl
from minidl import Sequential
from minidl.layers import (
    GELU,
    GRU,
    LSTM,
    BatchNorm2D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Flatten,
    GroupNorm,
    LayerNorm,
    MaxPool2D,
    ReLU,
    Rescale,
    Sigmoid,
    SimpleRNN,
    Tanh,
)
from minidl.quantization.program import HIGH, LOW, Add

NETS = {
    "lenet": ([Rescale(0.1), Conv2D(6, 5), ReLU(), MaxPool2D(2), Flatten(), Dense(10)], (1, 12, 12)),
    "winograd": ([Conv2D(16, 3), BatchNorm2D(), ReLU(), Flatten(), Dense(3)], (16, 10, 10)),
    "depthwise": ([DepthwiseConv2D(3), GroupNorm(2)], (4, 6, 6)),
    "mlp": ([Dense(8), LayerNorm(), GELU(), Dense(4), Tanh(), Dense(3), Sigmoid()], (5,)),
    "lstm": ([LSTM(3)], (2, 5)),
    "gru": ([GRU(3)], (2, 5)),
    "gru_reset_before": ([GRU(3, reset_after=False)], (2, 5)),
    "simple_rnn": ([SimpleRNN(3)], (2, 5)),
}
BUILDS = (("-O2",), ("-O3", "-march=skylake-avx512", "-mprefer-vector-width=512"))


def deepest(graph):
    """Returns the bytes of net_predict and of all that it calls, from the call graph that gcc writes."""
    frames = {name: int(size) for name, size in re.findall(r'title: "([^"]+)" label: ".*?(\d+) bytes', graph)}
    calls = defaultdict(set)
    for caller, called in re.findall(r'sourcename: "([^"]+)" targetname: "([^"]+)"', graph):
        calls[caller].add(called)

    def below(name):
        return frames.get(name, 0) + 8 + max(map(below, calls[name]), default=0)  # 8: the address of the caller

    return below("net_predict")


@pytest.fixture
def compares(tmp_path):
    """Returns the function that compares the stack that net.c states with the compiler's."""
    version = subprocess.run([CC, "--version"], capture_output=True, text=True, check=True).stdout
    machine = subprocess.run([CC, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    if "clang" in version or not machine.startswith("x86_64"):
        pytest.skip("the numbers are those of GCC for x86-64")

    def compare():
        stated = re.search(r"stack: at most about (\d+) bytes .* (\d+) with", (tmp_path / "net.c").read_text()).groups()
        for size, options in zip(map(int, stated), BUILDS, strict=True):
            command = [CC, "-std=c99", "-ffp-contract=off", *options, "-fcallgraph-info=su", "-c", "net.c"]
            subprocess.run(command, cwd=tmp_path, check=True)
            actual = deepest((tmp_path / "net.ci").read_text())
            assert size / 2 <= actual <= size, (size, actual, options)

    return compare


@pytest.mark.parametrize(
    ("name", "dtype"), [("lenet", "float32"), ("winograd", "float64"), ("depthwise", "float32"), ("mlp", "float64")]
)
def test_the_comment_states_the_stack(name, dtype, compares, tmp_path):
    layers, shape = NETS[name]
    minidl.export_c(Sequential(layers, input_shape=shape, dtype=dtype), tmp_path / "net.c")
    compares()


@pytest.mark.parametrize("groups", [1, 8])
def test_the_comment_states_the_stack_of_integers(groups, compares, tmp_path):
    def add(label, inputs):
        return Add(label, inputs, (5, 6), 4, LOW, HIGH)

    rng = np.random.default_rng(0)
    first, last = rng.integers(-9, 10, (8, 8 // groups, 3, 3)), rng.integers(-9, 10, (4, 8, 6, 6))
    steps = [(convolution(first, groups=groups), (0,), (8, 6, 6)), (add, (1, 1), (8, 6, 6))]
    write(program_of((8, 8, 8), *steps, (convolution(last), (2,), (4, 1, 1))), tmp_path / "net.c")
    compares()
