"""sum_of_products: as the NumPy reference over random geometries, with and without products of bytes; every refusal."""

import numpy as np
import pytest
from integer_programs import Drawn, check
from slow_marks import slow_after

from minidl.quantization import program as p
from minidl_c.cpu import has_vnni
from minidl_c.integer.sum_of_products import SumOfProductsOp
from minidl_c.runtime.single_op import forward_batch

PLAIN = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0)}
each_seed = pytest.mark.parametrize("seed", slow_after(60, range(300)))


@each_seed
def test_random_convolutions(seed):
    rng = np.random.default_rng(seed)
    drawn = Drawn(rng, tuple(int(k) for k in rng.integers(1, (12, 10, 10))), extreme=seed % 4 == 0)
    drawn.sum_of_products(0)
    check(drawn, num_threads=1 + seed % 3)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
@pytest.mark.parametrize(
    ("shape", "fixed"),
    [
        ((1, 9, 9), {"kernel": (5, 5), "padding": (2, 2, 2, 2), "dilation": (1, 1), "groups": 1}),
        ((2, 5, 9), {"kernel": (3, 3), "dilation": (2, 2), "padding": (4, 0, 3, 2), "groups": 1}),
        ((13, 6, 6), {"kernel": (3, 3), "groups": 13, "outputs": 26, "dilation": (1, 1)}),
        ((12, 5, 7), {"kernel": (2, 3), "groups": 2, "outputs": 10, "dilation": (1, 1)}),
        ((7, 4, 3), PLAIN | {"kernel": (4, 3), "groups": 1, "outputs": 9}),
        ((1, 4, 3), PLAIN | {"kernel": (4, 3), "groups": 1, "outputs": 9}),
        ((70, 1, 1), PLAIN | {"kernel": (1, 1), "groups": 1, "outputs": 33}),
        ((3, 1, 1), {"kernel": (3, 3), "padding": (5, 4, 3, 6), "stride": (2, 1), "dilation": (1, 2), "groups": 1}),
        ((8, 7, 2), PLAIN | {"kernel": (1, 1), "groups": 1, "outputs": 8}),
    ],
    ids=str,
)
def test_geometries(shape, fixed, n):
    for seed, threads in enumerate((1, 2, 3)):
        drawn = Drawn(np.random.default_rng(seed), shape)
        drawn.sum_of_products(0, **fixed)
        check(drawn, n, threads)


def arguments(rng, shape=(5, 6, 7), outputs=6, kernel=(3, 2), groups=1):
    weights = rng.integers(-127, 128, (outputs, shape[0] // groups, *kernel)).astype(np.int8)
    numbers = [
        rng.integers(low, high, outputs).astype(np.int32) for low, high in ((-999, 999), (2**29, 2**31), (38, 42))
    ]
    return {
        "shape": shape, "weights": weights, "biases": numbers[0], "multipliers": numbers[1], "shifts": numbers[2],
        "x_zero_point": 3, "zero_point": -4, "groups": groups,
    }  # fmt: skip


@pytest.mark.skipif(not has_vnni(), reason="the processor has no products of bytes")
@pytest.mark.parametrize("seed", range(20))
def test_products_of_bytes_change_no_bit(seed):
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 3]))
    given = arguments(rng, (3 * int(rng.integers(1, 8)), 6, 7), 3 * int(rng.integers(1, 8)), (3, 2), groups)
    given["padding"] = tuple(int(k) for k in rng.integers(0, 3, 4))
    results = []
    for vnni in (False, True):
        op = SumOfProductsOp(**given, vnni=vnni)
        x = np.random.default_rng(seed).integers(0, 256, (20, *op.in_shape, 4)).astype(np.uint8)
        y = np.empty((20, *op.out_shape), np.float32)
        forward_batch(op, x.view(np.float32)[..., 0], y)
        results.append(y.view(np.uint8).copy())
    assert np.array_equal(*results) and len(np.unique(results[0])) > 2


def test_the_largest_sums():
    """A sum of 2**31 - 1 is computed, and refused with one more."""
    weights, limit = np.full((2, 4, 1, 1), 127, np.int8), p.SUM_LIMIT - 4 * 127 * 255
    numbers = [np.full(2, k, np.int32) for k in (2**30, 38)]
    given = {"shape": (4, 1, 1), "multipliers": numbers[0], "shifts": numbers[1], "x_zero_point": -128, "zero_point": 0}
    SumOfProductsOp(weights=weights, biases=np.array([limit, -limit], np.int32), **given)
    with pytest.raises(
        ValueError, match=f"up to {p.SUM_LIMIT}, which 32 bits hold, got up to {p.SUM_LIMIT + 1} in output 1"
    ):
        SumOfProductsOp(weights=weights, biases=np.array([limit, limit + 1], np.int32), **given)
    with pytest.raises(ValueError, match=f"got up to {p.SUM_LIMIT + 1} in output 0"):
        SumOfProductsOp(weights=-weights, biases=np.array([-limit - 1, 0], np.int32), **given)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"shape": (5, 6)}, TypeError, "shape: expected 3 whole numbers"),
        ({"shape": (5, 0, 7)}, ValueError, "shape"),
        ({"shape": (6, 6, 7)}, ValueError, r"weights: expected shape \(any, 6, any, any\), got \(6, 5, 3, 2\)"),
        ({"weights": np.ones((6, 5, 3, 2))}, TypeError, "weights: expected an array of int8, got float64"),
        ({"weights": [[1]]}, TypeError, "weights: expected an array of int8, got list"),
        ({"weights": np.ma.ones((6, 5, 3, 2), np.int8)}, TypeError, "weights: .* got MaskedArray"),
        ({"weights": np.ones((0, 5, 3, 2), np.int8)}, ValueError, "groups"),
        ({"weights": np.ones((6, 5, 3, 0), np.int8)}, ValueError, "groups"),
        ({"weights": np.ones((6, 5, 7, 2), np.int8)}, ValueError, "within 6 rows, with the padding, got 7"),
        ({"dilation": (1, 7)}, ValueError, "within 7 columns, with the padding, got 8"),
        ({"biases": np.zeros(5, np.int32)}, ValueError, r"biases: expected shape \(6\), got \(5,\)"),
        ({"multipliers": np.full(6, -1, np.int32)}, ValueError, "multiplier: expected a number from 0"),
        ({"shifts": np.full(6, 63, np.int32)}, ValueError, "shift: expected a number from 1 to 62, got 63"),
        ({"shifts": np.full(6, 0, np.int32)}, ValueError, "shift: expected a number from 1 to 62, got 0"),
        ({"groups": 2}, ValueError, "weights: expected shape"),
        ({"groups": 6}, ValueError, "groups: expected a number from 1 to 5"),
        ({"groups": 1.5}, TypeError, "groups: expected a whole number"),
        ({"stride": (0, 1)}, ValueError, "stride"),
        ({"stride": (2**20 + 1, 1)}, ValueError, "stride, padding, dilation: expected numbers up to"),
        ({"padding": (1, 1)}, TypeError, "padding: expected 4 whole numbers"),
        ({"padding": (0, -1, 0, 0)}, ValueError, "padding"),
        ({"x_zero_point": 128}, ValueError, "x_zero_point: expected a number from -128 to 127, got 128"),
        ({"zero_point": -129}, ValueError, "zero_point: expected a number from -128"),
        ({"low": 5, "high": 4}, ValueError, "high: expected at least low, 5, got 4"),
        ({"back": -1}, ValueError, "back: expected a number from 0"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_refusals(changes, error, message):
    with pytest.raises(error, match=message):
        SumOfProductsOp(**(arguments(np.random.default_rng(0)) | changes))
