"""Cases of layers that change the size of images."""

from contract.case import Case, any_shape, functional, image

from minidl.layers import (
    AdaptiveAvgPool2D,
    AdaptiveMaxPool2D,
    Flatten,
    GlobalAvgPool2D,
    GlobalMaxPool2D,
    Pad1D,
    Pad2D,
    Reshape,
    Upsample2D,
)


def numbers(rng, least, beyond, count):
    return tuple(int(n) for n in rng.integers(least, beyond, count))


def adaptive_case(rng, cls, torch):
    """Draws sizes that divide those of the image, and others; equal ones as an integer, some left to the image."""
    shape = image(rng)
    size = tuple(int(n) for n in rng.integers(1, 10, 2))
    if rng.random() < 0.3:
        shape = (shape[0], *(n * k for n, k in zip(size, numbers(rng, 1, 4, 2), strict=True)))
    kept = tuple(None if rng.random() < 0.2 else n for n in size)
    argument = size[0] if size[0] == size[1] else kept
    return Case(cls(argument), shape, lambda x: getattr(functional(), torch)(x, argument))


def adaptive_avg_pool2d(rng):
    return adaptive_case(rng, AdaptiveAvgPool2D, "adaptive_avg_pool2d")


def adaptive_max_pool2d(rng):
    return adaptive_case(rng, AdaptiveMaxPool2D, "adaptive_max_pool2d")


def global_avg_pool2d(rng):
    return Case(GlobalAvgPool2D(), image(rng), lambda x: functional().adaptive_avg_pool2d(x, 1))


def global_max_pool2d(rng):
    return Case(GlobalMaxPool2D(), image(rng), lambda x: functional().adaptive_max_pool2d(x, 1))


def flatten(rng):
    return Case(Flatten(), any_shape(rng), lambda x: x.flatten(1))


def reshape(rng):
    shape = numbers(rng, 1, 6, rng.integers(1, 5))
    in_shape = tuple(int(n) for n in rng.permutation(shape))
    argument = list(shape)
    if rng.random() < 0.5:
        argument[rng.integers(len(argument))] = -1
    return Case(Reshape(tuple(argument)), in_shape, lambda x: x.reshape(len(x), *shape))


def pad2d(rng):
    top, bottom, left, right = sides = numbers(rng, 0, 4, 4)
    value = float(rng.standard_normal())
    forms = {1: (top, (top,) * 4), 2: ((top, left), (top, top, left, left)), 4: (sides, sides)}
    argument, (top, bottom, left, right) = forms[int(rng.choice([1, 2, 4]))]
    shape, mode = image(rng), str(rng.choice(["constant", "reflect", "replicate", "circular"]))
    options = {"value": value} if mode == "constant" else {"mode": mode}
    if mode in ("reflect", "circular"):
        shape = (shape[0], shape[1] + 4, shape[2] + 4)
    layer = Pad2D(argument, **options)
    return Case(layer, shape, lambda x: functional().pad(x, (left, right, top, bottom), **options))


def pad1d(rng):
    left, right = numbers(rng, 0, 5, 2)
    mode = str(rng.choice(["constant", "reflect", "replicate", "circular"]))
    layer = Pad1D((left, right), mode=mode) if left != right else Pad1D(left, 0.0, mode)
    return Case(layer, numbers(rng, 5, 20, 2), lambda x: functional().pad(x, (left, right), mode=mode))


def upsample2d(rng):
    scale = numbers(rng, 1, 5, 2)
    argument = scale[0] if scale[0] == scale[1] else scale
    if rng.random() < 0.3:
        return Case(Upsample2D(argument), image(rng), lambda x: functional().interpolate(x, scale_factor=scale))
    options = {"mode": "bilinear", "align_corners": bool(rng.integers(2))}
    if rng.random() < 0.5:
        layer = Upsample2D(size=argument, **options)
        return Case(layer, image(rng), lambda x: functional().interpolate(x, size=scale, **options))
    shape = image(rng)
    factors = tuple(float(n) / 4 for n in rng.integers(4, 14, 2))
    factors = tuple(1.0 if int(n * f) == n else f for n, f in zip(shape[1:], factors, strict=True))  # PyTorch copies
    layer = Upsample2D(factors, **options)
    return Case(layer, shape, lambda x: functional().interpolate(x, scale_factor=factors, **options))


DRAWS = {
    "AdaptiveAvgPool2D": adaptive_avg_pool2d,
    "AdaptiveMaxPool2D": adaptive_max_pool2d,
    "Flatten": flatten,
    "GlobalAvgPool2D": global_avg_pool2d,
    "GlobalMaxPool2D": global_max_pool2d,
    "Pad1D": pad1d,
    "Pad2D": pad2d,
    "Reshape": reshape,
    "Upsample2D": upsample2d,
}
