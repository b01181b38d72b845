"""Layers that only move numbers: flattening, permutations, shuffles, borders, columns, nearest neighbours."""

from __future__ import annotations

import math

import numpy as np

from minidl import layers as ours
from minidl.layers.base import Layer
from minidl.quantization.folding import copied
from minidl.quantization.graph import Node
from minidl.quantization.site import Site, Translate

MOST = 2**24  # numbers, of which the index is computed in memory


def translate_copy(site: Site) -> Node:
    """The layer itself says where each number comes from: it copies their indices, which float64 holds exactly."""
    n = math.prod(site.layer.in_shape)
    if max(n, math.prod(site.layer.out_shape)) > MOST:
        raise ValueError(f"expected at most {MOST} numbers in its input and output, got {n}")
    move, places = site.alone(site.layer.in_shape, "float64"), np.arange(1.0, n + 1)
    index, moved = move(places), move(places + n)
    is_border = index == moved
    fill = float(index[is_border][0]) if is_border.any() else 0.0
    return copied([site.x], np.where(is_border, -1, index - 1).astype(np.int64), site.shape, site.label, fill)


def translate_upsample(site: Site) -> Node:
    """Copies of the nearest pixel; a blend of four is refused."""
    if (mode := site.layer.config()["mode"]) != "nearest":
        raise ValueError(f"expected mode='nearest', got {mode!r}")
    return translate_copy(site)


COPIES = (
    ours.ChannelShuffle, ours.Columns, ours.Flatten, ours.Pad1D, ours.Pad2D, ours.Permute, ours.PixelShuffle,
    ours.PixelUnshuffle, ours.RandomCrop, ours.Reshape,
)  # fmt: skip
TRANSLATIONS: dict[type[Layer], Translate] = {
    **dict.fromkeys(COPIES, translate_copy),
    ours.Upsample2D: translate_upsample,
}
