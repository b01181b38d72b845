"""Layer fusion: exporters write a bias as an Add, and a reshape in several steps."""

from __future__ import annotations

import math

import numpy as np

from minidl.layers import (
    GRU,
    LSTM,
    ChannelShuffle,
    Columns,
    Conv1D,
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
    SimpleRNN,
)
from minidl.layers.base import Layer
from minidl.onnx.node_reader import LayerWithWeights, broadcast_to_channels
from minidl.utils.arrays import Array
from minidl.utils.constructors import construct
from minidl.utils.validation import Shape


def fuse_layers(series: list[LayerWithWeights], channels: int) -> list[LayerWithWeights] | None:
    """Returns layers equal to a series of two or three, or None if they cannot be fused.

    channels: of the input of the last one. Reshape, Transpose and Reshape are how PyTorch writes a ChannelShuffle.
    """
    first, in_shape = series[0], series[0].in_shape
    match [weighted.layer for weighted in series]:
        case [Reshape(shape=(groups, per_group, *rest)), Permute(axes=(1, 0, *others)), Reshape(shape=shape)]:
            same = tuple(shape) == in_shape == (groups * per_group, *rest)
            return [LayerWithWeights(ChannelShuffle(groups))] if same and others == sorted(others) else None
        case [SimpleRNN() | LSTM() | GRU() as layer, Columns(axis=1) as one, Flatten()] if layer.return_sequences:
            steps = range(in_shape[1])
            is_last = list(steps[one.start : one.stop : one.step]) == [0 if layer.reverse else steps[-1]]
            last = construct(type(layer), {**layer.config(), "return_sequences": False})
            return [LayerWithWeights(last, first.weights)] if is_last else None
        case [Reshape() | Flatten(), Flatten() | Reshape() as second]:
            target = (math.prod(in_shape),) if isinstance(second, Flatten) else tuple(second.shape)
            return [] if target == in_shape else series[1:]
        case [Conv1D() | Conv2D() as layer, Permute() as moved, Scale()] if not layer.use_bias:
            bias = _as_bias(series[-1], channels, first.weights["weight"].dtype, moved.axes.index(0))
            if bias is None:
                return None
            return [LayerWithWeights(_enable_bias(layer), {**first.weights, "bias": bias}), series[1]]
        case [Dense() | Conv2D() | DepthwiseConv2D() | ConvTranspose2D() | Scale() as layer, _] if not layer.use_bias:
            bias = _as_bias(series[-1], channels, first.weights["weight"].dtype, getattr(layer, "axis", 0))
            return None if bias is None else [LayerWithWeights(_enable_bias(layer), {**first.weights, "bias": bias})]
        case [Rescale(offset=0.0) as layer, Rescale(scale=1.0) as second]:
            return [LayerWithWeights(Rescale(layer.scale, second.offset))]
        case [Permute() as layer, Permute() as second]:
            axes = tuple(layer.axes[axis] for axis in second.axes)
            return [] if list(axes) == sorted(axes) else [LayerWithWeights(Permute(axes))]
        case [Normalize() as layer, Normalize() as second]:
            only_shifts, only_scales = set(np.ravel(layer.std)) == {1.0}, set(np.ravel(second.mean)) == {0.0}
            fused = [LayerWithWeights(Normalize(layer.mean, second.std))]  # x - mean followed by x / std
            return fused if only_shifts and only_scales else None
    return None


def _as_bias(added: LayerWithWeights, channels: int, dtype: np.dtype, axis: int | Shape) -> Array | None:
    """Returns the bias that a layer adds if it does nothing else, or None: per channel, or along a Scale's axes."""
    match added.layer:
        case Rescale(scale=1.0) if axis == 0:
            return np.full(channels, added.layer.offset, dtype)
        case Normalize(std=std) if axis == 0 and set(np.ravel(std)) == {1.0}:
            return broadcast_to_channels(-np.ravel(added.layer.mean).astype(dtype), channels)
        case Scale(use_bias=True, trainable=False) if axis == added.layer.axis and (added.weights["weight"] == 1).all():
            return added.weights["bias"]
    return None


def _enable_bias(layer: Layer) -> Layer:
    """Returns a copy of the layer with use_bias=True."""
    layer_with_bias: Layer = construct(type(layer), {**layer.config(), "use_bias": True})
    return layer_with_bias
