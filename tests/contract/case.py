"""Case, a layer with random arguments and its counterpart in PyTorch, for the contract tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minidl.layers.base import Layer


def functional():
    """Returns torch.nn.functional, imported on first use because PyTorch is optional."""
    from torch.nn import functional

    return functional


def normal(rng, shape):
    """Draws standard normal values."""
    return rng.standard_normal(shape)


@dataclass(frozen=True)
class Case:
    """A layer and the shape of its inputs.

    torch(x, **params): PyTorch's counterpart, with `params` by the layer's names; None if there is none.
    values(rng, shape): draws x. couples_examples: True if an example's output depends on the others. categories: if
    positive, x holds integers below this number. limited: True if the layer is finite for such values alone.
    """

    layer: Layer
    in_shape: tuple[int, ...]
    torch: Callable[..., Any] | None = None
    values: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray] = normal
    couples_examples: bool = False
    categories: int = 0
    limited: bool = False


def any_shape(rng):
    """Draws the shape of a vector, a signal or an image."""
    size = int(rng.integers(1, 4))
    return tuple(int(n) for n in rng.integers(1, 8, size))


def image(rng, most=8):
    """Draws the shape of an image."""
    return tuple(int(n) for n in (rng.integers(1, 6), *rng.integers(1, most + 1, 2)))
