"""Layers for the tests of the blocked layout: those of the contract's table, windows, and sizes beyond some blocks."""

import copy
from dataclasses import replace

import numpy as np
from contract import norms, signals, windows
from contract.case import Case
from contract.every_layer import DRAWS
from geometries import pool_cases

from minidl import Sequential
from minidl.layers import (
    AvgPool2D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    LayerNorm,
    MaxPool2D,
    RMSNorm,
    Scale,
)

OFTEN = {*windows.DRAWS, *signals.DRAWS, *norms.DRAWS, "PReLU"}  # layers with many forms


def wide():
    """Yields layers of many channels, as names and cases."""
    for channels, filters, size, groups in (
        *((16, 16, 9, 1), (32, 48, 9, 1), (20, 70, 8, 1), (32, 32, 7, 2), (130, 18, 3, 1), (7, 40, 5, 1)),
        *((48, 33, 5, 1), (300, 100, 4, 1)),
    ):
        shape = (channels, size, size + 3)
        for options in ({"padding": 1}, {"stride": (2, 1), "padding": (2, 1)}, {"dilation": (1, 2)}):
            yield "Conv2D", Case(Conv2D(filters, 3, groups=groups, algorithm="direct", **options), shape)
        for layer in (Conv2D(filters, (2, 4), padding="same", groups=groups), DepthwiseConv2D((4, 2), padding="same")):
            yield type(layer).__name__, Case(layer, shape)  # one pixel more on one side
        yield "Conv2D", Case(Conv2D(filters, 3, padding=1, groups=groups), shape)
        yield "Conv2D", Case(Conv2D(filters, 1, groups=groups, use_bias=False), shape)
        yield "DepthwiseConv2D", Case(DepthwiseConv2D(3, padding=1), shape)
    for inputs, units in ((1, 1), (3, 70), (33, 7), (64, 16), (300, 150), (129, 300)):
        for use_bias in (True, False):
            yield "Dense", Case(Dense(units, use_bias=use_bias), (inputs,))
    for shape in ((768, 3, 2), (1040, 2, 1), (2100, 1, 1), (2048, 1), (3, 5, 20), (20, 33)):
        for layer in (LayerNorm, RMSNorm):
            for affine in (True, False):
                yield layer.__name__, Case(layer(eps=1e-3, affine=affine, axis="channels"), shape)
        for use_bias in (True, False):
            yield "Scale", Case(Scale(use_bias=use_bias), shape)


def wider(case):
    """Returns the case with 32 more channels, or as it is if the layer does not take them."""
    shape = (case.in_shape[0] + 32, *case.in_shape[1:])
    try:
        Sequential([copy.deepcopy(case.layer)], shape)
    except ValueError:
        return case
    return replace(case, in_shape=shape)


def blocked_cases(seed):
    """Yields names and cases of every layer."""
    for name in sorted(DRAWS):
        rng = np.random.default_rng([seed, *name.encode()])
        for k in range(12 if name in OFTEN else 2):
            case = DRAWS[name](rng)
            yield name, wider(case) if k == 1 else case
    for case in pool_cases(seed, 12):  # also with paddings that PyTorch does not have
        yield "MaxPool2D", Case(MaxPool2D(**case.options), case.x_shape[1:])
        yield "AvgPool2D", Case(AvgPool2D(**case.options), case.x_shape[1:])
    if seed == 0:
        yield from wide()
