"""upsample2d: forward as numpy.repeat, bit for bit; backward sums each block."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.upsample2d import Upsample2DOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
SPECIAL = (-np.inf, -0.0, 0.0, np.inf, np.nan, 3e38)


def both(check, x, dy, scale, **options):
    op = Upsample2DOp(x.shape[1:], scale, x.dtype.name)
    y, dx = check.output((len(x), *op.out_shape), x.dtype), check.output(x.shape, x.dtype)
    forward_batch(op, x, y, **options)
    backward_batch(op, dy, x, dx, **options)
    return y, dx


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_numpy(check, dtype, n):
    rng = np.random.default_rng(n)
    for scale in [(1, 1), (2, 2), (3, 3), (1, 4), (5, 1), *rng.integers(1, 7, (9, 2)).tolist()]:
        c, h, w = (int(v) for v in rng.integers(1, 7, 3))
        x = check.input(rng.choice([*SPECIAL, *rng.standard_normal(9)], (n, c, h, w)), dtype)
        expected = x.repeat(scale[0], axis=2).repeat(scale[1], axis=3)
        dy = check.input(rng.standard_normal(expected.shape), dtype)
        blocks = dy.astype("f8").reshape(n, c, h, scale[0], w, scale[1])
        bound = ref.rounding(int(np.prod(scale)) + 1, dtype) * np.abs(blocks).sum(axis=(3, 5))
        first = None
        for threads in (1, 2, 3, 8):
            y, dx = both(check, x, dy, scale, num_threads=threads)
            label = f"{dtype} {x.shape} {scale} {threads} threads"
            check.same_bits(y, expected, f"y {label}")
            check.close(dx, blocks.sum(axis=(3, 5)), bound, f"dx {label}")
            first = dx if first is None else first
            check.same_bits(dx, first, f"dx, repeated {label}")
        check.count("upsample2d", dtype)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale": (0, 1)}, "scale: expected numbers from 1"),
        ({"scale": 2}, "scale: expected 2 whole numbers"),
        ({"scale": (2**62, 2**62)}, "output shape: expected at most"),
        ({"in_shape": (3, 4)}, "input shape: expected 3 whole numbers"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Upsample2DOp(**{"in_shape": (2, 3, 4), "scale": (2, 2)} | changes)
