"""Ranges: the interval of a value's numbers that eight bits represent, from calibration data."""

from __future__ import annotations

import math

import numpy as np

from minidl.quantization.program import HIGH, LOW, Quantization
from minidl.utils.arrays import Array

METHODS = ("auto", "minmax")
SAMPLE = 2**14  # numbers of a value by which a range is chosen
SMALLEST = 1e-250  # of a scale: products of two, and their inverses, are normal numbers
NOTHING = 1e-6  # part of a step that has no place of its own
TOLERATED = 0.05  # mean absolute error of a value by "minmax", over its mean magnitude
SHRINKS = 0.85 ** np.arange(40)  # the parts of minimum and maximum that are tried


class Observer:
    """Minimum, maximum, a sample and the mean of a value's numbers, batch by batch."""

    def __init__(self, n: int) -> None:
        """n: the number of examples that will come."""
        self.low, self.high, self.n = math.inf, -math.inf, n
        self.mean = np.zeros(())  # of each number of an example
        self._parts: list[Array] = []
        self._next = 0  # the place of the next number of the sample, from the next number that comes

    def add(self, x: Array) -> None:
        """Takes the values (m, c, h, w) of some examples; raises ValueError unless they are finite."""
        if not np.isfinite(x).all():
            raise ValueError("expected finite values for the calibration data, got NaN or infinity")
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        self.mean = self.mean + x.sum(axis=0, dtype=np.float64) / self.n
        flat = x.reshape(-1)
        step = max(1, self.n * x[0].size // SAMPLE) | 1  # an odd step visits all columns
        self._parts.append(flat[self._next :: step].copy())
        self._next = (self._next - flat.size) % step

    def range(self, method: str) -> tuple[float, float]:
        """Returns the interval that a method chooses.

        "auto" leaves out rare large numbers only where the others would have few steps.
        """
        if method == "minmax" or self.low == self.high:
            return self.low, self.high
        sample = np.concatenate(self._parts).astype(np.float64)
        if _error(sample, self.low, self.high) <= TOLERATED * np.abs(sample).mean():
            return self.low, self.high
        return self._least_error(sample)

    def _least_error(self, sample: Array) -> tuple[float, float]:
        """Returns the interval whose quantization has the least mean absolute error; its ends move one at a time."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        tried_low, tried_high = (np.unique(end * SHRINKS) for end in (low, high))
        for _ in range(2):
            high = min((_error(sample, low, end), end) for end in tried_high)[1]
            low = min((_error(sample, end, high), end) for end in tried_low)[1]
        return low, high


def _error(sample: Array, low: float, high: float) -> float:
    made = quantization(low, high)
    return float(np.abs(dequantized(quantized(sample, made), made) - sample).mean())


def quantization(low: float, high: float) -> Quantization:
    """Returns the quantization of the numbers from low to high, and of 0, which is exact.

    The scale is as much larger than the range needs as puts 0 on a step, so that no number is cut off.
    Raises ValueError if the interval is too large for float64. An interval of 0 alone has a scale of 1.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / (HIGH - LOW) or 1.0
    if not SMALLEST <= scale < math.inf:
        raise ValueError(f"expected numbers whose range float64 can hold, got {low:g} to {high:g}")
    low, high = (0.0 if abs(end) < NOTHING * scale else end for end in (low, high))
    exact = LOW - low / scale
    points = (min(max(round_to(exact), LOW), HIGH) for round_to in (math.floor, math.ceil))
    found, zero_point = min((_covering(low, high, point), point) for point in points)
    return Quantization(float(found) or scale, zero_point)


def _covering(low: float, high: float, zero_point: int) -> float:
    """Returns the least scale with which the numbers from low to high fit; infinity if there is none."""
    ends = ((low, LOW - zero_point), (high, HIGH - zero_point))
    return max(end / steps if steps else math.inf for end, steps in ends if end) if low < high else 0.0


def quantized(x: Array, made: Quantization) -> Array:
    """Returns the nearest int8 numbers of real x; a half is rounded up."""
    steps = np.floor(np.asarray(x, np.float64) / made.scale + (made.zero_point + 0.5))
    return np.clip(steps, LOW, HIGH).astype(np.int8)


def dequantized(q: Array, made: Quantization) -> Array:
    """Returns the real numbers that int8 numbers stand for, in float64."""
    real: Array = made.scale * (q.astype(np.float64) - made.zero_point)
    return real
