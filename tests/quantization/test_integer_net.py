"""IntegerNet: whole random programs against the reference, in plans of all kinds; what it refuses."""

import hashlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import reference_integer
from integer_programs import Drawn, check, grown, model_of
from slow_marks import slow_after

import minidl_c
from minidl import Sequential, Trainer
from minidl.layers import Dense, Flatten, ReLU, Rescale, Residual
from minidl.optimizers import SGD
from minidl.quantization import program as p
from minidl.quantization.integer_net import IntegerNet

CASES = 40
OTHER_ISAS = [isa for isa in minidl_c._built() if isa in minidl_c.cpu.supported() and isa != minidl_c.isa]
PLAIN = {"groups": 1, "stride": (1, 1), "dilation": (1, 1)}


def draw(seed):
    """Returns a program of up to 11 operations."""
    return grown(np.random.default_rng(seed), 11, extreme=seed % 10 == 0)


@pytest.mark.parametrize("seed", slow_after(CASES, range(300)))
def test_random_programs(seed):
    check(draw(seed), num_threads=1 + seed % 3)


def hash_of_all():
    """Returns a hash of the scores of random programs."""
    digest = hashlib.sha256()
    for seed in range(CASES):
        drawn = draw(seed)
        x = drawn.bytes((37, *drawn.values[0].shape)).astype(np.float32)
        digest.update(model_of(drawn.program).predict(x).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("isa", OTHER_ISAS)
def test_instruction_sets_have_equal_bits(isa):
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"PYTHONPATH": path, "MINIDL_ISA": isa}
    code = "from quantization.test_integer_net import hash_of_all; print(hash_of_all())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hash_of_all()


@pytest.fixture
def drawn():
    """A residual net of a vector."""
    drawn = Drawn(np.random.default_rng(5), (6, 4, 4))
    first = drawn.sum_of_products(0, outputs=6, kernel=(3, 3), padding=(1,) * 4, **PLAIN)
    drawn.sum(first, 0)
    drawn.sum_of_products(2, outputs=5, kernel=(4, 4), padding=(0,) * 4, **PLAIN)
    return drawn


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 48, 49, 1025])
def test_rows_are_independent(drawn, n):
    """Of the number of examples and of threads, which share tiles."""
    model, x = model_of(drawn.program), drawn.bytes((n, 6, 4, 4)).astype(np.float32)
    expected = reference_integer.run(drawn.program, x.astype(np.int8))[-1].reshape(n, 5)
    for threads in (1, 2, 3, 8):
        assert np.array_equal(model.layers[0].quantized(model.predict(x, num_threads=threads)), expected)


def test_other_layers_stand_before_and_after_it(drawn):
    """Its values are counted from its own place in the plan."""
    x = drawn.bytes((20, 6, 4, 4)).astype(np.float32)
    alone = model_of(drawn.program).predict(x)
    model = Sequential([Residual(ReLU()), Rescale(0.5), IntegerNet(drawn.program), Dense(3)], input_shape=(6, 4, 4))
    twice = np.maximum(x, 0) + x
    dense = Sequential([Dense(3)], input_shape=(5,))
    dense.load_state_dict({"0.weight": model.params["3.weight"].value, "0.bias": model.params["3.bias"].value})
    middle = model_of(drawn.program).predict(twice / 2)
    assert np.array_equal(model.predict(x), dense.predict(middle)) and not np.array_equal(middle, alone)


def test_a_branch_may_be_quantized(drawn):
    """Beside a branch that is not; the converted form of the blocked layout gives the same bits."""
    x = drawn.bytes((5, 6, 4, 4)).astype(np.float32)
    model = model_of(drawn.program)
    plan, parameters = model.network.segments[0].plan, np.empty(0, np.float32)
    expected, y = model.predict(x), np.empty((5, 5), np.float32)
    plan.blocked_limit = 16
    plan.predict(x.reshape(5, -1), None, parameters, y, 2)
    assert np.array_equal(y, expected)


def test_every_way_to_a_gradient_is_refused(drawn):
    model = model_of(drawn.program)
    x, message = np.zeros((4, 6, 4, 4)), "layer 0, IntegerNet: expected a layer with a gradient"
    with pytest.raises(ValueError, match=message):
        trainer_of(model).fit(x, [0, 1, 2, 3], epochs=1)
    with pytest.raises(ValueError, match=message):
        trainer_of(model).train_batch(x, [0, 1, 2, 3])
    with pytest.raises(ValueError, match=message):
        model.forward(x, training=True)
    with pytest.raises(ValueError, match=message):
        model.input_gradient(x, 0)
    plan = model.network.segments[0].plan
    with pytest.raises(ValueError, match="op 0, QuantizeOp: has no gradient"):
        plan.forward(x.astype(np.float32).reshape(4, -1), np.empty(0, np.float32), np.empty((4, 5), np.float32))


def test_summary_and_evaluation(drawn):
    model = model_of(drawn.program)
    assert model.layers[0].macs == 6 * 6 * 9 * 16 + 5 * 6 * 16 and "IntegerNet" in str(model.summary())
    x = drawn.bytes((30, 6, 4, 4)).astype(np.float32)
    assert 0 <= trainer_of(model).evaluate(x, np.arange(30) % 5)["accuracy"] <= 1


def trainer_of(model):
    return Trainer(model, loss="softmax_cross_entropy", optimizer=SGD(0.1), metrics=["accuracy"])


def table(inputs=(0,)):
    return p.Lookup("0, ReLU", inputs, np.zeros(256, np.int8))


ONE = p.Quantization(1.0, 0)
VECTOR, OTHER = p.Value((3, 1, 1), ONE), p.Value((3, 1, 1), p.Quantization(1.0, 1))


@pytest.mark.parametrize(
    ("values", "operations", "input_shape", "message"),
    [
        ((VECTOR,), (table(),), (3,), "program: expected 2 values of 1 operations, got 1"),
        ((VECTOR,) * 2, (table((1,)),), (3,), "0, ReLU, table: inputs: expected values from 0 to 0"),
        ((VECTOR,) * 2, (table((-1,)),), (3,), "0, ReLU, table: inputs: expected values from 0 to 0"),
        ((VECTOR,) * 2, (table(()),), (3,), "0, ReLU, table: inputs"),
        ((VECTOR, p.Value((4, 1, 1), ONE)), (table(),), (3,), r"shape \(3, 1, 1\), .* got \(4, 1, 1\)"),
        ((VECTOR,) * 2, (table((0, 0)),), (3,), r"0, ReLU, table: inputs: expected 1, got \(0, 0\)"),
        ((VECTOR,) * 2, (p.Multiply("1", (0,), 1, 1),), (3,), "1, product: inputs: expected 2"),
        ((VECTOR,) * 2, (p.Add("1", (0, 0), (1,), 1, -128, 127),), (3,), "1, sum: multipliers: expected one for each"),
        ((VECTOR,), (), (4,), r"expected an input of shape \(3, 1, 1\), that of the program, got \(4,\)"),
        ((VECTOR,), (), (3, 2), "expected an input of shape"),
        ((VECTOR, VECTOR), (p.Add("1, Add", (0, 0), (1, 1), 40, -128, 127),), (3,), "1, Add, sum: shift"),
        ((VECTOR, OTHER), (p.Rearrange("2", (0,), np.zeros(3, np.int32)),), (3,), "2, copy: expected inputs of"),
        ((p.Value((3, 1, 1), p.Quantization(0.0, 1)),), (), (3,), "scale: expected a positive number"),
    ],
)  # fmt: skip
def test_programs_that_do_not_fit(values, operations, input_shape, message):
    program = p.Program(p.QuantizeInput(np.ones(3), np.zeros(3)), values, operations)
    with pytest.raises((ValueError, TypeError), match=message):
        Sequential([IntegerNet(program)], input_shape=input_shape)


@pytest.mark.parametrize(
    ("geometry", "message"),
    [
        ({"dilation": (1,)}, r"dilation: expected 2 whole numbers, got \(1,\)"),
        ({"dilation": (1, 1, 1)}, "dilation: expected 2 whole numbers"),
        ({"dilation": (1, 0)}, r"dilation: expected numbers from 1 .*, got \(1, 0\)"),
        ({"dilation": (1, 3)}, "weights: expected a kernel within 8 columns, with the padding, got 13"),
        ({"dilation": (1, 2**40)}, "stride, padding, dilation: expected numbers up to 1048576"),
        ({"padding": (0, 0, -1, 0)}, r"padding: expected numbers from 0 .*, got \(0, 0, -1, 0\)"),
        ({"padding": (0, 0, 0)}, "padding: expected 4 whole numbers"),
        ({"padding": (0, 0, 0, 2**40)}, "stride, padding, dilation: expected numbers up to 1048576"),
    ],
)
def test_geometries_that_do_not_fit(geometry, message):
    """Of one channel, whose columns fill words of the input."""
    zero, ones = np.zeros(1, np.int32), np.ones((1, 1, 1, 5), np.int8)
    chosen = {"stride": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, **geometry}
    product = p.SumOfProducts("0, Conv2D", (0,), ones, zero, zero + 2**30, zero + 31, **chosen, low=-128, high=127)
    values = p.Value((1, 1, 8), ONE), p.Value((1, 1, 4), ONE)
    program = p.Program(p.QuantizeInput(np.ones(1), np.zeros(1)), values, (product,))
    with pytest.raises((ValueError, TypeError), match=f"0, Conv2D, sum of products: {message}"):
        Sequential([IntegerNet(program)], input_shape=(1, 1, 8))


def test_other_refusals(drawn):
    with pytest.raises(TypeError, match="program: expected a Program, got 3"):
        Sequential([IntegerNet(3)], input_shape=(1,))
    with pytest.raises(ValueError, match=re.escape("dtype: expected 'float32'")):
        Sequential([IntegerNet(drawn.program)], input_shape=(6, 4, 4), dtype="float64")
    with pytest.raises(ValueError, match="expected an input of shape"):
        Sequential([Flatten(), IntegerNet(drawn.program)], input_shape=(6, 4, 4))
