"""quantize: exact inputs, what costs nothing, accuracy, the report, and what is refused."""

import tracemalloc

import numpy as np
import pytest
import reference_integer as reference
from quantized_models import check_operations, integers_of, kinds_of, outputs_of

from minidl import InputError, Layer, Sequential, Trainer, layers, quantize
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    MaxPool2D,
    Normalize,
    Outputs,
    Pad2D,
    Parallel,
    PReLU,
    ReLU,
    ReLU6,
    Rescale,
    Reshape,
    Residual,
    Sigmoid,
    Softmax,
    SqueezeExcite,
    Tanh,
    Upsample2D,
)
from minidl.optimizers import Adam
from minidl.quantization import evaluation


def trained(*parts, shape, seed=0, dtype="float32"):
    """Returns a model whose batch norms have seen data."""
    model = Sequential(list(parts), input_shape=shape, seed=seed, dtype=dtype)
    rng = np.random.default_rng(seed)
    state = model.state_dict()
    for name, array in state.items():
        if name.endswith(("running_mean", "bias")):
            state[name] = 0.3 * rng.standard_normal(array.shape)
        elif name.endswith("running_var") or (array.ndim == 1 and name.endswith("weight")):
            state[name] = 0.5 + rng.random(array.shape)
    model.load_state_dict(state)
    return model


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


class Frame:
    """An object without a dtype that NumPy converts, such as a data frame."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


BYTES = np.arange(256, dtype=np.uint8)


# ---- the input


def test_bytes_are_taken_as_they_are():
    X = BYTES.reshape(1, 1, 16, 16)
    for front in ([], [Rescale(1 / 255)], [Rescale(0.3)]):
        quantized = quantize(Sequential([*front, Conv2D(2, 3)], input_shape=(1, 16, 16)), X)
        assert np.array_equal(integers_of(quantized.program, X)[0].ravel(), BYTES.astype(int) - 128)
        assert kinds_of(quantized) == ["sum of products"]
    centred = quantize(Sequential([Rescale(1 / 127.5, -1), Flatten()], input_shape=(1, 16, 16)), X)
    error = outputs_of(centred, X) - (BYTES / 127.5 - 1)
    assert abs(error.mean()) < 0.1 * np.abs(error).max()  # 0 is between two bytes: not all of them are rounded up
    few = np.array([3, 200] * 128, np.uint8).reshape(1, 1, 16, 16)  # other bytes are in the range as well
    program = quantize(Sequential([Rescale(1 / 255), Conv2D(2, 3)], input_shape=(1, 16, 16)), few).program
    assert np.array_equal(reference.quantize_input(program.input, X).ravel(), BYTES.astype(int) - 128)


def test_normalized_images_are_quantized_by_channel():
    mean, std = np.array([100.0, 120, 130]), np.array([50.0, 60, 70])
    X = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 4), dtype=np.uint8)
    quantized = quantize(Sequential([Normalize(mean, std), Flatten()], input_shape=(3, 4, 4)), X)
    made = quantized.program.values[0].quantization
    real = made.scale * (integers_of(quantized.program, X)[0].astype(float) - made.zero_point)
    expected = (X - mean[:, None, None]) / std[:, None, None]
    assert np.abs(real - expected).max() <= made.scale * 0.5001


def test_zero_is_exact_in_every_value():
    X = 1 + np.random.default_rng(0).random((20, 2, 5, 5))
    model = trained(Conv2D(3, 3, padding=1), BatchNorm2D(), ReLU6(), Pad2D(2), shape=(2, 5, 5))
    for value in check_operations(model, X).program.values:
        assert -128 <= value.quantization.zero_point <= 127


# ---- what costs nothing


def test_fixed_factors_and_clips_are_folded():
    body = [Conv2D(4, 3, padding=1, use_bias=False), BatchNorm2D(), Dropout(0.5), ReLU6()]
    model = trained(Normalize(1.0, 2.0), *body, DepthwiseConv2D(3), BatchNorm2D(), ReLU(), shape=(2, 6, 6))
    quantized = check_operations(model, draw(8, 2, 6, 6))
    assert kinds_of(quantized) == ["sum of products"] * 2
    assert [one.label for one in quantized.program.operations] == [
        "1, Conv2D + 2, BatchNorm2D + 4, ReLU6",
        "5, DepthwiseConv2D + 6, BatchNorm2D + 7, ReLU",
    ]


def test_activations_in_a_row_are_one_table_and_moves_one_copy():
    quantized = check_operations(Sequential([Tanh(), Rescale(2.0), Sigmoid()], input_shape=(5,)), draw(9, 5))
    assert kinds_of(quantized) == ["table"]
    moves = [layers.Permute((0, 2, 1)), Upsample2D(2), Pad2D(1), layers.ChannelShuffle(2)]
    quantized = check_operations(Sequential(moves, input_shape=(4, 2, 3)), draw(5, 4, 2, 3))
    assert kinds_of(quantized) == ["copy"]
    there_and_back = [layers.Permute((1, 2, 0)), layers.Permute((2, 0, 1)), Reshape((2, 4, 3)), Reshape((4, 2, 3))]
    assert kinds_of(quantize(Sequential(there_and_back, input_shape=(4, 2, 3)), draw(5, 4, 2, 3))) == []


def test_dense_after_flatten_reads_the_image():
    quantized = check_operations(Sequential([Flatten(), Dense(3)], input_shape=(2, 3, 4)), draw(9, 2, 3, 4))
    (product,) = quantized.program.operations
    assert product.weights.shape == (3, 2, 3, 4)


def test_a_clip_goes_before_pools_and_copies_of_a_sum():
    parts = [Conv2D(3, 3), MaxPool2D(2), Pad2D(1), ReLU()]
    quantized = check_operations(Sequential(parts, input_shape=(1, 8, 8)), draw(9, 1, 8, 8))
    assert kinds_of(quantized) == ["sum of products", "maximum", "copy"]
    border = [Conv2D(3, 3), Pad2D(1, value=-1.5), ReLU()]  # of which nothing is left
    quantized = check_operations(Sequential(border, input_shape=(1, 8, 8)), draw(9, 1, 8, 8))
    assert kinds_of(quantized) == ["sum of products", "table", "copy", "table", "table"]


def test_branches_share_what_is_before_them():
    """Nothing of a layer that two branches read is folded into one of them, and computed twice."""
    model = trained(Conv2D(4, 1), Residual(ReLU(), Conv2D(4, 1), BatchNorm2D()), ReLU(), shape=(2, 3, 3))
    quantized = check_operations(model, draw(9, 2, 3, 3))
    assert kinds_of(quantized) == ["sum of products", "table", "sum of products", "sum"]
    assert quantized.program.operations[-1].low == quantized.program.values[-1].quantization.zero_point


def test_concatenated_branches_have_one_quantization():
    """Branches of their own take it; what others read as well gets a table."""
    branches = [[Conv2D(2, 1), MaxPool2D(3, 1, padding=1)], [Conv2D(3, 1), Rescale(9.0)], []]
    quantized = check_operations(Sequential([Parallel(*branches)], input_shape=(2, 4, 4)), draw(9, 2, 4, 4))
    assert kinds_of(quantized) == ["sum of products", "maximum", "sum of products", "table", "copy"]
    assert len({quantized.program.values[k].quantization for k in (1, 2, 3, 4, 5)}) == 1
    shared = [Conv2D(3, 1), Parallel([], [ReLU(), Conv2D(2, 1)]), Conv2D(1, 1)]
    quantized = check_operations(Sequential(shared, input_shape=(2, 4, 4)), draw(9, 2, 4, 4))
    assert kinds_of(quantized)[:4] == ["sum of products", "table", "table", "sum of products"]


# ---- edges


def test_borders_of_any_number():
    for value in (0.0, 2.5, -7.0):
        model = Sequential([Pad2D(1, value=value)], input_shape=(1, 2, 2))
        y = outputs_of(quantize(model, draw(9, 1, 2, 2)), draw(9, 1, 2, 2)).reshape(9, 4, 4)
        assert np.abs(y[:, 0] - value).max() <= 0.03


def test_weights_of_zero():
    model = Sequential([Conv2D(3, 3), ReLU(), Flatten(), Dense(2)], input_shape=(1, 5, 5))
    state = model.state_dict()
    state["0.weight"][:2] = 0
    state["0.bias"][:] = [0, 5, 0.5]
    model.load_state_dict(state)
    product = check_operations(model, draw(9, 1, 5, 5)).program.operations[0]
    assert product.multipliers[0] == 0
    assert product.biases[1] > 2**20
    model.load_state_dict({name: np.zeros_like(array) for name, array in state.items()})
    X = draw(9, 1, 5, 5)
    assert not outputs_of(quantize(model, X), X).any()


def test_large_biases_and_long_sums_fit_32_bits():
    """The scale of the weights grows instead."""
    model = Sequential([Dense(2)], input_shape=(3,), dtype="float64")
    model.load_state_dict({"0.weight": [[1e-9, 0, 2e-9], [1, 2, 3]], "0.bias": [1e3, -1e-9]})
    product = check_operations(model, draw(9, 3)).program.operations[0]
    assert 2**29 < abs(product.biases[0]) <= 2**30
    n = 100_000
    long = Sequential([Dense(1)], input_shape=(n,))
    long.load_state_dict({"0.weight": np.ones((1, n)), "0.bias": [0]})
    X = draw(3, n)
    product = quantize(long, X).program.operations[0]
    assert 256 * np.abs(product.weights.astype(int)).sum() + abs(int(product.biases[0])) < 2**31
    assert product.weights.min() > 20


def test_accuracy_of_trained_nets():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    X = np.zeros((900, 1, 12, 12))
    X[np.arange(900), 0, 2 + 3 * y] = 1
    X = np.clip(90 * (X + 0.8 * rng.standard_normal(X.shape)) + 60, 0, 255).astype(np.uint8)
    parts = [Rescale(1 / 255), Conv2D(8, 3, padding=1, use_bias=False), BatchNorm2D(), ReLU(), MaxPool2D(2)]
    parts += [Residual(DepthwiseConv2D(3, padding=1), BatchNorm2D(), Tanh()), SqueezeExcite(4), PReLU()]
    model = Sequential([*parts, Dropout(0.2), Flatten(), Dense(3)], input_shape=(1, 12, 12))
    Trainer(model, "softmax_cross_entropy", Adam(0.01)).fit(X[:600], y[:600], epochs=6, verbose=0)
    floats = model.predict(X[600:]).argmax(axis=1)
    assert (floats == y[600:]).mean() > 0.9
    for ranges in ("auto", "minmax"):
        quantized = quantize(model, X[:200], ranges=ranges)
        assert (outputs_of(quantized, X[600:]).argmax(axis=1) == floats).mean() >= 0.98
        assert quantized.noise[-1].snr > 20
        assert "Most noise comes from" in quantized.advice


def test_evaluation_has_the_integers_of_the_reference():
    parts = [Conv2D(4, 3, stride=2, padding=1, groups=2), BatchNorm2D(), Residual(DepthwiseConv2D(3, padding=1))]
    parts += [SqueezeExcite(2), layers.AvgPool2D(3, 2, padding=1), Pad2D(1, mode="reflect"), Flatten(), Dense(3)]
    model, X = trained(*parts, shape=(2, 9, 9)), draw(6, 2, 9, 9)
    program = quantize(model, X).program
    for one, other in zip(evaluation.run(program, X), integers_of(program, X), strict=True):
        assert np.array_equal(one, other)


def test_noise_of_each_operation():
    model = Sequential([Dense(4), ReLU(), Dense(2)], input_shape=(3,))
    first, hidden, last = quantize(model, draw(50, 3)).noise
    assert (first.kind, hidden.label, last.label) == ("input", "0, Dense + 1, ReLU", "2, Dense")
    assert (first.weight_bytes, hidden.weight_bytes, last.weight_bytes) == (0, 3 * 4 + 4 * 4, 4 * 2 + 2 * 4)
    assert 30 < last.snr < 60
    assert 30 < first.snr < 60


def test_advice_tells_exact_outputs_and_the_noise_of_inputs():
    X = draw(50, 3)
    dead = Sequential([Dense(2)], input_shape=(3,))
    dead.params["0.weight"].value[...] = 0
    assert quantize(dead, X).advice == "The outputs are exact on the calibration data."
    moved = quantize(Sequential([Reshape((1, 3)), layers.Pad1D(1)], input_shape=(3,)), X)
    assert moved.advice.endswith("No operation adds noise to that of the inputs.")


def test_heavy_tails_are_cut_inside_the_net_only():
    model, X = Sequential([Rescale(1.0), Dense(4), Dense(2)], input_shape=(3,)), draw(500, 3)
    X[7, 1] = 1000
    made = {ranges: quantize(model, X, ranges=ranges).program.values for ranges in ("auto", "minmax")}
    assert made["auto"][0].quantization.scale < made["minmax"][0].quantization.scale / 50
    assert made["auto"][-1] == made["minmax"][-1]


def test_the_bias_takes_the_mean_error_of_weights():
    """A net of a single constant weight error: the mean of its outputs stays."""
    model = Sequential([Dense(1, use_bias=False)], input_shape=(50,))
    model.load_state_dict({"0.weight": np.append(np.full(49, 0.4 / 127), 1.0)[None]})
    X = 3 + draw(200, 50)
    error = outputs_of(quantize(model, X), X) - model.predict(X)
    assert abs(error.mean()) < 0.02


# ---- refusals


def test_layers_are_refused_by_name():
    X = draw(9, 2, 4, 4)

    class Custom(Layer):
        def forward(self, x, training):
            return x

    def refused(expected, *parts, **arguments):
        with pytest.raises(ValueError, match=expected):
            quantize(Sequential(list(parts), input_shape=(2, 4, 4)), X, **arguments)

    refused("^layer 1, Softmax: expected a layer that integers can compute", Flatten(), Softmax())
    refused("^layer 0, Custom: expected a layer that integers", Custom())
    refused(
        "^layer 1, Residual: body.1, LayerNorm: expected a layer that integers",
        ReLU(),
        Residual(ReLU(), layers.LayerNorm()),
    )
    refused("^layer 0, Upsample2D: expected mode='nearest', got 'bilinear'", Upsample2D(2, mode="bilinear"))
    refused("^layer 0, Parallel: expected join='concat', 'add' or 'multiply'", Parallel([], [], join="divide"))
    refused("^layer 0, Outputs: expected a model of one output, such as model\\['a'\\]", Outputs(a=ReLU(), b=Tanh()))
    refused("float_layers: expected at most 1, got 2", Flatten(), Softmax(), float_layers=2)
    refused("ranges: expected", Flatten(), ranges="max")


def test_a_batch_norm_without_variance_is_refused():
    model = Sequential([BatchNorm2D(eps=0)], input_shape=(2, 4, 4))
    model.layers[0].buffers["running_var"][1] = 0
    with pytest.raises(ValueError, match=r"^layer 0, BatchNorm2D: expected running variances above 0, got 0"):
        quantize(model, draw(9, 2, 4, 4))


def test_float_layers_stay_out():
    model = Sequential([Dense(4), ReLU(), Dense(3), Softmax()], input_shape=(5,))
    quantized = quantize(model, draw(20, 5), float_layers=1)
    assert len(quantized) == 2
    assert quantized.program.operations[-1].label == "2, Dense"
    model = Sequential([Dense(4), Outputs(a=Dense(2), b=Dense(1))], input_shape=(5,))
    assert kinds_of(quantize(model, draw(20, 5), float_layers=1)) == ["sum of products"]


def test_calibration_data_are_checked():
    model = Sequential([Dense(2)], input_shape=(3,))
    good = draw(9, 3)
    bad = good.copy()
    bad[4, 1] = np.nan
    for X, expected in (
        (bad, "finite"),
        (good[:0], "at least one example, got none"),
        (np.full((9, 3), 5.0), "numbers differ, got 5 alone"),
        (draw(9, 4), "expected shape"),
        (np.full((9, 3), 7, np.uint8), "numbers differ, got 7 alone"),
    ):
        with pytest.raises(InputError, match=expected):
            quantize(model, X)
    with pytest.raises(TypeError, match="model: expected a Sequential"):
        quantize(model.layers, good)
    with pytest.raises(ValueError, match="not built"):
        quantize(Sequential([Dense(2)]), good)
    with pytest.raises(ValueError, match="one size"):
        quantize(Sequential([Conv2D(2, 3)], input_shape=(1, None, None)), draw(2, 1, 5, 5))


def test_calibration_data_of_any_kind_are_the_same_program():
    model = Sequential([Rescale(1 / 255), Conv2D(2, 3)], input_shape=(1, 5, 5))
    X = np.random.default_rng(0).integers(0, 200, (9, 1, 5, 5), dtype=np.uint8)
    floats = X.astype("f8")
    floats[0, 0, 0, :2] = 0, 255  # the range of bytes
    for kinds in (
        [X, np.asfortranarray(X), X.reshape(9, -1), Frame(X)],
        [floats, floats.astype(">f4"), floats.tolist()],
    ):
        first, *others = (quantize(model, kind).program for kind in kinds)
        for other in others:
            assert other.values == first.values
            assert np.array_equal(other.input.offsets, first.input.offsets)
            assert np.array_equal(other.operations[0].biases, first.operations[0].biases)
    with pytest.raises((TypeError, ValueError), match="X: expected an array without a mask"):
        quantize(model, np.ma.masked_array(X))


def test_numbers_that_overflow_are_refused_by_layer():
    model = Sequential([Rescale(1e30), Dense(2), layers.Square()], input_shape=(3,))
    with pytest.raises(ValueError, match=r"^layer 2, Square: expected finite values for the calibration data"):
        quantize(model, draw(9, 3))
    with pytest.raises(ValueError, match=r"^X: expected numbers whose range float64 can hold"):
        quantize(Sequential([Dense(2)], input_shape=(3,), dtype="float64"), 1e-300 * draw(9, 3))
    for scale, dtype in ((1e-38, "float32"), (1e100, "float64")):
        model = Sequential([Dense(2), ReLU(), Dense(2)], input_shape=(3,), dtype=dtype)
        model.params["2.weight"].value[...] *= scale
        with pytest.raises(ValueError, match=r"^layer 2, Dense: expected outputs whose range float32 can hold, got"):
            quantize(model, draw(9, 3))
    model = Sequential([Dense(2)], input_shape=(3,))
    model.params["0.weight"].value[0, 0] = np.inf
    with pytest.raises(ValueError, match=r"^layer 0, Dense: expected finite"):
        quantize(model, draw(9, 3))


def test_values_of_large_images_are_in_memory_a_few_at_a_time():
    """Those of all 64 images would take 500 MB in float32."""
    model, X = (
        Sequential([Conv2D(8, 3), ReLU(), Conv2D(8, 3), Tanh()], input_shape=(1, 300, 300)),
        draw(64, 1, 300, 300),
    )
    tracemalloc.start()
    try:
        made = quantize(model, X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200e6
    assert made.noise[-1].snr > 30
