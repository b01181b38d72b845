"""First values of parameters: functions of a random generator and a shape.

A shape is (outputs, inputs) or (filters, channels, height, width): all axes but the first feed one output.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Shape = tuple[int, ...]


def he_uniform(rng: np.random.Generator, shape: Shape, inputs: float | None = None) -> Values:
    """Uniform with variance 2 / inputs, for layers before a ReLU (He et al., 2015, arXiv:1502.01852).

    inputs: how many numbers feed one output; None: as many as the shape says.

    >>> he_uniform(np.random.default_rng(0), (2, 6)).shape
    (2, 6)
    """
    limit = math.sqrt(6 / (math.prod(shape[1:]) if inputs is None else inputs))
    return rng.uniform(-limit, limit, shape)


def glorot_uniform(rng: np.random.Generator, shape: Shape) -> Values:
    """Uniform with variance 2 / (inputs + outputs), for layers before tanh or sigmoid (Glorot and Bengio, 2010)."""
    pixels = math.prod(shape[2:])
    limit = math.sqrt(6 / (pixels * (shape[0] + shape[1])))
    return rng.uniform(-limit, limit, shape)


def zeros(rng: np.random.Generator, shape: Shape) -> Values:
    """All zero, for biases."""
    return np.zeros(shape)


def ones(rng: np.random.Generator, shape: Shape) -> Values:
    """All one, for gains."""
    return np.ones(shape)
