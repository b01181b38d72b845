"""Layers that only act in training, and crops, of which inference takes the centre."""

from __future__ import annotations

from minidl import layers as ours
from minidl.c_export.code_writer import CodeWriter, Tensor, WriteFunction
from minidl.layers.base import Layer


def write_identity(writer: CodeWriter, x: Tensor) -> Tensor:
    return x


def write_crop(writer: CodeWriter, x: Tensor) -> Tensor:
    """Half of the margin, rounded down, is above and left of the centre."""
    (channels, *image), (_, *size) = writer.in_shape, writer.out_shape
    if image == size:
        return x
    top, left = ((n + m) // 2 - m for n, m in zip(image, size, strict=True))
    if writer["mode"] == "constant":
        return writer.call("crop", *image, top, left, *size, channels, 0, x)
    return writer.call(f"pad_{writer['mode']}", *image, -top, -left, *size, channels, x)


IDENTITIES = (
    ours.ColorJitter, ours.Cutout, ours.Dropout, ours.Dropout2D, ours.GaussianNoise, ours.RandomFlip,
    ours.RandomRotate90, ours.RandomRotation, ours.RandomShift, ours.RandomZoom, ours.StochasticDepth,
)  # fmt: skip
WRITE: dict[type[Layer], WriteFunction] = {**dict.fromkeys(IDENTITIES, write_identity), ours.RandomCrop: write_crop}
