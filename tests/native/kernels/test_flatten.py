"""flatten: copies all bytes into another shape."""

import numpy as np
import pytest

from minidl_c.kernels.flatten import FlattenOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_every_bit(check, dtype, n):
    rng = np.random.default_rng(n)
    for shape in ((1, 1, 1), (3, 4, 5), (1, 1, 17), (16, 4, 4), tuple(rng.integers(1, 9, 3))):
        size = int(np.prod(shape))
        bits = rng.integers(0, 256, n * size * np.dtype(dtype).itemsize, "u1")
        x = bits.view(dtype).reshape(n, *(int(s) for s in shape))  # includes NaN, inf and subnormals
        rows = x.reshape(n, size)
        y, dx = check.output(rows.shape, dtype), check.output(x.shape, dtype)
        op = FlattenOp(x.shape[1:], dtype)
        forward_batch(op, x, y)
        backward_batch(op, rows, x, dx)
        check.same_bits(y, rows, f"y {dtype} {x.shape}")
        check.same_bits(dx, x, f"dx {dtype} {x.shape}")
        check.count("flatten", dtype)
