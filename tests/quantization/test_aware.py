"""Quantization-aware training: steps beside a reference, bits, integers in inference, accuracy, and what is refused."""

import copy
import itertools
import pickle
import threading

import numpy as np
import pytest
from interrupted_fits import FIT, X, Y, full_state, interrupt_fit

from minidl import InputError, Sequential, Trainer, quantize
from minidl.callbacks import ExponentialMovingAverage
from minidl.datasets import load_digits
from minidl.layers import (
    AvgPool2D,
    BatchNorm1D,
    BatchNorm2D,
    Block,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    HardSigmoid,
    MaxPool2D,
    Normalize,
    Pad2D,
    Parallel,
    Permute,
    PReLU,
    RandomFlip,
    Reduce,
    ReLU,
    ReLU6,
    Rescale,
    Reshape,
    Residual,
    Scale,
    Sigmoid,
    SiLU,
    Softmax,
    SqueezeExcite,
    StochasticDepth,
    Tanh,
)
from minidl.optimizers import SGD, Adam
from minidl.quantization import FakeQuantize, QuantizationAware, convert, prepare

RNG = np.random.default_rng(0)
DATA = RNG.standard_normal((90, 2, 6, 6)).astype("float32")
LOSS = "softmax_cross_entropy"


def image_net(*, dropout=0.2):
    body = [Conv2D(4, 3), BatchNorm2D(), ReLU(), MaxPool2D(2), Dropout(dropout), Flatten(), Dense(3)]
    model = Sequential(body, input_shape=(1, 6, 6))
    Trainer(model, LOSS, SGD(0.1)).fit(X, Y, **FIT)
    return model


@pytest.fixture(scope="module")
def prepared_net():
    return prepare(image_net(), X)


@pytest.fixture
def prepared(prepared_net):
    return copy.deepcopy(prepared_net)


def rounded(weight):
    """Returns the reference of rounded weights: the nearest of 255 multiples of a scale for each output."""
    made = np.empty(weight.shape)
    for i, channel in enumerate(weight.astype(np.float64)):
        scale = np.abs(channel).max() / 127 or 1.0
        made[i] = np.clip(np.floor(channel / scale + 0.5), -127, 127) * scale
    return made


def fake(x, scale, zero_point):
    """Returns the reference of FakeQuantize, and where its gradient is not 0."""
    q = np.floor(x / scale + zero_point + 0.5)
    return scale * (np.clip(q, -128, 127) - zero_point), (q >= -128) & (q <= 127)


def in_float(prepared):
    """Returns a model of the same layers in which weights are what they were rounded to: no other rounding is left."""
    body = [type(layer)(**layer.config()) for layer in prepared.layers[0].layers]
    model = Sequential(body, input_shape=prepared.input_shape)
    state = {name.removeprefix("0."): value for name, value in prepared.state_dict().items()}
    for i, layer in enumerate(body):
        if isinstance(layer, (Conv2D, Dense)):
            state[f"{i}.weight"] = rounded(state[f"{i}.weight"])
    model.load_state_dict(state)
    return model


# ---- a step


def test_a_step_is_that_of_the_reference():
    """Forward and backward in float64 NumPy: rounded weights and values, straight-through gradients."""
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((40, 5)), rng.integers(0, 3, 40)
    scales = (0.01, 7), (0.008, -128), (0.011, -5)  # some numbers are beyond each range
    body = FakeQuantize(*scales[0]), Dense(6), ReLU(), FakeQuantize(*scales[1]), Dense(3), FakeQuantize(*scales[2])
    model = Sequential([QuantizationAware(*body)], input_shape=(5,))
    w1, b1, w2, b2 = (param.value.astype(np.float64) for param in model.params.values())
    x0, in0 = fake(x, *scales[0])
    hidden = x0 @ rounded(w1).T + b1
    x1, in1 = fake(np.maximum(hidden, 0), *scales[1])
    scores, in2 = fake(x1 @ rounded(w2).T + b2, *scales[2])
    assert not in0.all()
    assert not in1.all()
    assert not in2.all()
    odds = np.exp(scores)
    d2 = (odds / odds.sum(axis=1, keepdims=True) - np.eye(3)[labels]) / 40 * in2
    d1 = d2 @ rounded(w2) * in1 * (hidden > 0)
    gradients = d1.T @ x0, d1.sum(axis=0), d2.T @ x1, d2.sum(axis=0)
    Trainer(model, LOSS, SGD(0.5)).train_batch(x, labels)
    for param, before, gradient in zip(model.params.values(), (w1, b1, w2, b2), gradients, strict=True):
        np.testing.assert_allclose(param.value, before - 0.5 * gradient, rtol=1e-5, atol=1e-6)
        assert np.abs(gradient).max() > 1e-3


def test_gradients_are_those_of_rounded_weights():
    """Also of images, for one example or many, in each layout: those of a model in float."""
    prepared, dy = prepare(image_net(dropout=0.0), X), RNG.standard_normal((90, 3))
    twin = in_float(prepared)
    for n in (1, 3, 16, 90):
        found = prepared.forward(X[:n], training=True), prepared.backward(dy[:n])
        expected = twin.forward(X[:n], training=True), twin.backward(dy[:n])
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        for a, b in zip(prepared.params.values(), twin.params.values(), strict=True):
            np.testing.assert_allclose(a.grad, b.grad, rtol=1e-5, atol=1e-5)
    inputs = prepared.input_gradient(X[:5], dscores=dy[:5])
    np.testing.assert_allclose(inputs, twin.input_gradient(X[:5], dscores=dy[:5]), rtol=1e-5, atol=1e-6)


def test_gradients_of_examples_add_up(prepared):
    trainer = Trainer(prepared, LOSS, SGD(0.1))
    single = trainer.per_example_gradients(X[:20], Y[:20])
    before = prepared.state_dict()
    trainer.train_batch(X[:20], Y[:20])
    for name, value in prepared.state_dict().items():
        np.testing.assert_allclose(value - before[name], -0.1 * single[name].mean(axis=0), rtol=1e-4, atol=1e-6)


def test_steps_change_the_weights_and_not_their_rounding(prepared):
    """Small steps would be lost in rounded weights."""
    before = prepared.state_dict()
    Trainer(prepared, LOSS, SGD(1e-5)).fit(X, Y, **FIT)
    weight, old = prepared.params["0.1.weight"].value, before["0.1.weight"]
    assert 0 < np.abs(weight - old).max() < np.abs(old).max() / 1000
    assert np.abs(weight - rounded(weight)).max() > np.abs(weight).max() / 1000


# ---- equal bits


def bits(model):
    return {name: value.tobytes() for name, value in model.state_dict().items()}


def test_threads_resumed_fits_and_files_change_no_bit(prepared_net, tmp_path):
    results = []
    for threads in (1, 2, 3):
        trainer = Trainer(copy.deepcopy(prepared_net), LOSS, Adam(0.01), num_threads=threads)
        trainer.fit(X, Y, **FIT)
        results.append(full_state(trainer))
    interrupted = Trainer(pickle.loads(pickle.dumps(prepared_net)), LOSS, Adam(0.01))
    interrupt_fit(interrupted, 30).save_checkpoint(tmp_path / "checkpoint.safetensors")
    resumed = Trainer.resume(tmp_path / "checkpoint.safetensors")
    resumed.fit(X, Y, **FIT)
    results.append(full_state(resumed))
    assert all(one == results[0] for one in results)
    resumed.model.save(tmp_path / "model.safetensors")
    loaded = Sequential.load(tmp_path / "model.safetensors")
    assert bits(loaded) == results[0][0]
    assert loaded.predict(X).tobytes() == resumed.model.predict(X).tobytes()


def test_accumulated_gradients_are_those_of_the_batch(prepared_net):
    first, second = copy.deepcopy(prepared_net), copy.deepcopy(prepared_net)
    Trainer(first, LOSS, SGD(0.1)).fit(X, Y, **{**FIT, "batch_size": 8})
    Trainer(second, LOSS, SGD(0.1)).fit(X, Y, **{**FIT, "batch_size": 2}, gradient_accumulation_steps=4)
    assert bits(first) == bits(second)


# ---- integers in inference


def test_integers_are_those_of_the_last_evaluation(prepared):
    """After each change of the weights, by steps, an average, or by hand."""
    trainer, shown = Trainer(prepared, LOSS, SGD(0.1), metrics=["accuracy"]), set()

    def check():
        quantized = convert(prepared)
        assert trainer.evaluate(X, Y) == Trainer(quantized, LOSS, SGD(0.1), metrics=["accuracy"]).evaluate(X, Y)
        for scores in (trainer.predict(X), prepared.predict(X, num_threads=2), prepared.forward(X)):
            assert scores.tobytes() == quantized.predict(X).tobytes()
        assert quantized.layers[0].quantized(prepared.predict(X)).tobytes() == quantized.predict_int8(X).tobytes()
        shown.add(prepared.predict(X).tobytes())

    check()
    trainer.fit(X, Y, **FIT)
    check()
    trainer.fit(X, Y, **FIT, callbacks=[ExponentialMovingAverage(0.5)])
    check()
    prepared.params["0.8.bias"].value[...] += 0.1
    check()
    assert len(shown) == 4


def test_threads_predict_at_a_time(prepared):
    expected, found = convert(prepared).predict(X), []
    threads = [threading.Thread(target=lambda: found.append(prepared.predict(X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(scores.tobytes() == expected.tobytes() for scores in found)


def test_training_differs_from_integers_by_rounding(prepared):
    """Biases are rounded to integers, and sums are in float32: rarely the nearest int8 number is another one."""
    quantized, twin = convert(prepared), in_float(prepared)
    scale = quantized.program.values[-1].quantization.scale
    steps = (twin.predict(X) - quantized.predict(X)) / scale
    assert np.abs(steps).max() < 1.5
    assert (np.abs(steps) > 0.5).mean() < 0.05


def test_layers_in_float_follow_the_integers(prepared):
    model = image_net()
    whole = Sequential([model[:-1].as_layer(), Dense(3), Softmax()])
    whole.build(X.shape[1:])
    found = prepare(whole, X, float_layers=2)
    assert [type(layer) for layer in found.layers] == [QuantizationAware, Dense, Softmax]
    quantized = convert(found)
    assert quantized.predict(X).tobytes() == found.predict(X).tobytes()
    np.testing.assert_allclose(found.predict(X), whole.predict(X), atol=0.05)


# ---- what prepare makes

NETS = {
    "image": ([RandomFlip(), Normalize([0.1, 0.2], 0.5), Conv2D(4, 3), ReLU(), Flatten(), Dense(3)], 3),
    "pools": ([Conv2D(4, 3), MaxPool2D(2), ReLU6(), AvgPool2D(2), Flatten(), Dense(3), Tanh()], 5),
    "norms": ([BatchNorm2D(), Conv2D(4, 3), BatchNorm2D(), ReLU(), BatchNorm2D(affine=False), Flatten(), Dense(3)], 4),
    "signal": ([Reshape((2, 36)), Conv1D(4, 3), BatchNorm1D(), SiLU(), Reduce("mean", axis=1), Dense(3)], 5),
    "residual": (
        [
            Conv2D(4, 3),
            Residual(Conv2D(4, 3, padding=1), BatchNorm2D(), ReLU(), Conv2D(4, 1), StochasticDepth(0.5)),
            ReLU(),
            Residual(Conv2D(3, 1), BatchNorm2D(), shortcut=Conv2D(3, 1)),
            GlobalAvgPool2D(),
        ],
        9,
    ),
    "gate": ([Conv2D(4, 3), ReLU(), SqueezeExcite(2, gate=HardSigmoid()), DepthwiseConv2D(3), Flatten()], 8),
    "concat": ([Parallel([], [Conv2D(3, 1), ReLU()]), Parallel([], [Sigmoid(), Conv2D(2, 1)]), Flatten()], 4),
    "flattened": ([Conv2D(4, 3), Flatten(), ReLU(), Dense(5), ReLU(), Dense(3)], 4),
    "flattened pools": ([Conv2D(4, 3), MaxPool2D(2), Flatten(), Dropout(0.1), ReLU(), Dense(3)], 3),
    "copies": ([Pad2D(1, value=2.0), Conv2D(4, 3), Permute((1, 2, 0)), Reduce("mean", axis=1), Flatten(), Dense(3)], 4),
}


@pytest.mark.parametrize("name", NETS)
def test_operations_and_ranges_are_those_of_quantize(name):
    """As long as the weights are the same: only the biases, which prepare does not correct, may differ."""
    body, count = NETS[name]
    model = Sequential(copy.deepcopy(body), input_shape=(2, 6, 6))
    rng = np.random.default_rng(0)
    state = model.state_dict()
    model.load_state_dict({key: value + 0.1 * rng.random(value.shape) for key, value in state.items()})
    expected, made = quantize(model, DATA).program, prepare(model, DATA)
    found = convert(made).program
    assert [value.quantization for value in found.values] == [value.quantization for value in expected.values]
    assert [operation.kind for operation in found.operations] == [operation.kind for operation in expected.operations]
    for one, other in zip(found.operations, expected.operations, strict=True):
        if one.kind == "sum of products":
            assert np.abs(one.weights.astype(int) - other.weights).max() <= 1  # Scale has float32 numbers
            assert (one.weights != other.weights).mean() < 0.02
    error = np.abs(made.predict(DATA) - model.predict(DATA)) / found.values[-1].quantization.scale
    assert np.median(error) < 3
    assert sum(isinstance(leaf, FakeQuantize) for leaf in made.layers[0].leaves()) == count
    targets = rng.integers(0, made.output_shape[0], 90)
    Trainer(made, LOSS, SGD(0.01)).fit(DATA, targets, **{**FIT, "epochs": 1})
    assert convert(made).predict(DATA).tobytes() == made.predict(DATA).tobytes()


def test_settings_and_descriptions_are_kept():
    model = Sequential([Block(Conv2D(3, 1), BatchNorm2D()), Flatten(), Dense(3)], input_shape=(2, 6, 6))
    model.lr_mult, model.classes, model.metadata = 0.5, ["a", "b", "c"], {"data": "noise"}
    model.layers[0].lr_mult, model.layers[0].layers[1].lr_mult = 2.0, {"bias": 3.0}
    model.layers[2].trainable = False
    made = prepare(model, DATA)
    _, block, _, dense, _ = made.layers[0].layers
    assert isinstance(block.layers[2], FakeQuantize)
    assert (made.lr_mult, made.classes, dict(made.metadata)) == (0.5, model.classes, {"data": "noise"})
    assert (block.lr_mult, dict(block.layers[1].lr_mult), dense.trainable) == (2.0, {"bias": 3.0}, False)
    assert isinstance(block.layers[1], Scale)
    quantized = convert(made)
    assert (quantized.classes, dict(quantized.metadata)) == (model.classes, {"data": "noise"})
    assert quantized.advice == ""
    assert "SNR" in str(quantized.summary())


# ---- accuracy


def test_accuracy_that_quantization_loses_is_won_back():
    """Units of a hidden layer are 0.03 to 30 times as large, and the next layer divides them: the same float net."""
    digits = load_digits()
    x, labels = digits.X_train, digits.y_train
    model = Sequential([Flatten(), Rescale(1 / 16), Dense(32), ReLU(), Dense(10)], input_shape=(1, 8, 8))
    Trainer(model, LOSS, Adam(0.01)).fit(x, labels, epochs=10, verbose=0)
    factors = 10 ** np.random.default_rng(0).uniform(-1.5, 1.5, 32)
    state = model.state_dict()
    state |= {"2.weight": state["2.weight"] * factors[:, None], "2.bias": state["2.bias"] * factors}
    model.load_state_dict(state | {"4.weight": state["4.weight"] / factors})

    def accuracy(net):
        return (net.predict(x).argmax(axis=1) == labels).mean()

    made = prepare(model, x[:300])
    Trainer(made, LOSS, Adam(0.01)).fit(x, labels, epochs=12, verbose=0)
    whole, after, aware = accuracy(model), accuracy(quantize(model, x[:300])), accuracy(convert(made))
    assert whole > 0.97
    assert after < whole - 0.1
    assert aware > whole - 0.05


# ---- what is refused


@pytest.mark.parametrize(
    ("layers", "options", "error", "message"),
    [
        ([Conv2D(2, 3), PReLU(), Flatten()], {}, ValueError, "^QuantizationAware: layer 3, PReLU: .* values inside"),
        ([Dropout(0.1), Flatten(), Dense(3), Softmax()], {}, ValueError, "layer 3, Softmax: .* float_layers"),
        ([Parallel([], [], [], join="multiply")], {}, ValueError, "Parallel: expected a layer without values inside"),
        ([Flatten(), Dense(3)], {"float_layers": 2}, ValueError, "float_layers: "),
        ([Flatten(), Dense(3)], {"ranges": "mean"}, ValueError, "ranges: "),
    ],
    ids=str,
)
def test_other_layers_and_arguments_are_refused(layers, options, error, message):
    model = Sequential(copy.deepcopy(layers), input_shape=(2, 6, 6))
    with pytest.raises(error, match=message):
        prepare(model, DATA, **options)


def test_other_models_are_refused(prepared):
    dense = Sequential([Dense(2)], input_shape=(3,))
    with pytest.raises(ValueError, match="not built"):
        prepare(Sequential([Dense(2)]), X)
    with pytest.raises(ValueError, match="expected 'float32'"):
        prepare(Sequential([Dense(2)], input_shape=(3,), dtype="float64"), np.eye(3))
    with pytest.raises(ValueError, match="expected a model of one size"):
        prepare(Sequential([Conv2D(2, 3)], input_shape=(2, None, None)), X)
    with pytest.raises(InputError, match="X: expected examples whose numbers differ"):
        prepare(dense, np.ones((4, 3)))
    with pytest.raises(TypeError, match="model: expected a Sequential"):
        prepare(None, X)
    for function in (prepare, quantize):
        with pytest.raises(ValueError, match="model: expected one in float"):
            function(prepared, X)
    with pytest.raises(
        ValueError, match="prepared: expected a model of a QuantizationAware, that prepare returned, got Dense"
    ):
        convert(dense)
    with pytest.raises(TypeError, match="prepared: expected a Sequential"):
        convert(None)


def test_numbers_that_are_copied_and_rounded_again():
    """A maximum keeps the quantization of its input; another one after it is a table."""
    layers = [FakeQuantize(0.1, 0), MaxPool2D(2), FakeQuantize(0.07, 3), Flatten(), FakeQuantize(0.07, 3)]
    model = Sequential([QuantizationAware(*layers)], input_shape=(1, 4, 4))
    x = np.random.default_rng(0).uniform(-9, 9, (50, 1, 4, 4)).astype("f4")
    np.testing.assert_array_equal(model.predict(x), model.forward(x, training=True))
    kinds = [operation.kind for operation in convert(model).program.operations]
    assert kinds == ["maximum", "table", "copy"]


def test_values_without_a_quantization_and_weights_that_are_not_finite_are_named(prepared):
    bare = Sequential([QuantizationAware(FakeQuantize(0.1, 0), Dense(2))], input_shape=(3,))
    with pytest.raises(ValueError, match=r"^QuantizationAware: layer 1, Dense: expected a FakeQuantize after it"):
        bare.predict(np.eye(3))
    bare = Sequential([QuantizationAware(Dense(2), FakeQuantize(0.1, 0))], input_shape=(3,))
    with pytest.raises(ValueError, match=r"^QuantizationAware: the input: expected a FakeQuantize after it"):
        bare.predict(np.eye(3))
    steps = [FakeQuantize(0.1, 0), Parallel([Dense(2), FakeQuantize(0.1, 0)], [Dense(2), FakeQuantize(0.2, 0)])]
    mixed = Sequential([QuantizationAware(*steps, FakeQuantize(0.2, 0))], input_shape=(3,))
    assert convert(mixed).predict(np.eye(3)).tobytes() == mixed.predict(np.eye(3)).tobytes()  # by tables
    prepared.params["0.1.weight"].value[0, 0, 0, 0] = np.nan
    for refused in (prepared.predict, lambda X: convert(prepared)):
        with pytest.raises(ValueError, match=r"^QuantizationAware: layer 1, Conv2D .*expected finite weights"):
            refused(X)
    for number in (np.nan, np.inf):  # without a warning
        prepared.params["0.1.weight"].value[0, 0, 0, 0] = number
        assert np.isnan(prepared.forward(X, training=True)).any()


def test_every_kind_of_product_has_rounded_weights():
    """A small change of a weight, less than a step, changes no output in training."""
    kinds = itertools.product((Conv2D, DepthwiseConv2D), (1, 2))
    for make, stride in kinds:
        arguments = (3,) if make is DepthwiseConv2D else (3, 3)
        body = FakeQuantize(0.02, 0), make(*arguments, stride=stride), FakeQuantize(0.02, 0)
        model = Sequential([QuantizationAware(*body)], input_shape=(2, 6, 6))
        weight, before = model.params["0.1.weight"].value, model.forward(DATA, training=True)
        weight[...] = rounded(weight)
        assert (model.forward(DATA, training=True) == before).all()
