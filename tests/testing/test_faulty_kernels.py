"""check_layer on custom kernels with one fault each, built outside the tree."""

import os

import pytest

from minidl import Layer
from minidl.initializers import ones
from minidl.layers import Block, ReLU
from minidl.testing import check_layer


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
