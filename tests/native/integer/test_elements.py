"""elements: sums, products, tables and copies, as the NumPy reference has them; every refusal."""

import numpy as np
import pytest
from integer_programs import Drawn, check
from slow_marks import slow_after

from minidl_c.integer.elements import AddOp, JoinOp, LookupOp, MultiplyOp, RearrangeOp

KINDS = ("sum", "product", "gate", "lookup", "rearrange", "stack")


def draw(kind, rng, extreme):
    drawn = Drawn(rng, tuple(int(k) for k in rng.integers(1, (12, 8, 8))), extreme)
    c, h, w = drawn.values[0].shape
    if kind == "sum":
        drawn.sum(0, *(drawn.lookup(0) for _ in range(rng.integers(0, 4))))
    elif kind == "product":
        drawn.product(drawn.lookup(0), 0)
    elif kind == "gate":
        drawn.product(
            0, drawn.sum_of_products(0, groups=1, outputs=c, kernel=(h, w), padding=(0,) * 4, dilation=(1, 1))
        )
    elif kind == "lookup":
        drawn.lookup(0)
    elif kind == "rearrange":
        drawn.rearrange([0, *(drawn.alike(0) for _ in range(rng.integers(0, 3)))])
    else:
        inputs = [0, *(drawn.alike(0) for _ in range(rng.integers(1, 3)))]
        drawn.rearrange(inputs, (len(inputs) * c, h, w), np.arange(len(inputs) * c * h * w))
    return drawn


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", slow_after(15, range(100)))
def test_random_operations(kind, seed):
    check(draw(kind, np.random.default_rng(seed), seed % 4 == 0), num_threads=1 + seed % 3)


@pytest.mark.parametrize("channels", [4, 8, 12, 5])
def test_stacked_channels(channels):
    """Values of whole words are only joined; others are moved byte by byte."""
    drawn = Drawn(np.random.default_rng(0), (channels, 3, 2))
    inputs = [0, drawn.alike(0), drawn.alike(0)]
    drawn.rearrange(inputs, (3 * channels, 3, 2), np.arange(18 * channels))
    drawn.sum_of_products(len(drawn.operations))
    check(drawn, 17, 2)


ADD = {"shape": (5, 2, 2), "multipliers": [1000, -3], "zero_points": [1, 2], "shift": 10, "zero_point": 0}
MULTIPLY = {
    "shape": (5, 2, 2), "b_shape": (5, 1, 1), "multiplier": 1, "shift": 1, "a_zero_point": 0, "b_zero_point": 0,
    "zero_point": 0, "second_back": 1,
}  # fmt: skip
LOOKUP = {"shape": (1, 1, 1), "table": np.zeros(256, np.int8)}
JOIN = {"first": (1, 2, 2), "second": (3, 1, 1), "first_back": 1}
REARRANGE = {"in_shapes": [(2, 2, 1)], "out_shape": (3, 1, 1), "index": np.zeros(3, np.int32), "zero_point": 0}


@pytest.mark.parametrize(
    ("op", "valid", "changes", "error", "message"),
    [
        (AddOp, ADD, {"multipliers": [1, 2, 3]}, ValueError, "multipliers: expected one for each term"),
        (AddOp, ADD, {"multipliers": 3}, TypeError, "multipliers, zero_points: expected lists"),
        (AddOp, ADD, {"multipliers": []}, TypeError, "multipliers, zero_points: expected lists"),
        (AddOp, ADD | {"second_back": 1}, {"multipliers": [1], "zero_points": [0]}, ValueError, "multipliers"),
        (AddOp, ADD, {"shift": 31}, ValueError, "shift: expected a number from 1 to 30"),
        (AddOp, ADD, {"multipliers": [2**24, 0]}, ValueError, "multipliers: expected sums up to 2147483135, which 32"),
        (AddOp, ADD, {"low": 128}, ValueError, "low: expected"),
        (AddOp, ADD, {"second_back": 0.5}, TypeError, "second back: expected a whole number"),
        (MultiplyOp, MULTIPLY, {"b_shape": (5, 2, 1)}, ValueError, r"b_shape: expected \(5, 2, 2\) or \(5, 1, 1\)"),
        (MultiplyOp, MULTIPLY, {"multiplier": 2**31}, ValueError, "multiplier"),
        (MultiplyOp, MULTIPLY, {"b_zero_point": None}, TypeError, "b_zero_point"),
        (LookupOp, LOOKUP, {"table": np.zeros(255, np.int8)}, ValueError, "table"),
        (LookupOp, LOOKUP, {"table": None}, TypeError, "table"),
        (RearrangeOp, REARRANGE, {"index": np.array([0, 1, 4], np.int32)}, ValueError, "index: expected numbers from"),
        (RearrangeOp, REARRANGE, {"index": np.array([0, 1, -2], np.int32)}, ValueError, "index"),
        (RearrangeOp, REARRANGE, {"index": np.zeros(4, np.int32)}, ValueError, "index"),
        (RearrangeOp, REARRANGE, {"index": np.zeros(3)}, TypeError, "index"),
        (RearrangeOp, REARRANGE, {"in_shapes": []}, TypeError, "in_shapes"),
        (RearrangeOp, REARRANGE, {"in_shapes": [(2, 2)]}, TypeError, "in_shapes"),
        (JoinOp, JOIN, {"second": (0, 1, 1)}, ValueError, "second"),
    ],
)  # fmt: skip
def test_refusals(op, valid, changes, error, message):
    op(**valid)
    with pytest.raises(error, match=message):
        op(**valid | changes)
