"""The weights of Winograd's algorithm F(4x4, 3x3), transformed as by the kernel: G g G^T in float64, rounded once."""

from __future__ import annotations

import numpy as np

from minidl.utils.arrays import Array

P1, Q1 = 0.6875, 1.5  # the points, and their squares
P2, Q2 = P1 * P1, Q1 * Q1
SCALE_P = 1 / (2 * P2 * (P2 - Q2))
SCALE_Q = 1 / (2 * Q2 * (Q2 - P2))
SCALE_0 = 1 / (P2 * Q2)


def transformed_weights(weight: Array) -> Array:
    """Returns the transformed weights (6, 6, channels, filters) of weights (channels, 3, 3, filters), in their dtype.

    Each operation is that of `weight_line` in minidl_c/kernels/winograd_tiles.h, in its order.
    """
    g = weight.astype(np.float64)
    half = [_line(g[:, 0, s], g[:, 1, s], g[:, 2, s]) for s in range(3)]
    full = [_line(half[0][i], half[1][i], half[2][i]) for i in range(6)]
    return np.array(full).astype(weight.dtype)


def _line(g0: Array, g1: Array, g2: Array) -> list[Array]:
    """Returns G g."""
    even_p, even_q = (g0 + P2 * g2) * SCALE_P, (g0 + Q2 * g2) * SCALE_Q
    odd_p, odd_q = P1 * SCALE_P * g1, Q1 * SCALE_Q * g1
    return [g0 * SCALE_0, even_p + odd_p, even_p - odd_p, even_q + odd_q, even_q - odd_q, g2]
