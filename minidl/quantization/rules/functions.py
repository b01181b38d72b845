"""Element-wise layers: clips go into the operation before them, others become tables of the layer's own function."""

from __future__ import annotations

import math

import numpy as np

from minidl import layers as ours
from minidl.layers.activations import FUNCTIONS
from minidl.layers.base import Layer
from minidl.quantization.folding import affine, applied, clipped
from minidl.quantization.graph import Node, Sum
from minidl.quantization.site import Site, Translate
from minidl.utils.arrays import Array


def translate_function(site: Site) -> Node:
    """A table, computed by a copy of the layer for 256 numbers."""
    return applied(site.x, site.alone((256,), site.layer.dtype), site.evaluate, site.label)


def translate_relu(site: Site) -> Node:
    """A clip with one end."""
    return clipped(site.x, 0.0, math.inf, site.label)


def translate_relu6(site: Site) -> Node:
    """A clip with two ends."""
    return clipped(site.x, 0.0, 6.0, site.label)


def translate_hardtanh(site: Site) -> Node:
    """A clip; an end of None is none."""
    low, high = (site.layer.config()[name] for name in ("min_val", "max_val"))
    return clipped(site.x, -math.inf if low is None else low, math.inf if high is None else high, site.label)


def translate_prelu(site: Site) -> Node:
    """A table, if all channels have one slope; else the sum of two: positive numbers, and negative ones by slopes."""
    slopes, x, label = site.array("weight", 1), site.x, site.label
    if len(np.unique(slopes)) == 1:
        return applied(x, lambda numbers: np.where(numbers > 0, numbers, slopes[0] * numbers), site.evaluate, label)
    x.is_shared = True
    parts = [clipped(x, *ends, label) for ends in ((0.0, math.inf), (-math.inf, 0.0))]
    parts[1] = affine(
        parts[1], slopes, np.zeros(len(slopes)), label, lambda numbers: numbers * _spread(slopes, numbers)
    )
    return Sum(label=label, shape=x.shape, inputs=tuple(parts), evaluate=np.add)


def _spread(slopes: Array, numbers: Array) -> Array:
    return slopes.astype(numbers.dtype)[:, None, None]


def translate_rescale(site: Site) -> Node:
    """One factor for all channels."""
    arguments, channels = site.layer.config(), site.x.shape[0]
    gain, shift = (np.full(channels, arguments[name], np.float64) for name in ("scale", "offset"))
    return affine(site.x, gain, shift, site.label, site.evaluate)


TRANSLATIONS: dict[type[Layer], Translate] = {
    **dict.fromkeys(FUNCTIONS, translate_function),
    ours.GELU: translate_function,
    ours.Hardtanh: translate_hardtanh,
    ours.PReLU: translate_prelu,
    ours.ReLU: translate_relu,
    ours.ReLU6: translate_relu6,
    ours.Rescale: translate_rescale,
}
