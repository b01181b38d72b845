"""SimpleRNN, LSTM, GRU, Bidirectional: arguments, parameters, directions, errors, training beside PyTorch.

Values and gradients of many shapes are in tests/native/kernels/test_recurrent.py.
"""

import copy

import numpy as np
import pytest
from reference_recurrent import Layer as Reference

from minidl import Sequential, Trainer
from minidl.initializers import ones, unit_forget_bias
from minidl.layers import GRU, LSTM, Bidirectional, Conv1D, Dense, Flatten, ReLU, SimpleRNN
from minidl.optimizers import SGD

LAYERS = {
    "tanh": SimpleRNN(5),
    "relu": SimpleRNN(5, "relu"),
    "lstm": LSTM(5),
    "gru": GRU(5),
    "gru_reset_before": GRU(5, reset_after=False),
}
each_cell = pytest.mark.parametrize("cell", LAYERS)


def randomized(layer, shape, rng):
    model = Sequential([layer], input_shape=shape, dtype="float64")
    for param in model.params.values():
        param.value = rng.uniform(-1, 1, param.value.shape)
    return model


@each_cell
def test_every_argument(cell, rng):
    for sequences in (False, True):
        for reverse in (False, True):
            layer = copy.deepcopy(LAYERS[cell])
            layer.return_sequences, layer.reverse = sequences, reverse
            model, x = randomized(layer, (3, 7), rng), rng.standard_normal((20, 3, 7))
            reference = Reference(cell, *(param.value for param in model.params.values()))
            expected = reference.forward(x, sequences, reverse)
            assert model.output_shape == expected.shape[1:]
            np.testing.assert_allclose(model.predict(x), expected, rtol=0, atol=1e-13)


@each_cell
def test_parameters(cell):
    layer, gates = copy.deepcopy(LAYERS[cell]), {"lstm": 4, "gru": 3, "gru_reset_before": 3}.get(cell, 1)
    model = Sequential([layer], input_shape=(3, 7))
    shapes = {name.removeprefix("0."): param.value.shape for name, param in model.params.items()}
    rows = 5 * gates
    assert shapes == {"weight_ih": (rows, 3), "weight_hh": (rows, 5), "bias_ih": (rows,), "bias_hh": (rows,)}
    forget = np.repeat([0, 1, 0, 0], 5) if cell == "lstm" else np.zeros(rows)
    np.testing.assert_array_equal(layer.bias_ih.value, forget)
    assert not layer.bias_hh.value.any()
    assert layer.macs == rows * (3 + 5) * 7


def test_the_state_dict_of_pytorch_fits(rng):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.LSTM(4, 6, batch_first=True)
    model = Sequential([LSTM(6, return_sequences=True)], input_shape=(4, 9))
    model.load_state_dict({f"0.{name.removesuffix('_l0')}": p.detach() for name, p in theirs.state_dict().items()})
    x = rng.standard_normal((3, 4, 9)).astype("f4")
    with torch.no_grad():
        expected = theirs(torch.tensor(x).movedim(1, 2))[0].movedim(1, 2).numpy()
    np.testing.assert_allclose(model.predict(x), expected, rtol=0, atol=1e-6)


def test_bidirectional_is_both_directions_side_by_side(rng):
    for sequences in (False, True):
        both = randomized(Bidirectional(GRU(4, return_sequences=sequences)), (2, 6), rng)
        x, outputs = rng.standard_normal((5, 2, 6)), []
        for branch, reverse in (("forward", False), ("reverse", True)):
            params = {n.rpartition(".")[2]: p.value for n, p in both.params.items() if n.startswith(f"0.{branch}.0.")}
            outputs.append(Reference("gru", **params).forward(x, sequences, reverse))
        np.testing.assert_allclose(both.predict(x), np.concatenate(outputs, axis=1), rtol=0, atol=1e-13)


def test_models_are_saved_copied_and_sliced(tmp_path, rng):
    layers = [
        Bidirectional(LSTM(4, return_sequences=True, bias_initializer=ones)),
        GRU(3, False, reverse=True),
        Dense(2),
    ]
    model, x = Sequential(layers, input_shape=(2, 6), seed=4), rng.standard_normal((5, 2, 6)).astype("f4")
    model.save(tmp_path / "m.safetensors")
    loaded = Sequential.load(tmp_path / "m.safetensors")
    for other in (loaded, copy.deepcopy(model), Sequential([model[:2], model[2:]], (2, 6))):
        assert other.predict(x).tobytes() == model.predict(x).tobytes()
    assert repr(loaded) == repr(model)
    assert loaded[0].layer.bias_initializer is ones


def test_sequences_of_any_length(rng):
    model = Sequential([Conv1D(3, 2), LSTM(4, return_sequences=True), GRU(3)], input_shape=(2, None), seed=1)
    for length in (5, 17):
        x = rng.standard_normal((3, 2, length)).astype("f4")
        fixed = Sequential([Conv1D(3, 2), LSTM(4, return_sequences=True), GRU(3)], input_shape=(2, length))
        fixed.load_state_dict(model.state_dict())
        assert model.predict(x).tobytes() == fixed.predict(x).tobytes()


def test_the_summary_counts_the_memory_of_time():
    """A step needs rows of 64 bytes, of 16 examples, for x and for each unit those of 7 values and 4 gradients."""
    sizes = [Sequential([LSTM(64)], input_shape=(8, length)).summary(16).training_bytes for length in (100, 200)]
    assert (sizes[1] - sizes[0]) / 100 >= 64 * (11 * 64 + 8)


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (LSTM(0), ValueError, "layer 0, LSTM.*units: expected at least 1, got 0"),
        (GRU(3.0), TypeError, "layer 0, GRU.*units: expected an integer, got 3.0"),
        (SimpleRNN(3, "sigmoid"), ValueError, "nonlinearity: expected .*, got 'sigmoid'"),
        (GRU(3, reset_after=1), TypeError, "reset_after: expected True or False, got 1"),
        (LSTM(3, return_sequences="yes"), TypeError, "return_sequences: expected True or False, got 'yes'"),
        (LSTM(3, reverse=None), TypeError, "reverse: expected True or False, got None"),
        (LSTM(3, use_bias=1), TypeError, "use_bias: expected True or False, got 1"),
        (LSTM(3, recurrent_initializer="orthogonal"), TypeError, "recurrent_initializer: expected a function"),
        (GRU(3, bias_initializer=unit_forget_bias), ValueError, r"expected the shape \(4 units,\) of the gates"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(layer, error, message):
    with pytest.raises(error, match=message):
        Sequential([layer], input_shape=(2, 5))


@pytest.mark.parametrize("shape", [(5,), (2, 5, 5)])
def test_other_inputs_are_refused(shape):
    with pytest.raises(ValueError, match=r"layer 0, LSTM.*: expected \(channels, length\), got"):
        Sequential([LSTM(3)], input_shape=shape)


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (Dense(3), TypeError, r"layer: expected a SimpleRNN, LSTM or GRU, got Dense\(units=3\)"),
        (LSTM, TypeError, "layer: expected a SimpleRNN, LSTM or GRU, got <class"),
        (LSTM(3, reverse=True), ValueError, r"layer: expected one with reverse=False, got LSTM\(units=3, reverse=True"),
        (Bidirectional(LSTM(3)), TypeError, "layer: expected a SimpleRNN, LSTM or GRU, got Bidirectional"),
        ([LSTM(3)], TypeError, r"layer: expected a SimpleRNN, LSTM or GRU, got \[LSTM"),
    ],
    ids=str,
)
def test_bidirectional_refuses(layer, error, message):
    with pytest.raises(error, match=message):
        Bidirectional(layer)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("hidden_size", "use units="),
        ("num_layers", "use several layers"),
        ("bidirectional", r"use Bidirectional\(layer\)"),
        ("go_backwards", "use reverse="),
        ("batch_first", "leave it out: arrays are"),
        ("unit_forget_bias", "use bias_initializer="),
    ],
)
@pytest.mark.parametrize("layer", [SimpleRNN, LSTM, GRU])
def test_words_of_others_are_answered(layer, name, answer):
    with pytest.raises(TypeError, match=f"got {name}=; {answer}"):
        layer(3, **{name: 1})


def torch_counterpart(layers, inputs):
    """Returns PyTorch's modules of recurrent layers and a dense one, and a function from x to scores."""
    import torch

    modules, size = torch.nn.ModuleList(), inputs
    for layer in layers[:-1]:
        kind = {LSTM: torch.nn.LSTM, GRU: torch.nn.GRU, SimpleRNN: torch.nn.RNN}[type(layer)]
        modules.append(kind(size, layer.units, batch_first=True))
        size = layer.units
    modules.append(torch.nn.Linear(size, layers[-1].units))

    def scores(x):
        x = x.movedim(1, 2)
        for layer, module in zip(layers[:-1], modules[:-1], strict=True):
            x = module(x.flip(1) if layer.reverse else x)[0]
        return modules[-1](x[:, -1])

    return modules.double(), scores


@pytest.mark.oracle
@pytest.mark.parametrize(
    "stack", [[LSTM(9)], [GRU(9)], [SimpleRNN(9, reverse=True)], [LSTM(6, return_sequences=True), GRU(5)]], ids=str
)
def test_training_stays_beside_pytorch(stack, rng):
    torch = pytest.importorskip("torch")
    layers = [*copy.deepcopy(stack), Dense(3)]
    X, y = rng.standard_normal((20 * 16, 2, 15)), rng.integers(0, 3, 20 * 16)
    model = Sequential(layers, input_shape=(2, 15), dtype="float64", seed=1)
    modules, scores = torch_counterpart(layers, 2)
    with torch.no_grad():
        for ours, theirs in zip(model.params.values(), modules.parameters(), strict=True):
            theirs[...] = torch.tensor(ours.value)
    trainer, optimizer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9)), None
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.1, momentum=0.9)
    for step in range(200):
        rows = slice(step % 20 * 16, step % 20 * 16 + 16)
        trainer.train_batch(X[rows], y[rows])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(scores(torch.tensor(X[rows])), torch.tensor(y[rows])).backward()
        optimizer.step()
    for (name, ours), theirs in zip(model.params.items(), modules.parameters(), strict=True):
        np.testing.assert_allclose(ours.value, theirs.detach().numpy(), rtol=0, atol=1e-10, err_msg=name)


def test_layers_after_it_see_channels_and_time(rng):
    model = Sequential([LSTM(4, return_sequences=True), Conv1D(3, 1), ReLU(), Flatten(), Dense(2)], (2, 6))
    assert [layer.out_shape for layer in model.layers] == [(4, 6), (3, 6), (3, 6), (18,), (2,)]
