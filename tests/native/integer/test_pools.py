"""pools: maxima and means of windows, as the NumPy reference has them; every refusal."""

import numpy as np
import pytest
from integer_programs import Drawn, check
from slow_marks import slow_after

from minidl_c.integer.pools import AveragePoolOp, MaxPoolOp

COUNTS = {"row_counts": (1,), "column_counts": (2,), "factors": {2: (2**30, 33)}, "x_zero_point": 0, "zero_point": 0}


@pytest.mark.parametrize("kind", ["max_pool", "average"])
@pytest.mark.parametrize("seed", slow_after(30, range(150)))
def test_random_windows(kind, seed):
    rng = np.random.default_rng(seed)
    drawn = Drawn(rng, tuple(int(k) for k in rng.integers(1, (12, 10, 10))), extreme=seed % 4 == 0)
    getattr(drawn, kind)(0)
    check(drawn, num_threads=1 + seed % 3)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"shape": (2, 3)}, TypeError, "shape"),
        ({"rows": ()}, TypeError, "rows: expected a list of ranges"),
        ({"rows": 3}, TypeError, "rows: expected a list of ranges"),
        ({"rows": ((0, 1, 2),)}, TypeError, "rows: expected 2 whole numbers"),
        ({"rows": ((0, 5),)}, ValueError, "rows: expected ranges of at least . inside 0 to 4, got"),
        ({"columns": ((2, 1),)}, ValueError, "columns: expected ranges"),
        ({"columns": ((-1, 1),)}, ValueError, "columns"),
    ],
)
def test_windows_that_both_refuse(changes, error, message):
    valid = {"shape": (3, 4, 5), "rows": ((0, 2),), "columns": ((1, 5),)}
    for op, others in ((MaxPoolOp, {}), (AveragePoolOp, COUNTS)):
        op(**valid, **others)
        with pytest.raises(error, match=message):
            op(**valid | changes, **others)


def test_other_refusals():
    valid = {"shape": (3, 4, 5), "rows": ((0, 2),), "columns": ((1, 5),)}
    with pytest.raises(ValueError, match="rows: expected ranges of at least 1"):
        MaxPoolOp((3, 4, 5), ((2, 2),), ((0, 1),))
    with pytest.raises(ValueError, match="steps"):
        MaxPoolOp(**valid, steps=(0, 1))
    with pytest.raises(ValueError, match=r"factors: expected one for 2, got those of \[3\]"):
        AveragePoolOp(**valid, **COUNTS | {"factors": {3: (1, 1)}})
    with pytest.raises(TypeError, match="row_counts: expected 1 whole numbers"):
        AveragePoolOp(**valid, **COUNTS | {"row_counts": (1, 2)})
    with pytest.raises(ValueError, match="shift: expected a number from 1 to 62"):
        AveragePoolOp(**valid, **COUNTS | {"factors": {2: (1, 63)}})
    with pytest.raises(ValueError, match="shape: expected at most 8421504 pixels"):
        AveragePoolOp((1, 2**12, 2**12), ((0, 2),), ((1, 5),), **COUNTS)
