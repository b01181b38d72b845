"""Cases of layers that slide a window over a signal, (channels, length), or reduce it."""

from contract.case import Case, functional

from minidl.layers import (
    AvgPool1D,
    Conv1D,
    ConvTranspose1D,
    DepthwiseConv1D,
    GlobalAvgPool1D,
    GlobalMaxPool1D,
    MaxPool1D,
)


def integer(rng, least, most):
    return int(rng.integers(least, most + 1))


def chance(rng, share=0.5):
    return bool(rng.random() < share)


def draw_convolution(rng):
    """Draws channels, length, kernel, padding, the zeros (left, right) that it means, stride and dilation."""
    kernel, dilation, stride = integer(rng, 1, 5), integer(rng, 1, 3), integer(rng, 1, 3)
    reach = (kernel - 1) * dilation
    length = reach + integer(rng, 1, 40)
    total = max((-(-length // stride) - 1) * stride + reach + 1 - length, 0)
    left, right = integer(rng, 0, 4), integer(rng, 0, 4)
    paddings = [(left, (left, left)), ((left, right), (left, right)), ("valid", (0, 0)), ("causal", (reach, 0))]
    paddings.append(("same", (total // 2, total - total // 2)))
    padding, sides = paddings[integer(rng, 0, 4)]
    return (integer(rng, 1, 5), length), kernel, padding, sides, {"stride": stride, "dilation": dilation}


def conv1d(rng):
    (channels, length), kernel, padding, sides, options = draw_convolution(rng)
    options["groups"] = integer(rng, 1, 3)
    shape, filters = (channels * options["groups"], length), integer(rng, 1, 20) * options["groups"]
    layer = Conv1D(filters, kernel, padding=padding, **options, use_bias=chance(rng, 0.8))

    def torch(x, weight, bias=None):
        return functional().conv1d(functional().pad(x, sides), weight, bias, **options)

    return Case(layer, shape, torch)


def depthwise_conv1d(rng):
    shape, kernel, padding, sides, options = draw_convolution(rng)
    multiplier = integer(rng, 1, 3)
    layer = DepthwiseConv1D(kernel, padding=padding, **options, depth_multiplier=multiplier, use_bias=chance(rng, 0.8))

    def torch(x, weight, bias=None):
        return functional().conv1d(functional().pad(x, sides), weight, bias, **options, groups=shape[0])

    return Case(layer, shape, torch)


def conv_transpose1d(rng):
    kernel, options = integer(rng, 1, 5), {"stride": integer(rng, 1, 3), "dilation": integer(rng, 1, 3)}
    options["groups"], options["output_padding"] = integer(rng, 1, 3), integer(rng, 0, max(options.values()) - 1)
    length = integer(rng, 1, 20)
    spread = (length - 1) * options["stride"] + (kernel - 1) * options["dilation"] + 1 + options["output_padding"]
    left = integer(rng, 0, min(spread - 1, 3))
    right = integer(rng, 0, min(spread - 1 - left, 3))
    shape, filters = (integer(rng, 1, 4) * options["groups"], length), integer(rng, 1, 5) * options["groups"]
    padding = left if left == right else (left, right)
    layer = ConvTranspose1D(filters, kernel, padding=padding, **options, use_bias=chance(rng, 0.8))

    def torch(x, weight, bias=None):
        return functional().conv_transpose1d(x, weight, bias, **options)[..., left : spread - right]

    return Case(layer, shape, torch)


def draw_pool(rng):
    """Draws a shape and the arguments that both frameworks have."""
    size, padding = integer(rng, 1, 6), 0
    if chance(rng):
        padding = integer(rng, 0, size // 2)
    options = {"padding": padding, "ceil_mode": chance(rng)}
    options["stride"] = None if chance(rng) else integer(rng, 1, 5)
    return (integer(rng, 1, 5), size + integer(rng, 0, 30)), size, options


def max_pool1d(rng):
    (channels, length), size, options = draw_pool(rng)
    options["dilation"] = integer(rng, 1, 3)
    layer = MaxPool1D(size, **options)
    return Case(layer, (channels, length + 2 * size), lambda x: functional().max_pool1d(x, size, **options))


def avg_pool1d(rng):
    shape, size, options = draw_pool(rng)
    options["count_include_pad"] = chance(rng)
    return Case(AvgPool1D(size, **options), shape, lambda x: functional().avg_pool1d(x, size, **options))


def signal(rng):
    return integer(rng, 1, 5), integer(rng, 1, 40)


DRAWS = {
    "AvgPool1D": avg_pool1d,
    "Conv1D": conv1d,
    "ConvTranspose1D": conv_transpose1d,
    "DepthwiseConv1D": depthwise_conv1d,
    "GlobalAvgPool1D": lambda rng: Case(GlobalAvgPool1D(), signal(rng), lambda x: x.mean(2)),
    "GlobalMaxPool1D": lambda rng: Case(GlobalMaxPool1D(), signal(rng), lambda x: x.amax(2)),
    "MaxPool1D": max_pool1d,
}
