"""Cases of normalization layers."""

from contract.case import Case, any_shape, functional, image

from minidl.layers import BatchNorm1D, BatchNorm2D, GroupNorm, LayerNorm


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
    options, shape = draw_options(rng), any_shape(rng)
    layer = LayerNorm(**options)
    return Case(layer, shape, lambda x, **params: functional().layer_norm(x, shape, eps=layer.eps, **params))


def batch_norm(rng, cls, shape):
    eps, affine = float(rng.choice([1e-5, 1e-3])), bool(rng.integers(2))

    def torch(x, weight=None, bias=None):
        return functional().batch_norm(x, None, None, weight, bias, training=True, eps=eps)

    return Case(cls(eps=eps, affine=affine), shape, torch, couples_examples=True)


def batch_norm2d(rng):
    channels, height, width = image(rng)
    return batch_norm(rng, BatchNorm2D, (channels, height + 1, width))


def batch_norm1d(rng):
    return batch_norm(rng, BatchNorm1D, (int(rng.integers(1, 40)),))


DRAWS = {
    "BatchNorm1D": batch_norm1d,
    "BatchNorm2D": batch_norm2d,
    "GroupNorm": group_norm,
    "LayerNorm": layer_norm,
}
