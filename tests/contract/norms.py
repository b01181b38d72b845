"""Layers that normalize."""

from contract.case import Case, functional, image

from minidl.layers import BatchNorm1D, BatchNorm2D


def by_batch(rng, cls, shape):
    eps, affine = float(rng.choice([1e-5, 1e-3])), bool(rng.integers(2))

    def torch(x, weight=None, bias=None):
        return functional().batch_norm(x, None, None, weight, bias, training=True, eps=eps)

    return Case(cls(eps, affine=affine), shape, torch, couples_examples=True)


def batch_norm2d(rng):
    channels, height, width = image(rng)
    return by_batch(rng, BatchNorm2D, (channels, height + 1, width))


def batch_norm1d(rng):
    return by_batch(rng, BatchNorm1D, (int(rng.integers(1, 40)),))


DRAWS = {"BatchNorm1D": batch_norm1d, "BatchNorm2D": batch_norm2d}
