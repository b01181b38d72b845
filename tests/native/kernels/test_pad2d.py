"""pad2d: forward and backward, bit for bit as numpy.pad and its inverse."""

import numpy as np
import pytest

from minidl_c.kernels.pad2d import Pad2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
SPECIAL = (-np.inf, -0.0, 0.0, np.inf, np.nan, 3e38)


def geometries(rng, count):
    """Draws (c, h, w) and (top, bottom, left, right)."""
    for _ in range(count):
        yield tuple(int(v) for v in rng.integers(1, 8, 3)), tuple(int(v) for v in rng.integers(0, 5, 4))


def both(check, x, dy, padding, value, **options):
    op = Pad2DOp(x.shape[1:], padding, value, x.dtype.name)
    y, dx = check.output((len(x), *op.out_shape), x.dtype), check.output(x.shape, x.dtype)
    forward_batch(op, x, y, **options)
    backward_batch(op, dy, x, dx, **options)
    return y, dx


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_numpy(check, dtype, n):
    rng = np.random.default_rng(n)
    for shape, padding in geometries(rng, 30):
        top, bottom, left, right = padding
        value = float(rng.choice([0.0, -0.0, 1.5, -1e4, 3e38]))
        x = check.input(rng.choice([*SPECIAL, *rng.standard_normal(9)], (n, *shape)), dtype)
        expected = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)
        dy = check.input(rng.standard_normal(expected.shape), dtype)
        inner = dy[:, :, top : top + shape[1], left : left + shape[2]]
        for threads in (1, 2, 3, 8):
            y, dx = both(check, x, dy, padding, value, num_threads=threads)
            check.same_bits(y, expected, f"y {dtype} {x.shape} {padding} {threads} threads")
            check.same_bits(dx, inner, f"dx {dtype} {x.shape} {padding} {threads} threads")
        check.count("pad2d", dtype)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding": (0, -1, 0, 0)}, "padding: expected numbers from 0"),
        ({"padding": (1, 1)}, "padding: expected 4 whole numbers"),
        ({"padding": (2**62, 2**62, 2**62, 0)}, "output shape: expected at most"),
        ({"padding": (2**63, 0, 0, 0)}, "padding: expected numbers from 0"),
        ({"in_shape": (3, 4)}, "input shape: expected 3 whole numbers"),
        ({"value": "0"}, None),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Pad2DOp(**{"in_shape": (2, 3, 4), "padding": (0, 0, 0, 0)} | changes)
