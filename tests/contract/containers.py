"""Cases of layers made of layers, with branches that fork and join."""

import functools

from contract.case import Case, functional, image

from minidl.layers import (
    BatchNorm2D,
    Block,
    Conv2D,
    DepthwiseConv2D,
    GlobalMaxPool2D,
    MaxPool2D,
    Parallel,
    ReLU,
    Rescale,
    Reshape,
    Residual,
    Sigmoid,
    SiLU,
    SqueezeExcite,
)


def conv(x, params, place, **options):
    """Returns PyTorch's counterpart of a Conv2D with a kernel of 3 and padding 1, or with a kernel of 1."""
    weight = params[f"{place}.weight"]
    padding = weight.shape[-1] // 2
    return functional().conv2d(x, weight, params.get(f"{place}.bias"), padding=padding, **options)


def norm(x, params, place):
    weight, bias = params[f"{place}.weight"], params[f"{place}.bias"]
    return functional().batch_norm(x, None, None, weight, bias, training=True)


def residual(rng):
    """Draws a Residual, with a convolution as shortcut if the channels change, maybe with batch norm or nested."""
    channels, height, width = image(rng)
    filters = channels if rng.random() < 0.5 else int(rng.integers(1, 5))
    normed, nested = rng.random() < 0.3, rng.random() < 0.3
    inner = [ReLU(), Conv2D(filters, 3, padding=1, use_bias=False)]
    norms, rest = [BatchNorm2D()] if normed else [], [Residual(*inner)] if nested else inner
    body = [Conv2D(filters, 3, padding=1), *norms, *rest]
    shortcut = None if filters == channels else Conv2D(filters, 1)

    def by_torch(x, **params):
        y = conv(x, params, "body.0")
        y = norm(y, params, "body.1") if normed else y
        place = f"body.{1 + normed}.body.1" if nested else f"body.{2 + normed}"
        added = conv(functional().relu(y), params, place)
        y = y + added if nested else added
        return y + (x if shortcut is None else conv(x, params, "shortcut.0"))

    layer = Residual(*body, shortcut=shortcut)
    return Case(layer, (channels, height, width), by_torch, couples_examples=normed)


def parallel(rng):
    """Draws one to four branches: among them the identity, one with a pool, and one that is broadcast by most joins."""
    channels, height, width = image(rng)
    join = str(rng.choice(["add", "concat", "concat", "multiply", "divide", "maximum", "minimum", "power"]))
    axis = int(rng.integers(-3, 3)) if join == "concat" else 0
    widths = [channels if join != "concat" or axis % 3 else int(rng.integers(1, 4)) for _ in range(3)]
    branches = [
        ([Conv2D(widths[0], 1), ReLU()], lambda x, p, i: functional().relu(conv(x, p, f"branches.{i}.0"))),
        (Conv2D(widths[1], 3, padding=1), lambda x, p, i: conv(x, p, f"branches.{i}.0")),
        ([], lambda x, p, i: x),
        (
            [MaxPool2D(3, 1, padding=1), Conv2D(widths[2], 1), Sigmoid()],
            lambda x, p, i: conv(functional().max_pool2d(x, 3, 1, 1), p, f"branches.{i}.1").sigmoid(),
        ),
    ]
    if join in ("multiply", "maximum", "minimum", "power"):
        layers = [GlobalMaxPool2D(), Reshape((-1, 1, 1)), Conv2D(channels, 1)]
        branches[1] = (layers, lambda x, p, i: conv(functional().adaptive_max_pool2d(x, 1), p, f"branches.{i}.2"))
    if join == "divide":  # by numbers from 1 to 2
        divisor = [Sigmoid(), Rescale(1.0, 1.0)]
        gate = [GlobalMaxPool2D(), Reshape((-1, 1, 1)), Sigmoid(), Rescale(1.0, 1.0)]
        divisors = [(divisor, lambda x, p, i: 1 + x.sigmoid())]
        divisors.append((gate, lambda x, p, i: 1 + functional().adaptive_max_pool2d(x, 1).sigmoid()))
        chosen = [branches[1], *(divisors[i] for i in rng.permutation(2)[: rng.integers(1, 3)])]
    elif join == "power":  # of numbers from 1 to 2
        base = ([Sigmoid(), Rescale(1.0, 1.0)], lambda x, p, i: 1 + x.sigmoid())
        chosen = [base, *(branches[i] for i in rng.permutation(4)[: rng.integers(1, 3)])]
    else:
        chosen = [branches[i] for i in rng.permutation(4)[: rng.integers(1, 5)]]

    def by_torch(x, **params):
        import torch

        found = [function(x, params, i) for i, (_, function) in enumerate(chosen)]
        if join == "concat":
            return torch.cat(found, axis % 3 + 1)
        names = {"multiply": "mul", "divide": "div", "power": "pow"}
        return functools.reduce(getattr(torch, names.get(join, join)), found)

    layer = Parallel(*(branch for branch, _ in chosen), join=join, axis=axis)
    return Case(layer, (channels, height, width), by_torch)


def block(rng):
    channels, height, width = image(rng)

    def by_torch(x, **params):
        weight = params["0.weight"]
        return functional().relu(functional().conv2d(x, weight, params["0.bias"], padding=1, groups=channels))

    return Case(Block(DepthwiseConv2D(3, padding=1), ReLU()), (channels, height, width), by_torch)


def squeeze_excite(rng):
    shape, layer = image(rng), SqueezeExcite(int(rng.integers(1, 5)))
    if with_silu := bool(rng.integers(2)):
        layer = SqueezeExcite(layer.squeeze_channels, activation=SiLU())

    def by_torch(x, **params):
        squeezed = conv(functional().adaptive_avg_pool2d(x, 1), params, "gate.2")
        squeezed = functional().silu(squeezed) if with_silu else functional().relu(squeezed)
        return x * conv(squeezed, params, "gate.4").sigmoid()

    return Case(layer, shape, by_torch)


DRAWS = {"Block": block, "Parallel": parallel, "Residual": residual, "SqueezeExcite": squeeze_excite}
