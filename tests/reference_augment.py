"""Reference cutout; `what` as in dropout_bits of reference.py."""

import numpy as np
from reference import dropout_bits


# ---- cutout --------------------------------------------------------------------------------------
def cutout_boxes(rows, shape, size, rate=1.0, **what):
    """Returns a mask (n, 1, h, w) of the boxes of the examples with these ids."""
    bits = dropout_bits(4, rows, **what).astype(object)  # Python ints
    inside = np.zeros((len(bits), 1, *shape[1:]), bool)
    for mask, (row, column, decision, _) in zip(inside[:, 0], bits, strict=True):
        top, left = (b * n >> 32 for b, n in zip((row, column), shape[1:], strict=True))
        top, left = top - size[0] // 2, left - size[1] // 2
        if decision < rate * 2**32:
            mask[max(top, 0) : max(top + size[0], 0), max(left, 0) : max(left + size[1], 0)] = True
    return inside
