"""Two layers that are one: exporters write a bias as an Add, and shapes in several steps."""

from __future__ import annotations

import math

import numpy as np

from minidl.layers import Conv2D, ConvTranspose2D, Dense, DepthwiseConv2D, Flatten, Normalize, Rescale, Reshape
from minidl.layers.base import Layer
from minidl.onnx.node_reader import Made, spread
from minidl.utils.arguments import construct
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape


def merged(front: Made, back: Made, in_shape: Shape, channels: int) -> list[Made] | None:
    """The layers that do what the two do, one behind the other; None if these are the two.

    in_shape: of an example that comes in; channels: of what goes from one to the other.
    """
    match front.layer, back.layer:
        case Reshape() | Flatten(), Reshape() | Flatten():
            shape = (math.prod(in_shape),) if isinstance(back.layer, Flatten) else tuple(back.layer.shape)
            return [] if shape == in_shape else [back]
        case Dense() | Conv2D() | DepthwiseConv2D() | ConvTranspose2D(), _ if not front.layer.use_bias:
            bias = _added(back.layer, channels, front.weights["weight"].dtype)
            return None if bias is None else [Made(_with_bias(front.layer), {**front.weights, "bias": bias})]
        case Rescale(offset=0.0), Rescale(scale=1.0):
            return [Made(Rescale(front.layer.scale, back.layer.offset))]
        case Rescale(scale=2.0, offset=0.0), Rescale(scale=0.5, offset=0.0):
            return []
        case Normalize(), Normalize():
            return _normalized(front.layer, back.layer)
    return None


def _added(layer: Layer, channels: int, dtype: np.dtype) -> Array | None:
    """What a layer adds to each channel, if it does nothing else."""
    match layer:
        case Rescale(scale=1.0):
            return np.full(channels, layer.offset, dtype)
        case Normalize(std=std) if set(np.ravel(std)) == {1.0}:
            return spread(-np.ravel(layer.mean).astype(dtype), channels)
    return None


def _with_bias(layer: Layer) -> Layer:
    made: Layer = construct(type(layer), {**layer.config(), "use_bias": True})
    return made


def _normalized(front: Normalize, back: Normalize) -> list[Made] | None:
    """(x - mean) / std in two steps."""
    only_shifts, only_scales = set(np.ravel(front.std)) == {1.0}, set(np.ravel(back.mean)) == {0.0}
    return [Made(Normalize(front.mean, back.std))] if only_shifts and only_scales else None
