"""Reference activations: functions and derivatives in NumPy and float64, written for clarity.

FUNCTIONS: name -> (f(x, a, b), its derivative f'(x, a, b)); `a` and `b` are the function's arguments, if it has any. At
infinity both return their limits. ARGUMENTS: examples of (a, b), for the functions that have any.
"""

import math

import numpy as np

ALPHA, SCALE = 1.6732632423543772848, 1.0507009873554804934  # of selu
DENSITY = 1 / math.sqrt(2 * math.pi)


def at_infinity(f, low, high):
    """Returns f with its limits at -inf and inf, where the formula would give infinity times 0."""

    def everywhere(x, a, b):
        with np.errstate(all="ignore"):
            y = f(np.where(np.isinf(x), 0, x), a, b)
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


def gelu_tanh_slope(x, a, b):
    s = sigmoid(cubic(x)[0])
    return s + np.clip(x, -100, 100) * s * (1 - s) * cubic(x)[1]


def silu_slope(x, a, b):
    s = sigmoid(x)
    return s * (1 + np.clip(x, -1000, 1000) * (1 - s))


def mish_gate(x):
    """Returns tanh(log(1 + exp(x))) of float64, without cancellation."""
    e = np.exp(-np.abs(x))
    part, rest = np.where(x < 0, e * (e + 2), 1 + 2 * e), np.where(x < 0, 2, 2 * e * e)
    return part / (part + rest)


def mish_slope(x, a, b):
    x = np.clip(x, -1000, 1000)
    w = mish_gate(x)
    return w + x * sigmoid(x) / np.cosh(np.minimum(softplus(x, 1, 0), 300)) ** 2


def softplus(x, a, b):
    with np.errstate(over="ignore"):
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(a * x))) / a


def squareplus(x, a, b):
    """Returns (x + r) / 2 with r = sqrt(x^2 + a); for x < 0 by its product with (r - x) / 2, which is a / 4."""
    larger = (np.abs(x) + np.hypot(x, math.sqrt(a))) / 2
    return np.where(x < 0, a / 4 / larger, larger)


def squareplus_slope(x, a, b):
    x = np.clip(x, -1e150, 1e150)
    return squareplus(x, a, b) / np.hypot(x, math.sqrt(a))


def hardswish_slope(x, a, b):
    return np.select([x <= -3, x < 3], [0, x / 3 + 0.5], 1)


FUNCTIONS = {
    "leaky_relu": (lambda x, a, b: np.where(x > 0, x, a * x), lambda x, a, b: np.where(x > 0, 1, a)),
    "elu": (
        lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
        lambda x, a, b: np.where(x > 0, 1, a * np.exp(np.minimum(x, 0))),
    ),
    "gelu": (
        at_infinity(lambda x, a, b: x * normal_cdf(x), 0, np.inf),
        at_infinity(lambda x, a, b: normal_cdf(x) + x * DENSITY * np.exp(-x * x / 2), 0, 1),
    ),
    "gelu_tanh": (at_infinity(lambda x, a, b: x * sigmoid(cubic(x)[0]), 0, np.inf), at_infinity(gelu_tanh_slope, 0, 1)),
    "silu": (at_infinity(lambda x, a, b: x * sigmoid(x), 0, np.inf), at_infinity(silu_slope, 0, 1)),
    "sigmoid": (lambda x, a, b: sigmoid(x), lambda x, a, b: sigmoid(x) * sigmoid(-x)),
    "tanh": (lambda x, a, b: np.tanh(x), lambda x, a, b: 1 - np.tanh(x) ** 2),
    "hardswish": (
        at_infinity(lambda x, a, b: x * np.clip(x + 3, 0, 6) / 6, 0, np.inf),
        at_infinity(hardswish_slope, 0, 1),
    ),
    "hardtanh": (
        lambda x, a, b: np.where(x < a, a, np.where(x > b, b, x)),
        lambda x, a, b: np.where((x <= a) | (x >= b), 0, 1),
    ),
    "hard_sigmoid": (
        lambda x, a, b: np.clip(a * x + b, 0, 1),
        lambda x, a, b: np.where((a * x + b > 0) & (a * x + b < 1), a, 0),
    ),
    "threshold": (lambda x, a, b: np.where(x <= a, b, x), lambda x, a, b: np.where(x <= a, 0, 1)),
    "hardshrink": (lambda x, a, b: np.where(np.abs(x) <= a, 0, x), lambda x, a, b: np.where(np.abs(x) <= a, 0, 1)),
    "softshrink": (
        lambda x, a, b: np.where(np.abs(x) <= a, 0, x - a * np.sign(x)),
        lambda x, a, b: np.where(np.abs(x) <= a, 0, 1),
    ),
    "sparse_plus": (
        lambda x, a, b: np.select([x <= -1, x < 1], [0, (np.clip(x, -1, 1) + 1) ** 2 / 4], x),
        lambda x, a, b: np.clip((x + 1) / 2, 0, 1),
    ),
    "softsign": (
        at_infinity(lambda x, a, b: x / (1 + np.abs(x)), -1, 1),
        lambda x, a, b: (1 / (1 + np.abs(x))) ** 2,
    ),
    "squareplus": (squareplus, squareplus_slope),
    "selu": (
        lambda x, a, b: SCALE * np.where(x > 0, x, ALPHA * np.expm1(np.minimum(x, 0))),
        lambda x, a, b: SCALE * np.where(x > 0, 1, ALPHA * np.exp(np.minimum(x, 0))),
    ),
    "celu": (
        lambda x, a, b: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0) / a)),
        lambda x, a, b: np.where(x > 0, 1, np.exp(np.minimum(x, 0) / a)),
    ),
    "mish": (at_infinity(lambda x, a, b: x * mish_gate(x), 0, np.inf), mish_slope),
    "softplus": (softplus, lambda x, a, b: sigmoid(a * x)),
    "log_sigmoid": (lambda x, a, b: -softplus(-x, 1, 0), lambda x, a, b: sigmoid(-x)),
    "tanhshrink": (lambda x, a, b: x - np.tanh(x), lambda x, a, b: np.tanh(x) ** 2),
    "exp": (lambda x, a, b: np.exp(x), lambda x, a, b: np.exp(x)),
    "log": (lambda x, a, b: np.log(x), lambda x, a, b: 1 / x),
    "sqrt": (lambda x, a, b: np.sqrt(x), lambda x, a, b: 0.5 / np.sqrt(x)),
    "reciprocal": (lambda x, a, b: 1 / x, lambda x, a, b: -1 / x / x),
    "square": (lambda x, a, b: x * x, lambda x, a, b: 2 * x),
    "abs": (lambda x, a, b: np.abs(x), lambda x, a, b: np.sign(x)),
}
UNBOUNDED = {"exp", "log", "sqrt", "reciprocal", "square"}  # whose slopes have units of their own size
ARGUMENTS = {
    "leaky_relu": ((0.01, 0), (0, 0), (1.5, 0), (-0.5, 0)),
    "elu": ((1, 0), (0, 0), (0.3, 0), (2.5, 0)),
    "hardtanh": ((-1, 1), (0, 6), (-0.25, 2.5), (math.nan, 3), (-3, math.nan)),
    "hard_sigmoid": ((1 / 6, 0.5), (0.2, 0.5), (0.5, 0.5), (-0.75, 0.25), (0, 0.25)),
    "threshold": ((0, 0), (0.5, 0.25), (-3, 3), (3, 3)),
    "hardshrink": ((0.5, 0), (0, 0), (3, 0)),
    "softshrink": ((0.5, 0), (0, 0), (3, 0)),
    "squareplus": ((4, 0), (0.25, 0), (1e-6, 0)),
    "celu": ((1, 0), (0.3, 0), (2.5, 0)),
    "softplus": ((1, 0), (0.3, 0), (4, 0)),
}


def error(name, x, a, b, dtype):
    """Returns the allowed errors of (y, f'(x)) for x of that dtype.

    y is accurate to a few units in the last place plus the error of the exponential's argument; where a factor of x is
    flushed to zero, y is zero. Where terms cancel, units are of the larger term. f' is accurate to a few units of 1.
    """
    f, slope = FUNCTIONS[name]
    unit, flushed = np.finfo(dtype).eps, np.finfo(dtype).tiny * np.clip(np.abs(x), max(1, np.nan_to_num(abs(a))), 100)
    with np.errstate(all="ignore"):
        units = {"gelu": 10 + x * x, "gelu_tanh": 4 + 3 * np.abs(cubic(x)[0]), "celu": 5 + np.abs(np.minimum(x, 0) / a),
                 "softplus": 8 + np.abs(a * np.minimum(x, 0)), "exp": 4, "squareplus": 8, "mish": 6}  # fmt: skip
        terms = {"tanhshrink": np.abs(x), "hard_sigmoid": np.abs(a * x) + abs(b), "softshrink": np.abs(x)}
        y_bound = units.get(name, 4) * unit * np.maximum(np.abs(f(x, a, b)), terms.get(name, 0))
        size = np.maximum(np.abs(slope(x, a, b)) if name in UNBOUNDED else 0, max(1, np.nan_to_num(abs(a))))
    slope_bound = (32 if name == "gelu_tanh" else 16) * unit * np.broadcast_to(size, x.shape)
    return np.nan_to_num(y_bound) + flushed, np.nan_to_num(slope_bound)
