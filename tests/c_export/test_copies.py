"""Copies of numbers from place to place are those that were asked for, in few loops."""

import itertools

import numpy as np
import pytest
from in_turn import in_turn

from minidl.c_export.copies import LOOPS, copies

IMAGE = np.arange(3 * 4 * 5).reshape(4, 5, 3)  # [height][width][channels]


def performed(found, size):
    """Returns the place in x that each number of y comes from, -1 for none."""
    y = np.full(size, -1)
    for copy in found:
        assert len(copy.loops) <= LOOPS
        for at in itertools.product(*(range(n) for n, _, _ in copy.loops)):
            x_place = copy.x + sum(i * step for i, (_, step, _) in zip(at, copy.loops, strict=True))
            y_place = copy.y + sum(i * step for i, (_, _, step) in zip(at, copy.loops, strict=True))
            assert (y[y_place : y_place + copy.size] == -1).all()
            y[y_place : y_place + copy.size] = np.arange(x_place, x_place + copy.size)
    return y


def copied(source, channels):
    """Returns the copies for numbers of y, each of which comes from place `source` of x, or from none."""
    to = np.flatnonzero(source.ravel() >= 0)
    return copies(source.ravel()[to], to, channels)


@in_turn("seed", range(200))
def test_any_places(seed):
    rng = np.random.default_rng(seed)
    channels, pixels = (int(n) for n in rng.integers(1, 8, 2))
    source = rng.integers(-1, 30, channels * pixels)
    runs = np.arange(channels * pixels) + rng.integers(0, 3, pixels).repeat(channels)
    for wanted in (source, runs, np.sort(source)):
        assert np.array_equal(performed(copied(wanted, channels), len(wanted)), wanted)


FEW = {
    "the same": (IMAGE, 1),
    "flattened, channels first": (IMAGE.transpose(2, 0, 1), 1),
    "padded": (np.pad(IMAGE, [(1, 2), (2, 0), (0, 0)], constant_values=-1), 1),
    "cropped": (IMAGE[1:3, 2:], 1),
    "every second column": (IMAGE[:, ::2], 1),
    "some channels": (IMAGE[..., 1:], 1),
    "other axes": (IMAGE.transpose(1, 0, 2), 1),
    "beside other channels": (np.pad(IMAGE, [(0, 0), (0, 0), (2, 4)], constant_values=-1), 1),
    "twice as high and wide": (IMAGE.repeat(2, axis=0).repeat(2, axis=1), 1),
    "channels shuffled": (np.arange(24).reshape(4, 2, 3).transpose(0, 2, 1).reshape(2, 2, 6), 1),
    "channels in any order": (IMAGE[..., [2, 0, 1]], 2),
}


@pytest.mark.parametrize("name", FEW)
def test_regular_copies_are_few(name):
    source, count = FEW[name]
    found = copied(source, source.size if "flattened" in name else source.shape[-1])
    assert np.array_equal(performed(found, source.size), source.ravel())
    assert len(found) == count


def test_neighbours_are_one_copy():
    assert [(copy.size, copy.loops) for copy in copied(IMAGE[1:3, 2:], 3)] == [(9, ((2, 15, 15 - 6),))]
