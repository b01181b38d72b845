"""Permute, shuffles of channels and pixels, Columns: values by NumPy, errors. Gradients are in test_contract.py."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.layers import ChannelShuffle, Columns, Dense, Parallel, Permute, PixelShuffle, PixelUnshuffle


def test_permute_turns_channels_last_into_channels_first():
    model = Sequential([Permute((2, 0, 1))], input_shape=(4, 5, 3), dtype="float64")
    x = np.random.default_rng(0).standard_normal((7, 4, 5, 3))
    assert model.output_shape == (3, 4, 5)
    np.testing.assert_array_equal(model.predict(x), x.transpose(0, 3, 1, 2))


def test_a_channel_shuffle_interleaves_groups():
    model = Sequential([ChannelShuffle(2)], input_shape=(6,))
    np.testing.assert_array_equal(model.predict([[0, 1, 2, 10, 11, 12]]), [[0, 10, 1, 11, 2, 12]])


def test_columns_give_each_branch_its_part():
    towers = Parallel([Columns(0, 2), Dense(3)], [Columns(2), Dense(4)], Columns(-1))
    model = Sequential([towers], input_shape=(5,), dtype="float64", seed=0)
    x = np.random.default_rng(0).standard_normal((9, 5))
    parts = {name: param.value for name, param in model.params.items()}
    first, second = (parts[f"0.branches.{i}.1.weight"] for i in (0, 1))
    expected = np.hstack([x[:, :2] @ first.T, x[:, 2:] @ second.T, x[:, 4:]])
    np.testing.assert_allclose(model.predict(x), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Permute((0, 1)), (3, 4, 5), r"axes: expected each of 0 to 2 once, for \(3, 4, 5\), got \(0, 1\)"),
        (Permute((0, 1, 1)), (3, 4, 5), "axes: expected each of 0 to 2 once"),
        (Permute((1, 2, 3)), (3, 4, 5), "axes: expected each of 0 to 2 once"),
        (Permute(2), (3, 4, 5), r"axes: expected a tuple such as \(2, 0, 1\), got 2"),
        (Permute((1.0, 0)), (3, 4), "axes: expected an integer, got 1.0"),
        (ChannelShuffle(4), (6, 2, 2), "groups: expected a divisor of 6 channels, got 4"),
        (ChannelShuffle(0), (6, 2, 2), "groups: expected at least 1, got 0"),
        (Columns(3, 3), (5,), "start, stop, step: expected a range of at least one of 5 columns, got 3 to 3"),
        (Columns(3, -3), (5,), "start, stop, step: expected a range of at least one of 5 columns, got 3 to -3"),
        (Columns(1, 0), (3,), "start, stop, step: expected a range of at least one of 3 columns, got 1 to 0"),
        (Columns(0, -3), (3,), "start, stop, step: expected a range of at least one of 3 columns, got 0 to -3"),
        (Columns(5), (5,), "start: expected at most 4, got 5"),
        (Columns(-6), (5,), "start: expected at least -5, got -6"),
        (Columns(0, 6), (5,), "stop: expected at most 5, got 6"),
        (Columns(0.5), (5,), "start: expected an integer, got 0.5"),
        (Columns(step=0), (5,), "start, stop, step: expected a range of at least one of 5 columns, got None to None"),
        (Columns(1, 4, -1), (5,), "start, stop, step: expected a range of at least one of 5 columns, got 1 to 4"),
        (Columns(axis=2), (5, 3), "axis: expected at most 1, got 2"),
        (PixelShuffle(2), (6, 2, 2), "upscale_factor: expected 4 to divide 6 channels"),
        (PixelShuffle(2), (6,), r"expected \(channels, height, width\) or \(channels, length\), got \(6,\)"),
        (PixelShuffle(2, "RDC"), (4, 2, 2), "mode: expected 'CRD' or 'DCR', got 'RDC'"),
        (PixelUnshuffle(2), (6, 2, 3), r"downscale_factor: expected a divisor of \(2, 3\), got 2"),
        (PixelUnshuffle(0), (6, 2, 3), "downscale_factor: expected at least 1, got 0"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(layer, shape, message):
    with pytest.raises((TypeError, ValueError), match=rf"layer 0, {type(layer).__name__}, input .*: {message}"):
        Sequential([layer], input_shape=shape)
