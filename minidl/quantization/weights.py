"""Weights: those of a sum of products as int8, a scale for each output channel; its bias, corrected and in int32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.quantization.graph import Doubles, Integers, Product
from minidl.quantization.program import HIGH, LARGEST_WEIGHT, LOW, SUM_LIMIT, Int8, Int32, Quantization
from minidl.quantization.rescaling import STEPS, rescaling
from minidl.utils.arrays import Array
from minidl.utils.validation import Shape

Weights = NDArray[np.integer[Any]]

MOST_BIAS = 2**30  # half of the sum: the other half is for the products
MOST_NEAR_BIAS = 2**24
SAME = 2.0**-20  # relative difference of biases whose scale float32 has rounded in another way
WHOLE = 2.0**-10  # difference of a weight, in steps of its scale, from a whole number


def quantize_product(node: Product, made: Quantization, out_scale: float, mean: Doubles) -> dict[str, Any]:
    """Returns weights, biases, multipliers and shifts of a program.SumOfProducts.

    made: the quantization of its input. mean: the mean of its input over the calibration data, (c, h, w). The error of
    rounded weights times this mean is subtracted from the bias, so that outputs keep their means.

    A scale is larger than the largest weight needs where bias and products would not fit 32 bits; weights of 0 have
    that of the bias. Given integers are taken as they are, of which weights may have 9 bits: see `split`.
    """
    weight, bias = node.weight, node.bias
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise ValueError("expected finite weights, got NaN or infinity")
    if node.integers is not None:
        return _with_factors(*_given(node, node.integers, made.scale), made.scale * node.integers.scales / out_scale)
    scales = _largest(weight) / LARGEST_WEIGHT
    scales = np.maximum(scales, np.abs(bias) / (made.scale * MOST_BIAS))
    scales[scales == 0] = 1.0
    if weight[0].size == 1:
        scales = _of_near_biases(weight.reshape(-1), bias, made.scale, scales)
    q = _rounded(weight, scales)
    room = SUM_LIMIT - MOST_BIAS - (STEPS + 1) // 2 * q[0].size  # the last term: for weights that are rounded up
    if room <= 0:
        raise ValueError(f"expected at most {2**23 - 1} weights in a sum, which fits 32 bits then, got {q[0].size}")
    excess = (STEPS + 1) * np.abs(q.astype(np.int64)).sum(axis=(1, 2, 3)) / room
    q = _rounded(weight, scales := scales * np.maximum(excess, 1.0))
    bias = bias - _mean_error(node, q * scales[:, None, None, None] - weight, mean)
    biases = np.clip(np.floor(bias / (made.scale * scales) + 0.5), -MOST_BIAS, MOST_BIAS).astype(np.int32)
    return _with_factors(q, biases, made.scale * scales / out_scale)


def _of_near_biases(weight: Doubles, bias: Doubles, scale: float, scales: Doubles) -> Doubles:
    """Returns the scales of sums of one product, of any whole number, in whose steps the biases are nearest to others.

    scales: those of the largest number, which stay if biases are very large, or weights 0.
    """
    numbers = np.arange(LARGEST_WEIGHT, 0, -1)
    tried = scales[:, None] * (LARGEST_WEIGHT / numbers)
    steps = bias[:, None] / (scale * tried)
    nearest = np.argmin(np.abs(steps - np.rint(steps)) * tried, axis=1)
    is_plain = (weight == 0) | (np.abs(steps[:, 0]) > MOST_NEAR_BIAS)
    return np.where(is_plain, scales, tried[np.arange(len(tried)), nearest])


def _given(node: Product, integers: Integers, scale: float) -> tuple[Weights, Int32]:
    """Returns the weights and biases of given integers. scale: of the input.

    Biases whose scales are not those of the sums are rounded. Raises ValueError for numbers that do not fit.
    """
    steps = node.weight / integers.scales[:, None, None, None]
    weights = np.rint(steps)
    if np.abs(weights - steps).max(initial=0) > WHOLE:
        raise ValueError("expected weights that are whole numbers of the scale of their output channel, got others")
    if np.abs(weights).max() > STEPS:
        raise ValueError(f"expected weights, less their zero point, up to {STEPS}, got {np.abs(weights).max():g}")
    step = scale * integers.scales
    biases = np.rint(node.bias / step)
    if integers.biases is not None and np.allclose(integers.biases * step, node.bias, rtol=SAME, atol=0):
        biases = integers.biases
    if np.abs(biases).max() > SUM_LIMIT:
        raise ValueError(f"expected biases up to {SUM_LIMIT} in steps of the sum, got {np.abs(biases).max():g}")
    return weights.astype(np.int16), biases.astype(np.int32)


def split(weights: Weights, groups: int) -> tuple[Int8, Shape]:
    """Returns given weights as int8, and which channels of its input each group reads, several times if need be.

    Weights less a zero point may have 9 bits: a channel is read again for what int8 weights have left over.
    """
    parts, positions, own = [], [], np.arange(weights.shape[1])
    while own.size:
        parts.append(np.clip(weights, LOW, HIGH))
        positions.append(own)
        weights = weights - parts[-1]
        left = weights.any(axis=(0, 2, 3))
        weights, own = weights[:, left], own[left]
    position = np.concatenate(positions)
    channels = np.arange(groups)[:, None] * len(positions[0]) + position
    return np.concatenate(parts, axis=1).astype(np.int8), tuple(channels.reshape(-1).tolist())


def _with_factors(q: Weights, biases: Int32, factors: Doubles) -> dict[str, Any]:
    """Returns the members of a program.SumOfProducts: weights and biases, and the factors of the sums."""
    is_zero = (biases == 0) & (q == 0).all(axis=(1, 2, 3))
    pairs = [(0, 1) if zero else rescaling(float(f)) for f, zero in zip(factors, is_zero, strict=True)]
    multipliers, shifts = np.array(pairs, np.int32).T.copy()
    return {"weights": q, "biases": biases, "multipliers": multipliers, "shifts": shifts}


def fake_quantized(weight: Array) -> Doubles:
    """Returns weights (out, ...) as those numbers that their int8 numbers stand for, unless bias or sums need others.

    That is all of them, except in a `quantize_product` of very large biases or numbers of weights.
    """
    wide = weight.astype(np.float64).reshape(len(weight), -1)
    scales = _largest(wide) / LARGEST_WEIGHT
    scales[scales == 0] = 1.0
    with np.errstate(invalid="ignore"):  # a channel that is not finite becomes NaN, which training reports
        return (_rounded(wide, scales) * scales[:, None]).reshape(weight.shape)


def _largest(weight: Doubles) -> Doubles:
    """Returns the largest absolute value of each output channel's weights."""
    largest: Doubles = np.abs(weight).reshape(len(weight), -1).max(axis=1)
    return largest


def _rounded(weight: Doubles, scales: Doubles) -> Int8:
    steps = np.floor(weight / scales.reshape(-1, *[1] * (weight.ndim - 1)) + 0.5)
    return np.clip(steps, -LARGEST_WEIGHT, LARGEST_WEIGHT).astype(np.int8)


def _mean_error(node: Product, error: Doubles, mean: Doubles) -> Doubles:
    """Returns the mean of each output channel's error; borders of the image count as its inside."""
    if error.shape[2:] != mean.shape[1:] or any(node.padding):
        mean = np.broadcast_to(mean.mean(axis=(1, 2), keepdims=True), (len(mean), *error.shape[2:]))
    grouped = error.reshape(node.groups, -1, *error.shape[1:])
    sums: Doubles = np.einsum("gocij,gcij->go", grouped, mean.reshape(node.groups, -1, *error.shape[2:]))
    return sums.reshape(-1)
