"""Convolutions by Winograd's algorithm: the size of their transformed weights, and direct sums in their place."""

from __future__ import annotations

import math

import numpy as np

from minidl.engine.layer_list import from_spec, to_spec
from minidl.layers import Conv2D
from minidl.sequential import Sequential

MAX_TABLES = 2**18  # bytes of transformed weights that are tables by default: a microcontroller has more flash than RAM


def table_bytes(model: Sequential) -> int:
    """Returns the bytes of all transformed weights: 6 x 6 numbers for 3 x 3."""
    convolutions = (leaf for layer in model.layers for leaf in layer.leaves() if type(leaf) is Conv2D)
    weights = sum(math.prod(conv.params["weight"].value.shape) for conv in convolutions if conv.uses_winograd)
    return 4 * weights * np.dtype(model.dtype).itemsize


def with_direct_sums(model: Sequential) -> Sequential:
    """Returns the model, or a copy whose convolutions have `algorithm="direct"` if one uses Winograd's."""
    if not table_bytes(model):
        return model
    layers, state = from_spec(to_spec(model.layers)), model.state_dict()
    for leaf in (leaf for layer in layers for leaf in layer.leaves()):
        if type(leaf) is Conv2D:
            leaf.algorithm = "direct"
    direct = Sequential(layers, None, model.seed, model.dtype)
    direct.build_from(model.input_shape, state)
    return direct
