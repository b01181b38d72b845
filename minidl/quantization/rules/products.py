"""Sums of products: convolutions and dense layers; normalizations with fixed statistics, and scales."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minidl import layers as ours
from minidl.layers.base import Layer
from minidl.quantization.folding import affine, copied
from minidl.quantization.graph import Copy, Doubles, Node, Product
from minidl.quantization.site import Site, Translate
from minidl.utils.validation import check_axes, check_pair, resolve_padding, resolve_padding_1d


def translate_conv(site: Site) -> Node:
    """A convolution, grouped or not."""
    return _convolution(site, site.layer.config()["groups"])


def translate_depthwise_conv(site: Site) -> Node:
    """As many groups as channels."""
    return _convolution(site, site.x.shape[0])


def _convolution(site: Site, groups: int) -> Node:
    arguments, weight = site.layer.config(), site.array("weight", 0)
    names = ("stride", "dilation")
    if weight.ndim == 3:  # a signal is an image of height 1
        weight = weight[:, :, None]
        stride, dilation = ((1, arguments[name]) for name in names)
        sides = resolve_padding_1d(arguments["padding"], site.x.shape[2], weight.shape[3], stride[1], dilation[1])
        padding = (0, 0, *sides)
    else:
        stride, dilation = (check_pair(name, arguments[name]) for name in names)
        kernel = (weight.shape[2], weight.shape[3])
        padding = resolve_padding(arguments["padding"], site.x.shape[1:], kernel, stride, dilation)
    return Product(
        **_common(site),
        weight=weight,
        bias=site.array("bias", len(weight)),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


def _common(site: Site) -> dict[str, Any]:
    common = {"label": site.label, "shape": site.shape, "inputs": (site.x,), "evaluate": site.evaluate}
    return {**common, "integers": site.integers}


def translate_dense(site: Site) -> Node:
    """A kernel as large as the image that was flattened."""
    weight, x = site.array("weight", 0), site.x
    if isinstance(x, Copy) and (not x.is_shared or x.made) and len(x.inputs) == 1:
        (source,) = x.inputs
        in_order = np.array_equal(x.index, np.arange(math.prod(source.shape)))
        if in_order and (x.made is None or source.made in (None, x.made)):
            source.made, source.is_shared = source.made or x.made, source.is_shared or x.is_shared
            x = source
    common = {**_common(site), "inputs": (x,)}
    return Product(**common, weight=weight.reshape(-1, *x.shape), bias=site.array("bias", len(weight)))


def translate_batch_norm(site: Site) -> Node:
    """(x - mean) * slope + bias, with the running statistics."""
    return affine(site.x, *fixed_batch_norm(site.layer), site.label, site.evaluate)


def fixed_batch_norm(layer: Layer) -> tuple[Doubles, Doubles]:
    """Returns gain and shift of a batch norm with its running statistics, for each channel."""
    mean, variance = (layer.buffers[name].astype(np.float64) for name in ("running_mean", "running_var"))
    slope, bias = (
        np.array(layer.params[name].value, np.float64) if name in layer.params else np.full(len(mean), default)
        for name, default in (("weight", 1.0), ("bias", 0.0))
    )
    variance = variance + layer.config()["eps"]
    if not (variance > 0).all():
        raise ValueError(f"expected running variances above 0, got {variance.min() - layer.config()['eps']:g}")
    slope = slope / np.sqrt(variance)
    return slope, bias - mean * slope


def translate_normalize(site: Site) -> Node:
    """(x - mean) / std; a std of 0 counts as 1."""
    arguments, channels = site.layer.config(), site.x.shape[0]
    mean, std = (np.broadcast_to(np.asarray(arguments[name], float), channels) for name in ("mean", "std"))
    gain = 1 / np.where(std == 0, 1.0, std)
    return affine(site.x, gain, -mean * gain, site.label, site.evaluate)


def translate_scale(site: Site) -> Node:
    """A factor for each channel, or for each place: then all numbers are channels of their own for a moment."""
    axes, shape = check_axes("axis", site.layer.config()["axis"], len(site.layer.in_shape)), site.layer.in_shape
    weight, bias = site.array("weight", 0), site.array("bias", 0)
    bias = bias if bias.size else np.zeros(weight.shape)
    if axes == (0,):
        return affine(site.x, weight, bias, site.label, site.evaluate)
    spread = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))
    gain, shift = (np.broadcast_to(of.reshape(spread), shape).reshape(-1) for of in (weight, bias))
    order = np.arange(len(gain))
    vector = copied([site.x], order, (len(gain), 1, 1), site.label)
    return copied([affine(vector, gain, shift, site.label, site.evaluate)], order, site.shape, site.label)


PRODUCTS: dict[type[Layer], Translate] = {  # each has a weight (out, ...)
    ours.Conv1D: translate_conv,
    ours.Conv2D: translate_conv,
    ours.Dense: translate_dense,
    ours.DepthwiseConv1D: translate_depthwise_conv,
    ours.DepthwiseConv2D: translate_depthwise_conv,
}
TRANSLATIONS: dict[type[Layer], Translate] = {
    **PRODUCTS,
    ours.BatchNorm1D: translate_batch_norm,
    ours.BatchNorm2D: translate_batch_norm,
    ours.Normalize: translate_normalize,
    ours.Scale: translate_scale,
}
