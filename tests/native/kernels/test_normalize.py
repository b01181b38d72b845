"""normalize: (x - mean) / std, bit for bit as NumPy computes it in the same dtype."""

import numpy as np
import pytest

from minidl_c.kernels.normalize import NormalizeOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
SPECIAL = (-np.inf, -0.0, 0.0, np.inf, np.nan, 3e38, -1e4, 255.0)


def both(check, x, dy, mean, std, **options):
    op = NormalizeOp(x.shape[1:], mean, std, x.dtype.name)
    y, dx = check.output(x.shape, x.dtype), check.output(x.shape, x.dtype)
    forward_batch(op, x, y, **options)
    backward_batch(op, dy, x, dx, **options)
    return y, dx


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_numpy(check, dtype, n):
    rng = np.random.default_rng(n)
    for shape in ((1,), (17,), (100,), (3, 5), (1, 4, 4), (3, 5, 7), (2, 2, 3, 4)):
        mean, std = rng.standard_normal(shape[0]) * 100, rng.random(shape[0]) * 100 + 1e-3
        x = check.input(rng.choice([*SPECIAL, *rng.standard_normal(20)], (n, *shape)), dtype)
        dy = check.input(rng.choice([*SPECIAL, *rng.standard_normal(20)], (n, *shape)), dtype)
        column = (-1,) + (1,) * (len(shape) - 1)
        wide_mean, wide_std = mean.astype(dtype).reshape(column), std.astype(dtype).reshape(column)
        for threads in (1, 2, 3, 8):
            y, dx = both(check, x, dy, mean.tolist(), std.tolist(), num_threads=threads)
            label = f"{dtype} {x.shape} {threads} threads"
            with np.errstate(over="ignore"):
                check.same_bits(y, (x - wide_mean) / wide_std, f"y {label}")
                check.same_bits(dx, dy / wide_std, f"dx {label}")
        check.count("normalize", dtype)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.0], [1.0], "expected 2 numbers, one per channel, got 1 and 1"),
        ([0.0, 0.0], [1.0, 1.0, 1.0], "got 2 and 3"),
        ([0.0, np.nan], [1.0, 1.0], "can hold and divide, got nan"),
        ([0.0, 1e39], [1.0, 1.0], "float32 can hold"),
        ([0.0, 0.0], [1.0, 0.0], "got 0.0 and 0.0"),
        ([0.0, 0.0], [1.0, -1.0], "got 0.0 and -1.0"),
        ([0.0, 0.0], [1.0, 1e-39], "got 0.0 and 1e-39"),  # flushed to zero
        ([0.0, 1e20], [1.0, 1e-20], "divide"),  # the value of lanes without an example would overflow
        ([0.0, 0.0], [1.0, np.inf], "got 0.0 and inf"),
        (0.0, 1.0, None),
        (["0", "1"], ["1", "1"], None),
        (None, None, None),
    ],
)
def test_invalid_numbers_are_refused(mean, std, message):
    with pytest.raises((ValueError, TypeError), match=message):
        NormalizeOp((2, 3, 3), mean, std)
