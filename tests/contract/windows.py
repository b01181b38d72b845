"""Layers that slide a window over an image."""

from dataclasses import replace

from contract.case import Case, functional
from geometries import conv_cases, depthwise_cases, pool_cases, transposed_cases, winograd_cases

from minidl.layers import AvgPool2D, Conv2D, ConvTranspose2D, DepthwiseConv2D, MaxPool2D


def draw_case(cases, rng):
    """Draws a geometry; `cases` cycles through at most 14 kinds of geometries."""
    *_, case = cases(int(rng.integers(2**32)), int(rng.integers(1, 15)))
    return case


def symmetric(case):
    """Returns the geometry with equal padding before and after, the only kind that PyTorch supports."""
    top, bottom, left, right = case.padding
    vertical, horizontal = max(top, bottom), max(left, right)
    return replace(case, padding=(vertical, vertical, horizontal, horizontal))


def draw_pool(rng, dilated):
    """Draws a pooling that PyTorch has: with equal padding on both sides, maybe without dilation."""
    while True:
        case = draw_case(pool_cases, rng)
        if all(before == after for before, after in case.sides) and (dilated or case.dilation == (1, 1)):
            return case


def conv2d(rng):
    algorithm = "winograd" if rng.random() < 0.2 else "auto"
    case = symmetric(draw_case(winograd_cases if algorithm == "winograd" else conv_cases, rng))
    options = case.options | {"padding": case.padding[::2]}
    layer = Conv2D(case.filters, case.kernel, **options, use_bias=bool(rng.random() < 0.8), algorithm=algorithm)
    return Case(layer, case.x_shape[1:], lambda x, weight, bias=None: functional().conv2d(x, weight, bias, **options))


def avg_pool2d(rng):
    case = draw_pool(rng, dilated=False)
    options = case.options | {"count_include_pad": bool(rng.integers(2)), "padding": tuple(p for p, _ in case.sides)}
    kernel = options.pop("pool_size")
    del options["dilation"]
    layer = AvgPool2D(kernel, **options)
    return Case(layer, case.x_shape[1:], lambda x: functional().avg_pool2d(x, kernel, **options))


def conv_transpose2d(rng):
    case = draw_case(transposed_cases, rng)
    options = case.options
    layer = ConvTranspose2D(case.filters, case.kernel, **options, use_bias=bool(rng.random() < 0.8))

    def torch(x, weight, bias=None):
        return functional().conv_transpose2d(x, weight, bias, **options)

    return Case(layer, case.x_shape[1:], torch)


def depthwise_conv2d(rng):
    case = symmetric(draw_case(depthwise_cases, rng))
    options = case.options | {"padding": case.padding[::2]}
    groups = options.pop("groups")
    multiplier, use_bias = case.filters // groups, bool(rng.random() < 0.8)
    layer = DepthwiseConv2D(case.kernel, **options, depth_multiplier=multiplier, use_bias=use_bias)

    def torch(x, weight, bias=None):
        return functional().conv2d(x, weight, bias, **options, groups=groups)

    return Case(layer, case.x_shape[1:], torch)


def max_pool2d(rng):
    case = draw_pool(rng, dilated=True)
    options = case.options | {"padding": tuple(p for p, _ in case.sides)}
    kernel = options.pop("pool_size")
    layer = MaxPool2D(kernel, **options)
    return Case(layer, case.x_shape[1:], lambda x: functional().max_pool2d(x, kernel, **options))


DRAWS = {
    "AvgPool2D": avg_pool2d,
    "Conv2D": conv2d,
    "ConvTranspose2D": conv_transpose2d,
    "DepthwiseConv2D": depthwise_conv2d,
    "MaxPool2D": max_pool2d,
}
