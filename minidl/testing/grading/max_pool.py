"""The exercise MaxPool2D: the largest number of each window, and the mistakes that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from minidl.layers.maxpool2d import MaxPool2D
from minidl.testing.grading.layer_exercise import LayerExercise
from minidl.utils.arrays import Array

POOL, STRIDE = 3, 2


def inputs(rng: np.random.Generator) -> Array:
    """Returns three examples (2, 5, 8): equal maxima in overlapping windows, in the second channel all below 0."""
    x = rng.integers(-3, 4, (3, 2, 5, 8)) * 1.0
    x[:, 1] -= 4
    return x


def windows(x: Array, pool: int = POOL, stride: int = STRIDE) -> Array:
    """Returns the windows of images, (n, c, oh, ow, pool, pool)."""
    return sliding_window_view(x, (pool, pool), (2, 3))[:, :, ::stride, ::stride]


def flat(x: Array) -> Array:
    """Returns the windows with their numbers in rows, (n, c, oh, ow, 9)."""
    found = windows(x)
    return found.reshape(*found.shape[:4], POOL * POOL)


def starting(c: Any, step: int) -> Array:
    """Returns the maxima of windows with another step; at the border they are cut off."""
    y = np.zeros(c.y.shape)
    for i, j in np.ndindex(y.shape[2:]):
        y[:, :, i, j] = c.x[:, :, i * step : i * step + POOL, j * step : j * step + POOL].max((2, 3))
    return y


def sent(c: Any, shares: Array, dy: Array | None = None) -> Array:
    """Returns dx if each number of a window gets a share of its dy: shares (n, c, oh, ow, 9), or fewer axes."""
    dx = np.zeros(c.x.shape)
    dy = c.dy if dy is None else dy
    parts = np.broadcast_to(shares, (*dy.shape, POOL * POOL)) * dy[..., None]
    for place in range(POOL * POOL):
        i, j = divmod(place, POOL)
        dx[:, :, i : i + STRIDE * dy.shape[2] : STRIDE, j : j + STRIDE * dy.shape[3] : STRIDE] += parts[..., place]
    return dx


def one(places: Array) -> Array:
    """Returns shares of 1 at these places of the windows, and 0 elsewhere."""
    return (np.arange(POOL * POOL) == np.asarray(places)[..., None]) * 1.0


def looped(c: Any, to: Callable[[int, int, int, int], tuple[int, int]], adds: bool = True) -> Array:
    """Returns dx of a loop over the windows. to(i, j, row, column): where the maximum of a window is looked for."""
    dx = np.zeros(c.x.shape)
    places = flat(c.x).argmax(-1)
    for n, k, i, j in np.ndindex(c.dy.shape):
        at = (n, k, *to(i, j, *divmod(int(places[n, k, i, j]), POOL)))
        dx[at] = c.dy[n, k, i, j] + (dx[at] if adds else 0)
    return dx


def in_image(i: int, j: int, row: int, column: int) -> tuple[int, int]:
    """Returns the place of a window's number in the image."""
    return i * STRIDE + row, j * STRIDE + column


def without_offset(i: int, j: int, row: int, column: int) -> tuple[int, int]:
    """Returns the place in the window."""
    return row, column


def without_stride(i: int, j: int, row: int, column: int) -> tuple[int, int]:
    """Returns the place in the image with windows that begin at (i, j)."""
    return i + row, j + column


def counted(i: int, j: int, row: int, column: int) -> tuple[int, int]:
    """Returns the place in an image of 8 columns if that in the window is counted row by row."""
    return divmod(row * POOL + column, 8)


def of_channels(c: Any) -> Array:
    """Returns dx if the maximum of a whole channel gets the gradients of all windows."""
    largest = c.x.reshape(*c.x.shape[:2], 40).argmax(-1)[..., None]
    return ((np.arange(40) == largest) * c.dy.sum((2, 3))[..., None]).reshape(c.x.shape)


def first_window(c: Any, shares: Array) -> Array:
    """Returns dx if only the first window of the batch sends its gradient, by shares as in sent."""
    dy = np.zeros(c.dy.shape)
    dy[0, 0, 0, 0] = c.dy[0, 0, 0, 0]
    return sent(c, shares, dy)


def ties(c: Any) -> Array:
    """Returns 1 for each maximum of a window, also if there are several."""
    return (flat(c.x) == c.y[..., None]) * 1.0


MAX_POOL = LayerExercise(
    MaxPool2D,
    (POOL, STRIDE),
    inputs,
    {
        "y": [
            ("the mean of a window is computed; the largest number is asked for",
             lambda c: flat(c.x).mean(-1)),
            ("the smallest number of a window is taken",
             lambda c: flat(c.x).min(-1)),
            ("the search starts at 0, so a window of negative numbers gives 0",
             lambda c: np.maximum(c.y, 0)),
            ("the sum of a window is computed; the largest number is asked for",
             lambda c: flat(c.x).sum(-1)),
            ("the stride is ignored: windows are to begin at stride * i, not at i",
             lambda c: starting(c, 1)),
            ("the windows lie side by side: their step is stride, not pool_size",
             lambda c: starting(c, POOL)),
            ("the last row and column of each window are left out",
             lambda c: windows(c.x, POOL - 1).max((4, 5))[:, :, :2, :3]),
            ("the maximum is taken over the channels, too; each channel has its own",
             lambda c: np.broadcast_to(c.y.max(1, keepdims=True), c.y.shape)),
            ("the maximum is taken over the batch, too; each example has its own",
             lambda c: np.broadcast_to(c.y.max(0), c.y.shape)),
            ("the place of the maximum is returned, where its value is asked for",
             lambda c: flat(c.x).argmax(-1)),
            ("the places of the first example's maxima are used for all; each example has its own",
             lambda c: np.take_along_axis(flat(c.x), flat(c.x)[:1].argmax(-1)[..., None], -1)[..., 0]),
        ],
        "dx": [
            ("the gradient goes to the last of equal maxima; the first one, row by row, gets it",
             lambda c: sent(c, one(POOL * POOL - 1 - flat(c.x)[..., ::-1].argmax(-1)))),
            ("each of equal maxima gets the whole gradient; the first one gets it, or a window would pass on more",
             lambda c: sent(c, ties(c))),
            ("equal maxima share the gradient; the first one, row by row, gets all of it",
             lambda c: sent(c, ties(c) / ties(c).sum(-1, keepdims=True))),
            ("a window replaces what others have sent to the same maximum; where windows overlap, gradients add up",
             lambda c: looped(c, in_image, adds=False)),
            ("the places of the first example's maxima are used for all; each example sends its gradient to its own",
             lambda c: sent(c, one(flat(c.x)[:1].argmax(-1)))),
            ("the places are those of the maxima of the batch's sum; each example sends its gradient to its own maxima",
             lambda c: sent(c, one(flat(c.x).sum(0, keepdims=True).argmax(-1)))),
            ("the places of the first channel's maxima are used for all; each channel has its own",
             lambda c: sent(c, one(flat(c.x)[:, :1].argmax(-1)))),
            ("every number of a window gets its gradient; only the maximum does",
             lambda c: sent(c, np.ones(9))),
            ("the numbers of a window share its gradient, as in average pooling; the maximum gets all of it",
             lambda c: sent(c, np.full(9, 1 / 9))),
            ("the first number of each window gets the gradient; the maximum does",
             lambda c: sent(c, one(np.array(0)))),
            ("the maxima themselves are sent back, where dy belongs",
             lambda c: sent(c, one(flat(c.x).argmax(-1)), c.y)),
            ("rows and columns are exchanged in the place of a maximum",
             lambda c: sent(c, one(flat(c.x).argmax(-1))[..., np.arange(9).reshape(3, 3).T.reshape(9)])),
            ("the place in a window is taken for that in the image: the window's own offset is missing",
             lambda c: looped(c, without_offset)),
            ("the window's own offset is missing in the place of a maximum, and windows replace what others have sent",
             lambda c: looped(c, without_offset, adds=False)),
            *(("the stride is forgotten in the place of a maximum: windows begin at stride * i, not at i",
               lambda c, adds=adds: looped(c, without_stride, adds)) for adds in (True, False)),
            *(("the number that argmax counts in the window is taken for one that counts the pixels of the image",
               lambda c, adds=adds: looped(c, counted, adds)) for adds in (True, False)),
            ("the maximum of the whole channel gets the gradients of all windows; each window has a maximum of its own",
             of_channels),
            *(("only the first window has sent its gradient: is `return` inside the loop?",
               lambda c, ties_too=ties_too: first_window(c, ties(c) if ties_too else one(flat(c.x).argmax(-1))))
              for ties_too in (False, True)),
            ("dy is multiplied by the maximum; the slope of a maximum is 1",
             lambda c: sent(c, one(flat(c.x).argmax(-1)), c.dy * c.y)),
            ("the smallest number of each window gets the gradient",
             lambda c: sent(c, one(flat(c.x).argmin(-1)))),
            ("dx marks the maxima; by the chain rule they get dy",
             lambda c: sent(c, one(flat(c.x).argmax(-1)), np.ones(c.dy.shape))),
            ("dx marks the maxima; by the chain rule they get dy",
             lambda c: np.minimum(sent(c, one(flat(c.x).argmax(-1)), np.ones(c.dy.shape)), 1)),
            ("dx is divided by the number of examples; an example's dx is its own",
             lambda c: c.dx / c.n),
            ("dx is summed over the batch; only gradients of parameters are, and this layer has none",
             lambda c: np.broadcast_to(c.dx.sum(0), c.x.shape)),
            ("the sign of dx is the other one; the optimizer subtracts",
             lambda c: -c.dx),
        ],
    },
    others=[((2, 2), (2, 4, 6)), ((2, 1), (1, 3, 4))],
)  # fmt: skip
