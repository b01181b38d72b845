"""What the contract tests know of a layer: random arguments for it, and what PyTorch has in its place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.layers.base import Layer


def functional():
    """torch.nn.functional: imported where it is used, for PyTorch may be missing."""
    from torch.nn import functional

    return functional


def normal(rng, shape):
    """Standard normal numbers."""
    return rng.standard_normal(shape)


@dataclass(frozen=True)
class Case:
    """A layer for inputs of a shape.

    torch(x, **params): what PyTorch computes of tensors, `params` by the layer's names; None where PyTorch has nothing.
    values(rng, shape): the numbers in x.
    """

    layer: Layer
    in_shape: tuple[int, ...]
    torch: Callable[..., Any] | None = None
    values: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray] = normal
    couples_examples: bool = False


def any_shape(rng):
    """The shape of a vector or an image."""
    size = int(rng.choice([1, 3]))
    return tuple(int(n) for n in rng.integers(1, 8, size))


def image(rng, most=8):
    """The shape of an image."""
    return tuple(int(n) for n in (rng.integers(1, 6), *rng.integers(1, most + 1, 2)))
