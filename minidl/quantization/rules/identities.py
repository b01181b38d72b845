"""Layers that only act in training, and FakeQuantize, which says the quantization of the value before it."""

from __future__ import annotations

from minidl import layers as ours
from minidl.layers.base import Layer
from minidl.layers.fake_quantize import FakeQuantize
from minidl.quantization.folding import applied, quantization_before, same
from minidl.quantization.graph import Node
from minidl.quantization.program import Quantization
from minidl.quantization.site import Site, Translate


def translate_identity(site: Site) -> Node:
    """Nothing."""
    return site.x


def translate_fake_quantize(site: Site) -> Node:
    """No operation: the numbers of its input are of this scale and zero point, and no other layer changes them.

    A table, if they have another scale or zero point already.
    """
    arguments, x = site.layer.config(), site.x
    made = Quantization(float(arguments["scale"]), int(arguments["zero_point"]))
    if quantization_before(x) not in (None, made):
        x = applied(x, same, same, site.label)
    x.made, x.is_shared = made, True
    return x


IDENTITIES = (
    ours.ColorJitter, ours.Cutout, ours.Dropout, ours.Dropout2D, ours.GaussianNoise, ours.RandomFlip,
    ours.RandomRotate90, ours.RandomRotation, ours.RandomShift, ours.RandomZoom, ours.StochasticDepth,
)  # fmt: skip
TRANSLATIONS: dict[type[Layer], Translate] = {
    **dict.fromkeys(IDENTITIES, translate_identity),
    FakeQuantize: translate_fake_quantize,
}
