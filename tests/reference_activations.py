"""Reference activations: functions and derivatives in NumPy and float64, written for clarity.

FUNCTIONS: name -> (f(x, a), its derivative f'(x, a)); `a` is the function's argument, if it has one. At infinity
both return their limits.
"""

import math

import numpy as np

DENSITY = 1 / math.sqrt(2 * math.pi)


def at_infinity(f, low, high):
    """Returns f with its limits at -inf and inf, where the formula would give infinity times 0."""

    def everywhere(x, a):
        with np.errstate(all="ignore"):
            y = f(np.where(np.isinf(x), 0, x), a)
        return np.select([x == -np.inf, x == np.inf], [low, high], y)

    return everywhere


def normal_cdf(x):
    return np.vectorize(lambda v: math.erfc(-v / math.sqrt(2)) / 2, otypes=[float])(x)


def sigmoid(x):
    return np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x)))


def cubic(x):
    """Returns 2 u of gelu_tanh, and its derivative. Beyond +-100 its sigmoid is 0 or 1."""
    x, factor = np.clip(x, -100, 100), 2 * math.sqrt(2 / math.pi)
    return factor * (x + 0.044715 * x**3), factor * (1 + 3 * 0.044715 * x**2)


def gelu_tanh_slope(x, a):
    s = sigmoid(cubic(x)[0])
    return s + np.clip(x, -100, 100) * s * (1 - s) * cubic(x)[1]


def silu_slope(x, a):
    s = sigmoid(x)
    return s * (1 + np.clip(x, -1000, 1000) * (1 - s))


def hardswish_slope(x, a):
    return np.select([x <= -3, x < 3], [0, x / 3 + 0.5], 1)


FUNCTIONS = {
    "leaky_relu": (lambda x, a: np.where(x > 0, x, a * x), lambda x, a: np.where(x > 0, 1, a)),
    "elu": (
        lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
        lambda x, a: np.where(x > 0, 1, a * np.exp(np.minimum(x, 0))),
    ),
    "gelu": (
        at_infinity(lambda x, a: x * normal_cdf(x), 0, np.inf),
        at_infinity(lambda x, a: normal_cdf(x) + x * DENSITY * np.exp(-x * x / 2), 0, 1),
    ),
    "gelu_tanh": (at_infinity(lambda x, a: x * sigmoid(cubic(x)[0]), 0, np.inf), at_infinity(gelu_tanh_slope, 0, 1)),
    "silu": (at_infinity(lambda x, a: x * sigmoid(x), 0, np.inf), at_infinity(silu_slope, 0, 1)),
    "sigmoid": (lambda x, a: sigmoid(x), lambda x, a: sigmoid(x) * sigmoid(-x)),
    "tanh": (lambda x, a: np.tanh(x), lambda x, a: 1 - np.tanh(x) ** 2),
    "hardswish": (
        at_infinity(lambda x, a: x * np.clip(x + 3, 0, 6) / 6, 0, np.inf),
        at_infinity(hardswish_slope, 0, 1),
    ),
}


def error(name, x, a, dtype):
    """Returns the allowed errors of (y, f'(x)) for x of that dtype.

    y is accurate to a few units in the last place plus the error of the exponential's argument; where a factor of x is
    flushed to zero, y is zero. f' is accurate to a few units of 1.
    """
    unit, flushed = np.finfo(dtype).eps, np.finfo(dtype).tiny * np.clip(np.abs(x), max(1, abs(a)), 100)
    with np.errstate(all="ignore"):
        units = {"gelu": 10 + x * x, "gelu_tanh": 4 + 3 * np.abs(cubic(x)[0])}
        y_bound = units.get(name, 4) * unit * np.abs(FUNCTIONS[name][0](x, a))
    slope_bound = (32 if name == "gelu_tanh" else 16) * unit * max(1, abs(a))
    return np.nan_to_num(y_bound) + flushed, slope_bound
