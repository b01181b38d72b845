"""Rescaling: real factors as multipliers and shifts, and the sums that fit 32 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minidl.quantization.program import HIGH, LOW, SUM_LIMIT, Int8

MULTIPLIER_BITS = 31
MOST_SHIFT, MOST_ADD_SHIFT = 62, 30
STEPS = HIGH - LOW  # between two numbers of a value: at most


def rescaling(factor: float) -> tuple[int, int]:
    """Returns a multiplier, 0 or from 2**30 to 2**31 - 1, and a shift from 1 to 62, whose quotient is the factor.

    A factor below 2**-32 rescales all sums to 0. Raises ValueError for a factor of 2**30 or more.
    """
    if not 0 <= factor < 2.0**30:
        raise ValueError(f"expected a factor from 0 to 2**30 between the scales of input and output, got {factor:g}")
    mantissa, exponent = math.frexp(factor)
    multiplier = round(mantissa * 2**MULTIPLIER_BITS)
    if multiplier == 2**MULTIPLIER_BITS:
        multiplier, exponent = multiplier // 2, exponent + 1
    shift = MULTIPLIER_BITS - exponent
    if shift < 1:
        raise ValueError(f"expected a factor from 0 to 2**30 between the scales of input and output, got {factor:g}")
    return (multiplier, shift) if factor and shift <= MOST_SHIFT else (0, 1)


def rescaling_of_sum(factors: Sequence[float]) -> tuple[tuple[int, ...], int]:
    """Returns a multiplier for each term of a sum, and the common shift: the largest with which the sum fits 32 bits.

    Raises ValueError if there is none.
    """
    for shift in range(MOST_ADD_SHIFT, 0, -1):
        multipliers = tuple(round(factor * 2**shift) for factor in factors)
        if STEPS * sum(multipliers) + 2 ** (shift - 1) <= SUM_LIMIT:
            return multipliers, shift
    largest = max(factors)
    raise ValueError(f"expected scales of the terms that fit that of the sum, got one {largest:g} times as large")


def largest_sum(weights: Int8, biases: np.ndarray) -> np.ndarray:
    """Returns a bound of each channel's sum, in any order of its terms, and with any zero point."""
    sums: np.ndarray = np.abs(biases) + (STEPS + 1) * np.abs(weights.astype(np.int64)).sum(axis=(1, 2, 3))
    return sums
