"""Cases of normalization layers."""

from contract.case import Case, any_shape, functional, image

from minidl.layers import BatchNorm1D, BatchNorm2D, GroupNorm, LayerNorm, LocalResponseNorm, RMSNorm


def draw_options(rng):
    return {"eps": float(rng.choice([1e-5, 1e-3, 0.1])), "affine": bool(rng.integers(4))}


def torch_group_norm(x, groups, eps, weight=None, bias=None):
    """Calls group_norm without the check of torch.nn.functional, which refuses groups of a single value."""
    import torch

    return torch.group_norm(x, groups, weight, bias, eps)


def group_norm(rng):
    groups, options, (channels, *pixels) = int(rng.integers(1, 5)), draw_options(rng), any_shape(rng)
    layer = GroupNorm(groups, **options)
    return Case(
        layer, (groups * channels, *pixels), lambda x, **params: torch_group_norm(x, groups, layer.eps, **params)
    )


def layer_norm(rng):
    return norm_of_example(rng, LayerNorm, "layer_norm")


def rms_norm(rng):
    return norm_of_example(rng, RMSNorm, "rms_norm")


def norm_of_example(rng, cls, function):
    """Draws a norm over the whole example or its channels, which PyTorch wants as the last axis."""
    axis, shape = (None, "channels")[rng.integers(2)], any_shape(rng)
    layer = cls(axis=axis, **draw_options(rng))

    def torch(x, **params):
        over = shape if axis is None else shape[:1]
        x = x if axis is None else x.movedim(1, -1)
        y = getattr(functional(), function)(x, over, eps=layer.eps, **params)
        return y if axis is None else y.movedim(-1, 1)

    return Case(layer, shape, torch)


def local_response_norm(rng):
    size, shape = int(rng.choice([1, 3, 5, 9])), any_shape(rng)
    alpha, beta, k = float(rng.choice([1e-4, 0.5])), float(rng.choice([0.75, 0.5, 1.3])), float(rng.choice([1.0, 2.0]))

    def torch(x):
        return functional().local_response_norm(x.reshape(len(x), shape[0], -1), size, alpha, beta, k).reshape(x.shape)

    return Case(LocalResponseNorm(size, alpha, beta, k), shape, torch)


def batch_norm(rng, cls, shape):
    eps, affine = float(rng.choice([1e-5, 1e-3])), bool(rng.integers(2))

    def torch(x, weight=None, bias=None):
        return functional().batch_norm(x, None, None, weight, bias, training=True, eps=eps)

    return Case(cls(eps=eps, affine=affine), shape, torch, couples_examples=True)


def batch_norm2d(rng):
    channels, height, width = image(rng)
    return batch_norm(rng, BatchNorm2D, (channels, height + 1, width))


def batch_norm1d(rng):
    shape = int(rng.integers(1, 40)), int(rng.integers(2, 8))
    return batch_norm(rng, BatchNorm1D, shape[: rng.integers(1, 3)])


DRAWS = {
    "BatchNorm1D": batch_norm1d,
    "BatchNorm2D": batch_norm2d,
    "GroupNorm": group_norm,
    "LayerNorm": layer_norm,
    "LocalResponseNorm": local_response_norm,
    "RMSNorm": rms_norm,
}
