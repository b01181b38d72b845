"""The exercise Conv2D: a filter slides over an image, and the mistakes that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from minidl.layers.conv2d import Conv2D
from minidl.testing.grading.layer_exercise import LayerExercise
from minidl.utils.arrays import Array

ROWS, COLUMNS = 2, 3  # of a filter
ALL, LAST = slice(None), slice(-1, None)  # of the filters


def patches(x: Array) -> Array:
    """Returns what each output sees, (n, c, oh, ow, 2, 3)."""
    return sliding_window_view(x, (ROWS, COLUMNS), (2, 3))


def slid(x: Array, w: Array) -> Array:
    """Returns the sums of the products of filters and patches."""
    return np.einsum("nchwrs,kcrs->nkhw", patches(x), w)


def met(c: Any, x: Array, dy: Array) -> Array:
    """Returns the sums of the products of dy and what each weight has met."""
    return np.einsum("nchwrs,nkhw->kcrs", patches(x), dy)


def sent(c: Any, w: Array, dy: Array) -> Array:
    """Returns dx if each output sends its dy, times the weights, to its patch."""
    dx = np.zeros(c.x.shape)
    for i, j in np.ndindex(ROWS, COLUMNS):
        dx[:, :, i : i + dy.shape[2], j : j + dy.shape[3]] += np.einsum("nkhw,kc->nchw", dy, w[:, :, i, j])
    return dx


def last_patch_only(c: Any, filters: slice = ALL) -> Array:
    """Returns dx if patches replace what others have sent. filters: those that count."""
    dx = np.zeros(c.x.shape)
    for i, j in np.ndindex(c.dy.shape[2:]):
        dx[:, :, i : i + ROWS, j : j + COLUMNS] = np.einsum("nk,kcrs->ncrs", c.dy[:, filters, i, j], c.W[filters])
    return dx


def exchanged(w: Array) -> Array:
    """Returns filters whose rows and columns were exchanged by reading their numbers in another order."""
    return w.reshape(*w.shape[:2], COLUMNS, ROWS).swapaxes(2, 3)


def flipped(w: Array) -> Array:
    """Returns filters turned by 180 degrees."""
    return w[:, :, ::-1, ::-1]


# Six examples x (2, 4, 7), weight W (4, 2, 2, 3), bias b (4,), gradient dy (6, 4, 3, 5).
CONVOLUTION = LayerExercise(
    Conv2D,
    (4, (ROWS, COLUMNS)),
    lambda rng: rng.integers(-4, 5, (6, 2, 4, 7)) * 1.0,
    {
        "y": [
            ("the filter is flipped, as in the convolution of mathematics; that of neural networks slides it as it is",
             lambda c: slid(c.x, flipped(c.W)) + c.b[:, None, None]),
            ("the bias is not added",
             lambda c: slid(c.x, c.W)),
            ("the bias is added once for each channel; it is once for each output",
             lambda c: slid(c.x, c.W) + 2 * c.b[:, None, None]),
            ("the bias is added once for each weight of a filter; it is once for each output",
             lambda c: slid(c.x, c.W) + 12 * c.b[:, None, None]),
            ("only the last channel counts: a loop over the channels replaces the sum at each turn",
             lambda c: slid(c.x[:, -1:], c.W[:, -1:]) + c.b[:, None, None]),
            ("only the first channel counts; an output is a sum over all channels of its patch",
             lambda c: slid(c.x[:, :1], c.W[:, :1]) + c.b[:, None, None]),
            ("the products are averaged over the patch, where they have to be summed",
             lambda c: slid(c.x, c.W) / 12 + c.b[:, None, None]),
            ("all filters are the first one",
             lambda c: slid(c.x, np.broadcast_to(c.W[:1], c.W.shape)) + c.b[:, None, None]),
            ("the rows and columns of the filter are exchanged",
             lambda c: slid(c.x, exchanged(c.W)) + c.b[:, None, None]),
            ("negative outputs are cut off; the activation is a layer of its own",
             lambda c: np.maximum(c.y, 0)),
            ("the outputs are summed over the batch; each example has an output of its own",
             lambda c: np.broadcast_to(slid(c.x, c.W).sum(0) + c.b[:, None, None], c.y.shape)),
        ],
        "dx": [
            ("a patch replaces what others have sent; dx misses the overlap of the patches, whose gradients add up",
             last_patch_only),
            ("an output replaces what others have sent, those of the other filters, too; their gradients add up",
             lambda c: last_patch_only(c, LAST)),
            ("the filter is flipped once too often, or once too little: dy is to meet the weight that x has met",
             lambda c: sent(c, flipped(c.W), c.dy)),
            ("only the last filter counts: a loop over the filters replaces dx at each turn",
             lambda c: sent(c, c.W[-1:], c.dy[:, -1:])),
            ("only the first filter counts; x was read by all of them",
             lambda c: sent(c, c.W[:1], c.dy[:, :1])),
            ("dx is smaller than x: at the border, too, pixels were read, by fewer outputs",
             lambda c: np.einsum("nkhwrs,kcrs->nchw", patches(c.dy), flipped(c.W))),
            ("dx is multiplied by x; the derivative of W x with respect to x is W alone",
             lambda c: c.dx * c.x),
            ("dx is made of y, the output, where dy belongs",
             lambda c: sent(c, c.W, c.y)),
            ("the rows and columns of the filter are exchanged",
             lambda c: sent(c, exchanged(c.W), c.dy)),
            ("dx is divided by the number of examples; an example's dx is its own",
             lambda c: c.dx / c.n),
            ("dx is summed over the batch; only gradients of parameters are, an example's dx is its own",
             lambda c: np.broadcast_to(c.dx.sum(0), c.x.shape)),
            ("the sign of dx is the other one; the optimizer subtracts",
             lambda c: -c.dx),
        ],
        "dW": [
            ("dW is divided by the number of examples; sum over the batch only, the Trainer divides",
             lambda c: c.dW / c.n),
            ("dW is that of the last example alone: a loop over the batch replaces it at each turn",
             lambda c: met(c, c.x[-1:], c.dy[-1:])),
            ("dW is that of the first example alone",
             lambda c: met(c, c.x[:1], c.dy[:1])),
            ("dW is divided by the number of positions; a weight is used at each of them, so its gradients add up",
             lambda c: c.dW / 15),
            ("dW is divided by the numbers of examples and positions; sum over both only, the Trainer divides",
             lambda c: c.dW / (15 * c.n)),
            ("dW is that of the last position alone: a loop over the positions replaces it at each turn",
             lambda c: np.einsum("ncrs,nk->kcrs", patches(c.x)[:, :, -1, -1], c.dy[:, :, -1, -1])),
            ("dW is that of the last position of the last example alone",
             lambda c: np.einsum("crs,k->kcrs", patches(c.x)[-1, :, -1, -1], c.dy[-1, :, -1, -1])),
            ("dW is flipped: a weight's gradient belongs to its own place in the filter",
             lambda c: flipped(c.dW)),
            ("the first channel's dW is used for all; each channel has met other pixels",
             lambda c: np.broadcast_to(c.dW[:, :1], c.dW.shape)),
            ("all filters have the dW of the first one",
             lambda c: np.broadcast_to(c.dW[:1], c.dW.shape)),
            ("dW is the product of two sums over the positions; it is the sum of the products at each position",
             lambda c: np.einsum("ncrs,nk->kcrs", patches(c.x).sum((2, 3)), c.dy.sum((2, 3)))),
            ("dW is kept for each example; the sum over the batch is missing",
             lambda c: np.einsum("nchwrs,nkhw->nkcrs", patches(c.x), c.dy)),
            ("dW adds to the gradient of the step before; backward replaces it",
             lambda c: c.old + c.dW),
            ("the sign of dW is the other one; the optimizer subtracts",
             lambda c: -c.dW),
        ],
        "db": [
            ("db still has a number for each position: the bias is added at all of them, so their gradients add up",
             lambda c: c.dy.sum(0)),
            ("db still has a number for each example: the sum over the batch is missing",
             lambda c: c.dy.sum((2, 3))),
            ("db is divided by the number of examples; sum over the batch only, the Trainer divides",
             lambda c: c.db / c.n),
            ("db is divided by the number of positions; the bias is added at each of them, so its gradients add up",
             lambda c: c.db / 15),
            ("db is divided by the numbers of examples and positions; sum over both only, the Trainer divides",
             lambda c: c.db / (15 * c.n)),
            ("db is that of the last example alone: a loop over the batch replaces it at each turn",
             lambda c: c.dy[-1].sum((1, 2))),
            ("db is that of the first example alone",
             lambda c: c.dy[0].sum((1, 2))),
            ("db is that of the last position alone: a loop over the positions replaces it at each turn",
             lambda c: c.dy[:, :, -1, -1].sum(0)),
            ("db is that of the last position of the last example alone",
             lambda c: c.dy[-1, :, -1, -1]),
            ("db is that of the first position alone",
             lambda c: c.dy[:, :, 0, 0].sum(0)),
            ("db is summed over the filters as well; each filter has a bias of its own",
             lambda c: np.full(4, c.dy.sum())),
            ("db adds to the gradient of the step before; backward replaces it",
             lambda c: c.old + c.db),
            ("the sign of db is the other one; the optimizer subtracts",
             lambda c: -c.db),
        ],
    },
    others=[((2, (1, 1)), (3, 2, 3)), ((1, (3, 2)), (1, 3, 4))],
)  # fmt: skip
