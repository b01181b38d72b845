"""Layers that only act in training."""

from __future__ import annotations

from minidl import layers as ours
from minidl.layers.base import Layer
from minidl.quantization.graph import Node
from minidl.quantization.site import Site, Translate


def translate_identity(site: Site) -> Node:
    """Nothing."""
    return site.x


IDENTITIES = (
    ours.ColorJitter, ours.Cutout, ours.Dropout, ours.Dropout2D, ours.GaussianNoise, ours.RandomFlip,
    ours.RandomRotate90, ours.RandomRotation, ours.RandomShift, ours.RandomZoom, ours.StochasticDepth,
)  # fmt: skip
TRANSLATIONS: dict[type[Layer], Translate] = dict.fromkeys(IDENTITIES, translate_identity)
