"""Conv2D: shapes, parameters and arguments; values against the reference, through a model."""

import numpy as np
import pytest
import reference
from geometries import Conv

from minidl import Sequential
from minidl.layers import Conv2D

CASES = [
    Conv(17, 3, 9, 7, 4, (3, 2)),
    Conv(5, 2, 8, 8, 6, (3, 3), padding=(1, 1, 1, 1)),
    Conv(5, 2, 9, 6, 3, (2, 3), stride=(2, 1), padding=(0, 0, 2, 2)),
    Conv(3, 1, 12, 11, 2, (2, 2), stride=(3, 4)),
    Conv(3, 2, 10, 9, 3, (3, 2), dilation=(2, 3), padding=(2, 2, 1, 1)),
    Conv(4, 4, 6, 5, 6, (3, 3), groups=2),
    Conv(4, 5, 1, 9, 5, (1, 4), groups=5),
    Conv(2, 2, 4, 5, 3, (4, 5)),
]


def layer_for(case):
    rows, _, columns, _ = case.padding
    return Conv2D(case.filters, case.kernel, case.stride, (rows, columns), case.dilation, case.groups)


def check_against_reference(layer, case, dtype):
    rng = np.random.default_rng(1)
    model = Sequential([layer], input_shape=case.x_shape[1:], dtype=dtype)
    w, b = rng.normal(size=case.w_shape), rng.normal(size=case.filters)
    model.params["0.weight"].value, model.params["0.bias"].value = w, b
    x, dy = rng.normal(size=case.x_shape), rng.normal(size=case.y_shape)
    y, dx = model.forward(x, training=True), model.backward(dy)
    dx_, dw_, db_ = reference.conv2d_backward(dy, x, w, case)
    tolerance = {"rtol": 0, "atol": 1e-3 if dtype == "float32" else 1e-12}
    np.testing.assert_allclose(y, reference.conv2d_forward(x, w, b, case), **tolerance)
    np.testing.assert_allclose(dx, dx_, **tolerance)
    np.testing.assert_allclose(model.params["0.weight"].grad, dw_, **tolerance)
    np.testing.assert_allclose(model.params["0.bias"].grad, db_, **tolerance)
    assert y.dtype == dx.dtype == model.params["0.weight"].grad.dtype == dtype


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_the_reference(case, dtype):
    check_against_reference(layer_for(case), case, dtype)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "around"),
    [  # padding as top, bottom, left, right, as TensorFlow documents "SAME"
        ((8, 8), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
        ((8, 8), (2, 4), (1, 1), (1, 1), (0, 1, 1, 2)),
        ((7, 8), (3, 3), (2, 2), (1, 1), (1, 1, 0, 1)),
        ((9, 5), (2, 2), (3, 5), (1, 1), (0, 0, 0, 0)),
        ((6, 6), (3, 2), (1, 1), (2, 3), (2, 2, 1, 2)),
    ],
)
def test_same_padding_keeps_the_size_and_puts_the_odd_zero_last(size, kernel, stride, dilation, around):
    case = Conv(3, 2, *size, 4, kernel, stride, around, dilation)
    layer = Conv2D(4, kernel, stride, "same", dilation)
    check_against_reference(layer, case, "float64")
    rounded_up = tuple(-(-length // step) for length, step in zip(size, stride, strict=True))
    assert layer.out_shape == (4, *rounded_up)


def test_valid_means_no_padding_and_numbers_mean_pairs():
    numbers = Conv2D(2, 3, stride=2, padding=1, dilation=2)
    pairs = Conv2D(2, (3, 3), stride=(2, 2), padding=(1, 1), dilation=[2, 2])
    for layer in (numbers, pairs):
        Sequential([layer], input_shape=(1, 9, 12))
    assert numbers.out_shape == pairs.out_shape == (2, 4, 5)
    valid = Conv2D(2, 3)
    Sequential([valid], input_shape=(1, 9, 12))
    assert valid.out_shape == (2, 7, 10)


@pytest.mark.parametrize(
    ("filters", "size", "algorithm", "used"),
    [
        *((32, 12, "auto", True), (20, 12, "auto", False), (32, 12, "direct", False)),
        *((32, 4, "auto", False), (32, 4, "winograd", True)),
    ],
)
def test_a_built_layer_says_whether_it_uses_winograd(filters, size, algorithm, used):
    layer = Conv2D(filters, 3, algorithm=algorithm)
    assert not layer.uses_winograd
    assert Sequential([layer], input_shape=(16, size, size)).layers[0].uses_winograd == used


def test_parameters_match_pytorch():
    model = Sequential([Conv2D(6, (5, 3), groups=2)], input_shape=(4, 9, 9))
    weight, bias = model.params["0.weight"].value, model.params["0.bias"].value
    assert list(model.params) == ["0.weight", "0.bias"]
    assert weight.shape == (6, 2, 5, 3)
    assert not bias.any() and bias.shape == (6,)
    limit = np.sqrt(6 / (2 * 5 * 3))  # He: variance 2 / fan-in
    assert limit * 0.9 < np.abs(weight).max() <= limit


@pytest.mark.parametrize("n", [1, 4, 33])
def test_no_bias_equals_a_bias_of_zero(n, rng):
    x, dy = rng.normal(size=(n, 32, 6, 5)), rng.normal(size=(n, 16, 6, 5))
    bare, biased = (Sequential([Conv2D(16, 3, padding=1, use_bias=b)], input_shape=x.shape[1:]) for b in (False, True))
    assert list(bare.params) == ["0.weight"]
    outputs = [[m.forward(x, training=True), m.backward(dy), m.params["0.weight"].grad] for m in (bare, biased)]
    for a, b in zip(*outputs, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"filters": 0}, ValueError, "filters.*at least 1, got 0"),
        ({"filters": -2}, ValueError, "filters.*got -2"),
        ({"filters": 2.5}, TypeError, "filters.*integer, got 2.5"),
        ({"filters": None}, TypeError, "filters.*got None"),
        ({"filters": True}, TypeError, "filters.*got True"),
        ({"kernel_size": 0}, ValueError, "kernel_size.*got 0"),
        ({"kernel_size": (3, 0)}, ValueError, "kernel_size.*got 0"),
        ({"kernel_size": (3, 3, 3)}, ValueError, r"kernel_size.*pair, got \(3, 3, 3\)"),
        ({"kernel_size": "3"}, TypeError, "kernel_size.*got '3'"),
        ({"kernel_size": 9}, ValueError, "9.*8|8.*9"),
        ({"kernel_size": (1, 11), "padding": 1}, ValueError, "11"),
        ({"kernel_size": 5, "dilation": 2}, ValueError, "8"),
        ({"stride": 0}, ValueError, "stride.*got 0"),
        ({"stride": -1}, ValueError, "stride.*got -1"),
        ({"stride": None}, TypeError, "stride.*got None"),
        ({"padding": -1}, ValueError, "padding.*at least 0, got -1"),
        ({"padding": "full"}, ValueError, "padding.*'same'.*'full'"),
        ({"padding": 1.0}, TypeError, "padding.*got 1.0"),
        ({"dilation": 0}, ValueError, "dilation.*got 0"),
        ({"groups": 0}, ValueError, "groups.*got 0"),
        ({"groups": 3}, ValueError, "groups.*3|3.*groups"),
        ({"groups": 2, "filters": 5}, ValueError, "5"),
        ({"use_bias": None}, TypeError, "use_bias.*True or False, got None"),
    ],
    ids=str,
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=rf"layer 0, Conv2D.*\(4, 8, 8\).*(?:{message})"):
        Sequential([Conv2D(**{"filters": 4, "kernel_size": 3} | arguments)], input_shape=(4, 8, 8))


@pytest.mark.parametrize("shape", [(8,), (8, 8), (1, 8, 8, 8)])
def test_needs_an_image(shape):
    with pytest.raises(ValueError, match=r"layer 0, Conv2D.*expected \(channels, height, width\)"):
        Sequential([Conv2D(2, 3)], input_shape=shape)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Conv2D(1, 1), (1, 2**26, 1), "at most 67108864 rows and columns in all layers together"),
        (Conv2D(1, 1, padding=2**24), (1, 3, 3), "padded input: expected at most 16777216 pixels along an axis"),
        (Conv2D(1, 1), (2**32, 3, 2), "at most 1048576 weights a filter, got 4294967296"),
    ],
)
def test_oversized_layers_are_refused_at_once(layer, shape, message):
    with pytest.raises(ValueError, match=f"layer 0, Conv2D.*{message}"):
        Sequential([layer], input_shape=shape)
