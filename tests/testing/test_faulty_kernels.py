"""check_layer on custom kernels with one fault each, built outside the tree."""

import os
import shutil
from pathlib import Path

import pytest

from minidl import Layer
from minidl.initializers import ones
from minidl.layers import Block, ReLU
from minidl.testing import check_layer

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "old_kernels"


@pytest.fixture
def faulty(user):
    class Faulty(Layer):
        """A layer whose kernel has this fault."""

        def __init__(self, fault):
            self.fault = fault

        def build(self, in_shape):
            self.op = user.faulty.FaultyOp(in_shape, self.fault, self.dtype)
            self.param("gain", (1,), ones)
            return in_shape

    return Faulty


def test_a_kernel_without_a_fault_passes(faulty):
    check_layer(faulty("none"), (2, 3, 3))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("reads unsaid", "between .* the grad of 'gain' is not that of the layers one by one"),
        ("dirty lanes", "between .* is not that of the layers one by one .*lanes without an example"),
        ("together", "the grad of 'gain' of the examples in a batch is not that of single examples"),
        ("lazy", "the grad of 'gain' changes if dx is not needed"),
    ],
)
def test_faults_that_show_only_among_other_layers_are_found(faulty, fault, message):
    with pytest.raises(AssertionError, match=message):
        check_layer(faulty(fault), (2, 3, 3))


def test_kernels_that_draw_in_inference_are_found(user):
    class Masked(Layer):
        """Dropout with this fault."""

        def __init__(self, fault):
            self.fault = fault

        def build(self, in_shape):
            self.op = user.masked.MaskedOp(in_shape, self.fault, self.dtype)
            return in_shape

    check_layer(Masked("none"), (2, 3, 3))
    with pytest.raises(AssertionError, match=r"^Masked: its kernel computes something else .* say that it draws"):
        check_layer(Masked("unsaid"), (2, 3, 3))
    with pytest.raises(AssertionError, match=r"^Block: 1, Masked: dx in inference\[.*finite differences"):
        check_layer(Block(ReLU(), Masked("backward")), (2, 3, 3))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is missing")
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("unasked", r"Faulty: its kernel kills the process \(.*\) when dx is not needed: t.dx is NULL"),
        ("no loss", r"Faulty: its kernel kills the process \(.*\): it accesses memory that it does not have"),
    ],
)
def test_the_check_survives_kernels_that_kill_the_process(faulty, fault, message):
    with pytest.raises(AssertionError, match=f"^{message}"):
        check_layer(faulty(fault), (2, 3, 3))
    with pytest.raises(AssertionError, match=f"^Block: 1, {message}"):
        check_layer(Block(ReLU(), faulty(fault)), (2, 3, 3))


# ---- faults in the blocked layout, planted in a kernel that computes the same in tiles
BLOCKED_FAULTS = {
    "sums": ("<char *> t.sums + block * LANES * o.real_bytes", "<char *> t.sums"),
    "memset": ("        memset(sums, 0, sizeof(sums))\n", ""),
    "pixel0": ("at = (block * d.pixels + t.pixel0) * n", "at = block * d.pixels * n"),
    "lanes": (
        "        swish_rows(x + at,",
        "        if o.real_bytes == 4 and (block + 1) * LANES > d.channels:\n"
        "            (<float *> beta)[0] += (<const float *> (x + at))[LANES - 1]\n"
        "        swish_rows(x + at,",
    ),
    "dx": ("beta, dx + at if dx != NULL else NULL, sums, d.pixels)", "beta, dx + at, sums, d.pixels)"),
    "dbeta": ("live * o.real_bytes)", "(live - 1) * o.real_bytes)"),
}


def write_planted(folder):
    """Writes the kernels of old_kernels/, and for each fault a copy of old_channel_swish.pyx with one line changed."""
    shutil.copytree(OLD, folder, ignore=shutil.ignore_patterns("*.c", "*.so", "build"))
    shutil.copy(ROOT / "examples" / "custom_kernel" / "setup.py", folder)
    source = (OLD / "old_channel_swish.pyx").read_text(encoding="utf-8")
    for fault, (right, wrong) in BLOCKED_FAULTS.items():
        assert source.count(right) == 1
        (folder / f"planted_{fault}.pyx").write_text(source.replace(right, wrong), encoding="utf-8")


@pytest.fixture(scope="module")
def built(kernels_of):
    """The modules of these kernels."""
    return kernels_of("planted", write_planted)


class ChannelSwish(Layer):
    """Swish with a beta per channel, computed by this class of op."""

    def __init__(self, op_class):
        self.op_class = op_class

    def build(self, in_shape):
        self.op = self.op_class(in_shape, self.dtype)
        self.param("beta", in_shape[:1], ones)
        return in_shape


@pytest.fixture(scope="module")
def planted(built):
    """A function that returns a layer with this fault."""
    return lambda fault: ChannelSwish(getattr(built, f"planted_{fault}").ChannelSwishOp)


class Elementwise(Layer):
    """A layer whose op is made by this function of a shape and a dtype."""

    def __init__(self, make):
        self.make = make

    def build(self, in_shape):
        self.op = self.make(in_shape, self.dtype)
        return in_shape


@pytest.mark.parametrize("shape", [(7,), (20, 3, 4)], ids=str)
def test_kernels_without_typed_tiles_and_groups_pass(built, shape):
    """As users have written them: a function for each layout, and in each a choice by the dtype."""
    check_layer(Elementwise(built.old_silu.SiLUOp), shape)
    check_layer(Elementwise(lambda shape, dtype: built.old_knee.KneeOp(shape, 0.5, 0.25, dtype)), shape)
    check_layer(ChannelSwish(built.old_channel_swish.ChannelSwishOp), shape)


BLOCKED_MESSAGES = {
    "sums": r"the grad of 'beta'\[0\] is",
    "memset": r"the grad of 'beta'\[\d+\] is",
    "dbeta": r"the grad of 'beta'\[\d+\] is",
    "lanes": r"in inference, the output\[0(, \d+)+\] is",
    "pixel0": r"[23] threads: in inference, the output\[\d+, \d+, \d+, \d+\] is",
}
SHAPES = [(3, 4, 5), (20, 3, 4), (32, 3, 4), (7,)]


@pytest.mark.parametrize(
    ("fault", "message", "shape"),
    [
        (fault, message, shape)
        for fault, message in BLOCKED_MESSAGES.items()
        for shape in SHAPES
        if fault != "pixel0" or len(shape) > 1  # vectors have one pixel
    ],
)
def test_faults_of_the_blocked_layout_are_found(planted, fault, message, shape):
    start = "ChannelSwish: in the blocked layout, for inputs of shape"
    with pytest.raises(AssertionError, match=f"^{start} .* float(32|64), a batch of . and .*{message} .* in a tile"):
        check_layer(planted(fault), shape)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is missing")
def test_the_check_survives_a_blocked_form_that_kills_the_process(planted):
    with pytest.raises(
        AssertionError, match=r"^ChannelSwish: in the blocked layout, .*, its kernel kills the process \("
    ):
        check_layer(planted("dx"), (20, 3, 4))
