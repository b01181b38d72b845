"""Copies of layers that compute as in inference, with a backward."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from minidl.layers.affine import RandomRotation, RandomZoom
from minidl.layers.augment import RandomCrop, RandomFlip, RandomShift
from minidl.layers.base import Layer
from minidl.layers.color_jitter import ColorJitter
from minidl.layers.cutout import Cutout
from minidl.layers.dropout import Dropout, Dropout2D, StochasticDepth
from minidl.layers.noise import GaussianNoise
from minidl_c.kernels.dropout import DropoutOp

RANDOM = (
    ColorJitter,
    Cutout,
    Dropout,
    Dropout2D,
    GaussianNoise,
    RandomCrop,
    RandomFlip,
    RandomRotation,
    RandomShift,
    RandomZoom,
    StochasticDepth,
)


def eval_copies(layers: Sequence[Layer], instead: Mapping[int, Layer] | None = None) -> list[Layer]:
    """Returns copies as `copies_without_randomness`, with batch norm frozen."""
    copies = copies_without_randomness(layers, instead)
    for leaf in (leaf for layer in copies for leaf in layer.leaves()):
        if any(op.couples_examples for op in leaf.ops):
            leaf.trainable = False
    return copies


def copies_without_randomness(layers: Sequence[Layer], instead: Mapping[int, Layer] | None = None) -> list[Layer]:
    """Returns copies without dropout, and with augmentation as in inference.

    instead: what stands in the copies for a layer, by its id, unless it draws random numbers. Layers in NumPy compute
    as in training. The copies want a home: FlatParameters(layers, dtype). Raises TypeError for layers that cannot be
    copied.
    """
    leaves = [leaf for layer in layers for leaf in layer.leaves()]
    replaced: dict[int, Any] = {id(leaf): _without_randomness(leaf) for leaf in leaves if isinstance(leaf, RANDOM)}
    try:
        (copies,) = copy_layers(list(layers), instead=dict(instead or {}) | replaced)
    except Exception as error:
        raise TypeError(f"expected layers that can be copied: {error}") from error
    found: list[Layer] = copies
    return found


def _without_randomness(layer: Layer) -> Layer:
    """Returns a layer that does in training what this one, which draws random numbers there, does in inference."""
    still = copy.copy(layer)
    if isinstance(still, RandomCrop):
        still._take_centre()
    else:
        still.op, still.moves_pixels = DropoutOp(layer.in_shape, 0.0, dtype=layer.dtype), False  # the identity
    return still


def copy_layers(
    layers: Sequence[Layer], *others: Any, shared: Sequence[Any] = (), instead: Mapping[int, Any] | None = None
) -> tuple[Any, ...]:
    """Copies layers, parameters included, and objects that may refer to them; ops, which have no state, are shared.

    The copies want a home: Parameters(layers, dtype). shared: what is not copied either; instead: what stands in the
    copies for something, by the id of that.
    """
    leaves = [leaf for layer in layers for leaf in layer.leaves()]
    known = {id(one): one for one in (*(op for leaf in leaves for op in (leaf.op, *leaf.ops)), *shared)}
    return copy.deepcopy((layers, *others), known | dict(instead or {}))
