"""Predictions over views: the mean of the scores of an image and of variants of it, such as its mirror image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from minidl.engine.network import Network, Predict
from minidl.utils.arrays import Array
from minidl.utils.data import ArraySource

Views = str | Callable[[Array], Iterable[ArrayLike]]


def _flip(x: Array) -> Iterator[tuple[int, Array]]:
    """Yields weights and images: x (n, c, h, w) and its mirror image."""
    yield 1, x
    yield 1, x[..., ::-1]


def _flip_shift(x: Array) -> Iterator[tuple[int, Array]]:
    """Yields x with half of the weight, and x moved by a pixel down and right, or up and left; of each both sides.

    The border is reflected.
    """
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect")
    for weight, moved in ((2, x), (1, padded[..., :-2, :-2]), (1, padded[..., 2:, 2:])):
        yield weight, moved
        yield weight, moved[..., ::-1]


NAMES = {"flip": _flip, "flip+shift": _flip_shift}


def over_views(network: Network, views: Views) -> Predict:
    """Returns a function that predicts as `network.predict`, the mean over views of each image.

    views: a name, or a function that returns views of images (n, c, h, w). Raises TypeError or ValueError for others,
    and unless the network takes images and has vectors of scores.
    """
    weighted = NAMES.get(views) if isinstance(views, str) else _weighted(views)
    if weighted is None:
        raise ValueError(f"views: expected {' or '.join(map(repr, NAMES))}, or a function of images, got {views!r}")
    in_shape, outputs = network.layers[0].in_shape, network.outputs
    if len(in_shape) != 3:
        raise ValueError(f"views: expected a model of images (c, h, w), got input_shape {in_shape}")
    for shape in [network.out_shape] if outputs is None else outputs.shapes.values():
        if len(shape) != 1:
            remedy = "mean over model.predict of each view, whose scores you turn back"
            raise ValueError(f"views: expected a model with a vector of scores, got outputs {shape}: take the {remedy}")

    def predict(x: Array, num_threads: int | None) -> Array:
        images = x.view()
        images.flags.writeable = False  # they may be the caller's
        total, weights = np.zeros((len(x), *network.out_shape), network.dtype), 0
        for weight, view in weighted(images):
            source = ArraySource(view, in_shape, network.dtype, "views(X)")
            if len(source) != len(x):
                raise ValueError(f"views(X): expected a view of each of {len(x)} images, got {len(source)}")
            with np.errstate(over="ignore", invalid="ignore"):  # scores may be infinite
                total += weight * network.predict(source.chunk(0, len(x)).reshape(x.shape), num_threads)
            weights += weight
        if not weights:
            raise ValueError("views(X): expected at least one view, got none")
        total /= weights
        return total

    return predict


def _weighted(views: Callable[[Array], Iterable[ArrayLike]]) -> Callable[[Array], Iterator[tuple[int, ArrayLike]]]:
    """Returns a user's function with equal weights; raises TypeError for what is none."""
    if not callable(views) or isinstance(views, type):
        raise TypeError(f"views: expected {' or '.join(map(repr, NAMES))}, or a function of images, got {views!r}")

    def weighted(x: Array) -> Iterator[tuple[int, ArrayLike]]:
        made = views(x)
        if isinstance(made, np.ndarray) or not isinstance(made, Iterable):
            expected = "expected several arrays of images, in a list or by yield"
            raise TypeError(f"views(X): {expected}, got {type(made).__name__}")
        for view in made:
            yield 1, view

    return weighted
