"""Weights of examples: validation, weights of classes, and means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minidl.utils.arrays import Array, as_array, check_array
from minidl.utils.validation import Shape

Weights = NDArray[np.float64]


def as_weights(weights: Any, n: int) -> Weights:
    """Returns sample_weight as float64 (n,); raises ValueError unless finite, not negative and not all zero."""
    array = as_array(weights, "sample_weight")
    if array.shape != (n,):
        hint = "; a loss weighs pixels: SoftmaxCrossEntropy(weight=[...], ignore_index=...)" if array.ndim > 2 else ""
        raise ValueError(f"sample_weight: expected shape ({n},), got {array.shape}{hint}")
    array = array.astype(np.float64)
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError("sample_weight: expected finite weights of at least 0")
    if n and not array.any():
        raise ValueError("sample_weight: expected at least one weight above 0, got zeros")
    return array


def times_class_weights(weights: Weights | None, class_weight: Any, y: Array, outputs: Shape) -> Weights:
    """Returns the weight of each example times that of its class; an example of weight 0 has no class.

    class_weight: a dict, 1 for labels that are not in it, or "balanced". Labels of a dict occur in y, or are those of
    a model with these outputs. weights: those of the examples; None: ones.
    """
    y = check_array(y, "y")
    if y.ndim != 1 or y.dtype.kind not in "iub":
        hint = ""
        if y.ndim > 1 and y.dtype.kind in "iub":
            positions = "SoftmaxCrossEntropy(weight=[...]) or BinaryCrossEntropy(pos_weight=...)"
            hint = f": it weighs examples; {positions} weighs positions by their labels"
        raise TypeError(f"class_weight: expected integer labels y of shape (n,) with it, got {y.dtype} {y.shape}{hint}")
    used = np.ones(len(y), bool) if weights is None else weights > 0
    own = np.ones(int(used.sum())) if weights is None else weights[used]
    if isinstance(class_weight, str) and class_weight == "balanced":
        by_class = balanced_weights(y[used], own)
    elif isinstance(class_weight, dict):
        by_class = _from_dict(class_weight, y[used], outputs)
    else:
        raise TypeError(f"class_weight: expected a dict, 'balanced' or None, got {class_weight!r}")
    products = np.zeros(len(y))
    products[used] = product(own, by_class)
    return products


def product(weights: Weights, of_classes: Weights) -> Weights:
    """Returns weights above 0 times those of classes; raises ValueError for products that float64 cannot hold."""
    with np.errstate(over="ignore", under="ignore"):
        products: Weights = weights * of_classes
    if not np.isfinite(products).all() or ((products == 0) & (of_classes > 0)).any():
        raise ValueError("sample_weight, class_weight: expected weights with a product that float64 can hold")
    return products


def balanced_weights(y: Array, weights: Weights) -> Weights:
    """Returns for each example the total weight divided by (number of classes * weight of its class).

    Without weights, `n / (classes * count)`, as in scikit-learn. So integer weights equal repeated examples.
    """
    labels, indices = np.unique(y, return_inverse=True)
    weights = _scaled(weights)[0]
    totals = np.bincount(indices, weights)
    by_class: Weights = (totals.sum() / (len(labels) * totals))[indices]
    return by_class


def _from_dict(class_weight: dict[int, float], y: Array, outputs: Shape) -> Weights:
    classes = max(2, outputs[0])  # of one output: 0 and 1
    weights = np.ones(len(y))
    for label, weight in class_weight.items():
        matches = y == label
        if not np.any(matches) and not (isinstance(label, (int, np.integer)) and 0 <= label < classes):
            raise ValueError(f"class_weight: expected labels in y, or from 0 to {classes - 1}, got {label!r}")
        if not isinstance(weight, (int, float, np.number)) or not np.isfinite(weight) or weight < 0:
            raise ValueError(f"class_weight: expected finite weights of at least 0, got {weight!r} for {label!r}")
        weights[matches] = weight
    return weights


def mean_weight(weights: Weights) -> float:
    """Returns the mean of weights above 0; their sum is correctly rounded."""
    scaled, exponent = _scaled(weights)
    return math.ldexp(math.fsum(scaled.tolist()) / len(scaled), exponent)


def weighted_mean(losses: Array, weights: Weights | None) -> float:
    """Returns sum(weight * loss) / sum(weight), correctly rounded: in any order the same bits. None: weights of 1.

    It is NaN without a loss of a weight above 0.
    """
    if not len(losses):
        return float("nan")
    if weights is None:
        return math.fsum(losses.tolist()) / len(losses)  # a list: fsum takes three times as long for an array
    if not weights.any():
        return float("nan")
    scaled = _scaled(weights)[0]
    return math.fsum((scaled * losses.astype(np.float64)).tolist()) / math.fsum(scaled.tolist())


def of_labeled(weights: Weights | None, labeled: NDArray[np.bool_]) -> Weights:
    """Returns the weights of examples, 0 without a label; weights: None: ones."""
    return np.where(labeled, 1.0 if weights is None else weights, 0.0)


def _scaled(weights: Weights) -> tuple[Weights, int]:
    """Returns weights divided by a power of 2, so that the largest is at most 1, and its exponent."""
    exponent = int(np.frexp(weights.max(initial=0))[1])
    return np.ldexp(weights, -exponent), exponent


def step_factors(weights: Weights, dtype: str, mean: float = 1.0) -> Array:
    """Returns weights / mean as factors of gradients, in the model's dtype; raises ValueError for what it cannot hold.

    A quotient of 0 of a weight above 0 is among that.
    """
    kind, factors = np.finfo(dtype), weights / mean
    if factors.max(initial=0) > kind.max or factors[weights > 0].min(initial=1) < kind.tiny:
        fit = f"expected weights of 0, or from {kind.tiny} to {kind.max} ({dtype})"
        raise ValueError(f"sample_weight, class_weight: {fit}")
    return factors.astype(dtype)
