"""Layer fusion: exporters write a bias as an Add, and a reshape in several steps."""

from __future__ import annotations

import math

import numpy as np

from minidl.layers import (
    ChannelShuffle,
    Conv2D,
    ConvTranspose2D,
    Dense,
    DepthwiseConv2D,
    Flatten,
    Normalize,
    Permute,
    Rescale,
    Reshape,
    Scale,
)
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, broadcast_to_channels
from minidl.utils.arrays import Array
from minidl.utils.constructors import construct
from minidl.utils.validation import Shape


def fuse_layers(
    first: LayerWithWeights, second: LayerWithWeights, in_shape: Shape, channels: int
) -> list[LayerWithWeights] | None:
    """Returns layers equal to `first` followed by `second`, or None if they cannot be fused.

    in_shape: input of `first`, without the batch; channels: of its output.
    """
    match first.layer, second.layer:
        case Reshape() | Flatten(), Reshape() | Flatten():
            shape = (math.prod(in_shape),) if isinstance(second.layer, Flatten) else tuple(second.layer.shape)
            return [] if shape == in_shape else [second]
        case Dense() | Conv2D() | DepthwiseConv2D() | ConvTranspose2D() | Scale(), _ if not first.layer.use_bias:
            bias = _as_bias(second.layer, channels, first.weights["weight"].dtype)
            return (
                None if bias is None else [LayerWithWeights(_enable_bias(first.layer), {**first.weights, "bias": bias})]
            )
        case Rescale(offset=0.0), Rescale(scale=1.0):
            return [LayerWithWeights(Rescale(first.layer.scale, second.layer.offset))]
        case Permute(), Permute():
            axes = tuple(first.layer.axes[axis] for axis in second.layer.axes)
            return [] if list(axes) == sorted(axes) else [LayerWithWeights(Permute(axes))]
        case Normalize(), Normalize():
            return _fuse_normalize(first.layer, second.layer)
    return None


def match_channel_shuffle(
    first: LayerWithWeights, second: LayerWithWeights, third: LayerWithWeights, in_shape: Shape
) -> LayerWithWeights | None:
    """Returns the ChannelShuffle that PyTorch writes as Reshape, Transpose and Reshape; None for other layers.

    in_shape: input of `first`, without the batch.
    """
    match first.layer, second.layer, third.layer:
        case Reshape(shape=(groups, per_group, *rest)), Permute(axes=(1, 0, *others)), Reshape(shape=shape):
            same = tuple(shape) == in_shape == (groups * per_group, *rest)
            return LayerWithWeights(ChannelShuffle(groups)) if same and others == sorted(others) else None
    return None


def _as_bias(layer: Layer, channels: int, dtype: np.dtype) -> Array | None:
    """Returns the bias (channels,) that a layer adds if it does nothing else, or None."""
    match layer:
        case Rescale(scale=1.0):
            return np.full(channels, layer.offset, dtype)
        case Normalize(std=std) if set(np.ravel(std)) == {1.0}:
            return broadcast_to_channels(-np.ravel(layer.mean).astype(dtype), channels)
    return None


def _enable_bias(layer: Layer) -> Layer:
    """Returns a copy of the layer with use_bias=True."""
    layer_with_bias: Layer = construct(type(layer), {**layer.config(), "use_bias": True})
    return layer_with_bias


def _fuse_normalize(first: Normalize, second: Normalize) -> list[LayerWithWeights] | None:
    """Fuses x - mean followed by x / std."""
    only_shifts, only_scales = set(np.ravel(first.std)) == {1.0}, set(np.ravel(second.mean)) == {0.0}
    return [LayerWithWeights(Normalize(first.mean, second.std))] if only_shifts and only_scales else None
