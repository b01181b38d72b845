"""convert: numbers to int8 and back, bit for bit as NumPy computes them in float64 and float32; every refusal."""

import numpy as np
import pytest
import reference_integer
from integer_programs import model_of

from minidl import Sequential
from minidl.quantization import program as p
from minidl.quantization.integer_net import IntegerNet
from minidl_c.integer.convert import DequantizeOp, QuantizeOp


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 4), (6, 2, 3)])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_matches_numpy(dtype, shape, n):
    """Also at numbers between which the result changes, and scales whose products float32 rounds."""
    rng = np.random.default_rng(n)
    factors, offsets = rng.uniform(0.01, 3, shape[0]), rng.uniform(-100, 100, shape[0])
    scale, zero_point = 0.1, int(rng.integers(-128, 128))
    x = rng.integers(0, 256, (n, *shape)).astype("uint8")
    if dtype != "uint8":
        steps = (rng.integers(-140, 140, x.shape) - offsets[:, None, None]) / factors[:, None, None]
        x = np.where(rng.random(x.shape) < 0.9, steps, rng.choice([1e30, -1e30, 0.0, -0.0], x.shape)).astype(dtype)
    quantize = p.QuantizeInput(factors, offsets)
    program = p.Program(quantize, (p.Value(shape, p.Quantization(scale, zero_point)),), ())
    model = model_of(program)
    q = reference_integer.quantize_input(quantize, x.astype("float32"))  # the input of a model has its dtype
    expected = np.float32(scale) * (q.astype(np.float32) - np.float32(zero_point))
    scores = model.predict(x, num_threads=2)
    assert scores.dtype == np.float32 and scores.tobytes() == expected.tobytes()
    assert np.array_equal(model.layers[0].quantized(scores), q.reshape(scores.shape))


def test_nan_becomes_the_lowest_number():
    from minidl_c.runtime.single_op import forward_batch

    op = QuantizeOp((1, 1, 2), np.ones(1), np.zeros(1))
    y = np.empty((1, *op.out_shape), np.float32)
    forward_batch(op, np.array([[[[np.nan, np.inf]]]], np.float32), y)
    assert y.view(np.uint8)[..., ::4].tolist() == [[[[0, 255]]]]


def test_every_number_of_every_scale_is_found_again():
    q = np.arange(-128, 128, dtype=np.int8).reshape(-1, 1)
    for scale in (*np.geomspace(1e-37, 1e36, 50), 1 / 3, 2.0**-126):
        for zero_point in (-128, 0, 127):
            values = (p.Value((1, 1, 1), p.Quantization(scale, zero_point)),)
            model = model_of(p.Program(p.QuantizeInput(np.ones(1), np.zeros(1)), values, ()))
            assert np.array_equal(model.layers[0].quantized(model.predict(q.astype(np.float32))), q)


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        (np.zeros(3), TypeError, "scores: expected an array of float32, got float64"),
        ([1.0], TypeError, "scores: expected an array of float32, got list"),
        (np.array([0.26], np.float32), ValueError, "scores: expected multiples of 0.5"),
        (np.array([np.nan], np.float32), ValueError, "scores: expected multiples of 0.5"),
        (np.array([70.0], np.float32), ValueError, "scores: expected those of numbers from -128 to 127, got 140.0"),
    ],
)
def test_scores_that_no_net_makes(scores, error, message):
    values = (p.Value((1, 1, 1), p.Quantization(0.5, 0)),)
    net = IntegerNet(p.Program(p.QuantizeInput(np.ones(1), np.zeros(1)), values, ()))
    Sequential([net], input_shape=(1,))
    with pytest.raises(error, match=message):
        net.quantized(scores)


def test_refusals():
    ones = np.ones(2)
    for changes, error, message in (
        ({"shape": (2,)}, TypeError, "shape"),
        ({"factors": np.ones(3)}, ValueError, r"factors: expected shape \(2\), got \(3,\)"),
        ({"factors": [1.0, 1.0]}, TypeError, "factors: expected an array of float64, got list"),
        ({"offsets": np.array([0, np.nan])}, ValueError, "offsets: expected finite numbers, got nan"),
        ({"factors": np.array([np.inf, 1])}, ValueError, "factors: expected finite numbers, got inf"),
    ):
        with pytest.raises(error, match=message):
            QuantizeOp(**{"shape": (2, 1, 1), "factors": ones, "offsets": ones} | changes)
    for scale, error in (
        (0.0, ValueError),
        (1e-39, ValueError),
        (np.nan, ValueError),
        (1e37, ValueError),
        ("1", TypeError),
    ):
        with pytest.raises(error, match="scale: expected"):
            DequantizeOp((2, 1, 1), scale, 0)
    with pytest.raises(ValueError, match="zero_point"):
        DequantizeOp((2, 1, 1), 1.0, 200)
