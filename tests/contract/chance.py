"""Cases of random layers, which have no counterpart in PyTorch because its random numbers differ."""

import numpy as np
from contract.case import Case, any_shape, image

from minidl.layers import (
    ColorJitter,
    Cutout,
    Dropout,
    Dropout2D,
    GaussianNoise,
    RandomCrop,
    RandomFlip,
    RandomRotate90,
    RandomRotation,
    RandomShift,
    RandomZoom,
    StochasticDepth,
)


def dropout(layer):
    """Returns a drawing function."""
    return lambda rng: Case(layer(float(rng.choice([0.1, 0.5, 0.9]))), any_shape(rng))


def color_jitter(rng):
    channels, height, width = int(rng.choice([1, 3])), *(int(n) for n in rng.integers(1, 9, 2))
    ranges = [tuple(map(float, np.sort(rng.uniform(0, 3, 2)))) for _ in range(2)]
    return Case(ColorJitter(*ranges, float(rng.random()) if channels == 3 else 0.0), (channels, height, width))


def cutout(rng):
    size, rate = tuple(int(n) for n in rng.integers(1, 9, 2)), float(rng.choice([0.0, 0.5, 1.0]))
    return Case(Cutout(size, float(rng.standard_normal()), rate), image(rng))


def border(rng):
    """Draws the shape of an image, a border that is smaller, and a mode."""
    channels, height, width = image(rng)
    mode = str(rng.choice(["constant", "reflect", "replicate", "circular"]))
    return (channels, height + 3, width + 3), tuple(int(n) for n in rng.integers(0, 4, 2)), mode


def random_crop(rng):
    shape, padding, mode = border(rng)
    size = tuple(int(rng.integers(1, n + 2 * p + 1)) for n, p in zip(shape[1:], padding, strict=True))
    return Case(RandomCrop(size, padding, mode), shape)


def random_flip(rng):
    every = None if rng.random() < 0.5 else int(rng.integers(1, 9))
    return Case(RandomFlip(*(bool(n) for n in rng.integers(0, 2, 2)), every), image(rng))


def random_shift(rng):
    shape, most, mode = border(rng)
    return Case(RandomShift(most, mode), shape)


def random_rotate90(rng):
    channels, size, _ = image(rng)
    return Case(RandomRotate90(), (channels, size, size))


def random_rotation(rng):
    pair = tuple(map(float, np.sort(rng.uniform(-360, 360, 2))))
    degrees = float(rng.uniform(0, 180)) if rng.random() < 0.5 else pair
    return Case(RandomRotation(degrees, float(rng.standard_normal())), image(rng))


def random_zoom(rng):
    pair = tuple(map(float, np.sort(rng.uniform(0.2, 4, 2))))
    scale = float(rng.random()) if rng.random() < 0.5 else pair
    return Case(RandomZoom(scale, float(rng.standard_normal())), image(rng))


DRAWS = {
    "ColorJitter": color_jitter,
    "Cutout": cutout,
    "Dropout": dropout(Dropout),
    "Dropout2D": dropout(Dropout2D),
    "GaussianNoise": lambda rng: Case(GaussianNoise(float(rng.random())), any_shape(rng)),
    "RandomCrop": random_crop,
    "RandomFlip": random_flip,
    "RandomRotate90": random_rotate90,
    "RandomRotation": random_rotation,
    "RandomShift": random_shift,
    "RandomZoom": random_zoom,
    "StochasticDepth": dropout(StochasticDepth),
}
