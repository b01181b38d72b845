"""Validation of arguments that are numbers or pairs of numbers."""

import numpy as np
import pytest

from minidl.utils.validation import (
    check_bool,
    check_image_shape,
    check_int,
    check_pair,
    check_shape,
    resolve_padding,
)


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)])
def test_check_int_accepts_every_kind_of_integer(value):
    assert check_int("units", value) == 3
    assert type(check_int("units", value)) is int


ARRAYS = [np.array(1.7), np.array([3]), np.array("a")]


@pytest.mark.parametrize("value", [3.0, "3", None, True, np.float32(3), [3], 3j, *ARRAYS])
def test_check_int_refuses_everything_else(value):
    with pytest.raises(TypeError, match=r"^units: expected an integer, got "):
        check_int("units", value)


def test_check_int_enforces_its_minimum():
    assert check_int("epochs", 0, minimum=0) == 0
    with pytest.raises(ValueError, match=r"^units: expected at least 1, got 0$"):
        check_int("units", 0)
    with pytest.raises(ValueError, match=r"^epochs: expected at least 0, got -1$"):
        check_int("epochs", -1, minimum=0)


def test_check_bool_accepts_bools_only():
    assert check_bool("use_bias", True) is check_bool("use_bias", np.True_) is True
    for value in (1, 0, None, "yes"):
        with pytest.raises(TypeError, match=r"^use_bias: expected True or False, got "):
            check_bool("use_bias", value)


@pytest.mark.parametrize(
    ("padding", "around"),
    [("valid", (0, 0, 0, 0)), ("same", (1, 2, 0, 1)), (2, (2, 2, 2, 2)), ((0, 3), (0, 0, 3, 3))],
)
def test_padding_forms(padding, around):
    assert resolve_padding(padding, (7, 8), (4, 3), (1, 2), (1, 1)) == around


def test_a_pair_is_one_number_or_two():
    assert check_pair("stride", 2) == (2, 2)
    assert check_pair("stride", (1, 3)) == check_pair("stride", [1, np.int64(3)]) == (1, 3)


@pytest.mark.parametrize(
    ("value", "error"),
    [((1,), ValueError), ((1, 2, 3), ValueError), ((), ValueError), ((1, 0), ValueError)]
    + [(value, TypeError) for value in ("ab", 1.5, None, (1, 2.0), (True, 1), {1: 2})],
)
def test_other_pairs_are_refused(value, error):
    with pytest.raises(error, match=r"^stride: expected "):
        check_pair("stride", value)


def test_an_image_shape_has_three_numbers():
    assert check_image_shape((3, 5, 7)) == (3, 5, 7)
    with pytest.raises(ValueError, match=r"\(channels, height, width\), got \(5, 7\)"):
        check_image_shape((5, 7))


def test_input_shape_becomes_a_tuple_of_ints():
    assert check_shape("input_shape", [np.int32(1), 28, 28]) == (1, 28, 28)
    assert check_shape("input_shape", (784,)) == (784,)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((wrong, TypeError) for wrong in (784, "28", None, (2.0,), (None, 3))),
        *((wrong, ValueError) for wrong in ((), (1, 0), (-1,))),
    ],
)
def test_other_input_shapes_are_refused(value, error):
    with pytest.raises(error, match=r"^input_shape: expected "):
        check_shape("input_shape", value)


def test_the_error_for_two_axes_suggests_grey_images_or_a_signal():
    message = r"got \(2, 64\): for X \(n, h, w\), X\[:, np.newaxis\] has one channel; a signal \(c, length\) "
    with pytest.raises(
        ValueError,
        match=message + r"takes Conv1D and the like, or becomes an image of height 1 by Reshape\(\(2, 1, 64\)\)",
    ):
        check_image_shape((2, 64))
