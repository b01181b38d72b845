"""Sequential: building, forward and backward by hand, weights in and out, slices."""

import copy
import pickle
import threading

import numpy as np
import pytest
import reference
from geometries import Conv

from minidl import Layer, Sequential, Trainer
from minidl.initializers import ones
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.optimizers import SGD

DATA = np.ones((6, 4)), np.zeros(6, int)


def layers(classes=3):
    return [Rescale(0.5), Conv2D(4, 3), ReLU(), MaxPool2D(2), Flatten(), Dense(classes)]


@pytest.fixture(params=["float32", "float64"])
def model(request):
    return Sequential(layers(), input_shape=(2, 8, 8), dtype=request.param)


def expected_scores(model, x):
    """Returns the scores of the same net in float64, from the reference functions."""
    state = {name: value.astype(np.float64) for name, value in model.state_dict().items()}
    case = Conv(len(x), 2, 8, 8, 4, (3, 3))
    y = reference.conv2d_forward(x * 0.5, state["1.weight"], state["1.bias"], case)
    y = np.maximum(y, 0).reshape(len(x), 4, 3, 2, 3, 2).max(axis=(3, 5))
    return y.reshape(len(x), 36) @ state["5.weight"].T + state["5.bias"]


# ---- building
def test_shapes_are_inferred(model):
    assert model.input_shape == (2, 8, 8) and model.output_shape == (3,)
    shapes = [layer.out_shape for layer in model.layers]
    assert shapes == [(2, 8, 8), (4, 6, 6), (4, 6, 6), (4, 3, 3), (36,), (3,)]
    assert list(model.params) == ["1.weight", "1.bias", "5.weight", "5.bias"]
    assert len(model) == 6 and model[1] is model.layers[1] and model[-1] is model.layers[5]


def test_weights_are_a_function_of_seed_and_path():
    first, again, other = (Sequential(layers(), (2, 8, 8), seed=s) for s in (4, 4, 5))
    longer = Sequential([*layers(), ReLU(), Dense(2)], (2, 8, 8), seed=4)
    moved = Sequential([ReLU(), *layers()], (2, 8, 8), seed=4)
    for name in ("1.weight", "5.weight"):
        value = first.params[name].value
        np.testing.assert_array_equal(value, again.params[name].value)
        np.testing.assert_array_equal(value, longer.params[name].value)
        assert (value != other.params[name].value).all()
    assert (first.params["1.weight"].value != moved.params["2.weight"].value).all()


def test_float32_weights_are_the_float64_ones_rounded():
    single, double = (Sequential(layers(), (2, 8, 8), dtype=d) for d in ("float32", "float64"))
    for name, value in double.state_dict().items():
        np.testing.assert_array_equal(single.params[name].value, value.astype("float32"))


def test_an_unbuilt_model_is_refused(model):
    fresh = Sequential(layers())
    calls = [
        *(lambda n=n: getattr(fresh, n) for n in ("input_shape", "output_shape", "params")),
        *(lambda n=n: getattr(fresh, n)(np.zeros((1, 2, 8, 8))) for n in ("predict", "forward")),
        *(fresh.summary, fresh.state_dict, lambda: fresh.load_state_dict({})),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="not built yet: give it an input_shape, or fit"):
            call()
    fresh.build((2, 8, 8))
    assert fresh.output_shape == (3,)
    with pytest.raises(ValueError, match=r"built already, for inputs of shape \(2, 8, 8\)"):
        fresh.build((2, 8, 8))


def test_a_failed_build_leaves_nothing_behind():
    mixed = Sequential([Conv2D(4, 3), Flatten(), Dense(2)])
    with pytest.raises(ValueError, match=r"layer 0, Conv2D, input \(9,\)"):
        mixed.build((9,))
    with pytest.raises(ValueError, match=r"layer 0, Conv2D, input \(1, 2, 2\)"):
        mixed.build((1, 2, 2))
    mixed.build((1, 5, 5))
    fresh = Sequential([Conv2D(4, 3), Flatten(), Dense(2)], input_shape=(1, 5, 5))
    for name, value in fresh.state_dict().items():
        np.testing.assert_array_equal(mixed.params[name].value, value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"layers": []}, ValueError, "layers: expected at least one"),
        ({"layers": [Dense]}, TypeError, "layers: expected Layer objects, got .*Dense.* index 0"),
        ({"layers": [ReLU(), "relu"]}, TypeError, "layers: .*'relu' at index 1"),
        ({"dtype": "float16"}, ValueError, "dtype: expected 'float32' or 'float64', got 'float16'"),
        ({"seed": -1}, ValueError, "seed: .*got -1"),
        ({"seed": 1.5}, TypeError, r"seed: .*got 1\.5"),
        ({"input_shape": (0, 8, 8)}, ValueError, "input_shape: .*got 0"),
        ({"input_shape": 8}, TypeError, "input_shape: .*got 8"),
    ],
    ids=str,
)
def test_invalid_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Sequential(**{"layers": layers(), "input_shape": (2, 8, 8)} | arguments)


def test_a_layer_can_be_used_only_once(model):
    shared = Dense(4)
    with pytest.raises(ValueError, match="layer 1, Dense: "):
        Sequential([shared, shared], input_shape=(4,))
    before = model.state_dict()
    with pytest.raises(ValueError, match=r"layer 1, Dense: belongs to another model; .* or nest a slice, model\[:-1\]"):
        Sequential([Flatten(), model.layers[5]], input_shape=(36,))
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


# ---- forward and backward
@pytest.mark.parametrize("n", [0, 1, 17, 1025, 2048])  # blocks of 1024
def test_predict_and_forward_agree_with_the_reference(model, n, rng):
    x = rng.normal(size=(n, 2, 8, 8)).astype(model.dtype)
    scores = model.predict(x)
    assert scores.dtype == model.dtype and scores.shape == (n, 3)
    atol = 1e-4 if model.dtype == "float32" else 1e-12
    np.testing.assert_allclose(scores, expected_scores(model, x), rtol=0, atol=atol)
    for training in (False, True):
        assert model.forward(x, training=training).tobytes() == scores.tobytes()
    probabilities = model.predict_proba(x)
    np.testing.assert_allclose(probabilities, reference.softmax(scores), rtol=1e-5)
    assert probabilities.dtype == model.dtype


def test_two_dimensional_data_of_matching_width_is_reshaped(model, rng):
    x = rng.normal(size=(5, 2, 8, 8))
    assert model.predict(x.reshape(5, 128)).tobytes() == model.predict(x).tobytes()


def test_probabilities_need_one_score_per_class():
    images = Sequential([ReLU()], input_shape=(3, 2, 2))
    with pytest.raises(ValueError, match=r"predict_proba: .*\(classes,\).*got \(3, 2, 2\)"):
        images.predict_proba(np.zeros((1, 3, 2, 2)))


def test_backward_is_the_derivative_of_forward(rng):
    """Central differences in float64, for X and every parameter, over all rows of the batch."""
    model = Sequential(layers(), input_shape=(2, 8, 8), dtype="float64")
    x, dy = rng.normal(size=(18, 2, 8, 8)), rng.normal(size=(18, 3))

    def loss():
        return (model.predict(x) * dy).sum()

    model.forward(x, training=True)
    dx = model.backward(dy)
    for name, param in model.params.items():
        expected = reference.finite_differences(loss, param.value, 1e-6)
        np.testing.assert_allclose(param.grad, expected, rtol=1e-5, atol=1e-5, err_msg=name)
    for i, c, row, column in [(0, 0, 0, 0), (0, 1, 3, 4), (15, 0, 7, 7), (16, 1, 2, 6), (17, 0, 5, 1)]:
        pixel = x[i, c, row, column : column + 1]  # a view of one pixel
        expected = reference.finite_differences(loss, pixel, 1e-6)
        np.testing.assert_allclose(dx[i, c, row, column], expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.oracle
@pytest.mark.parametrize("n", [1, 16, 37])
def test_gradients_of_a_whole_net_match_pytorch(n, rng):
    import torch
    from torch import nn

    x, dy = rng.normal(size=(n, 2, 9, 8)), rng.normal(size=(n, 4))
    net = [Conv2D(6, (3, 2), stride=(1, 2), padding=(1, 0)), ReLU(), MaxPool2D(3, 2, 1)]
    net += [Conv2D(8, 2, dilation=(2, 1), groups=2), ReLU(), Flatten(), Dense(9), ReLU(), Dense(4)]
    model = Sequential(net, input_shape=(2, 9, 8), dtype="float64")
    twin = nn.Sequential(
        *(nn.Conv2d(2, 6, (3, 2), (1, 2), (1, 0)), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        *(nn.Conv2d(6, 8, 2, dilation=(2, 1), groups=2), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(24, 9), nn.ReLU(), nn.Linear(9, 4)),
    ).double()
    names = {name: torch.from_numpy(value) for name, value in model.state_dict().items()}
    twin.load_state_dict(names)  # strict: names and layouts are PyTorch's
    tensor = torch.from_numpy(x).requires_grad_()
    scores = twin(tensor)
    scores.backward(torch.from_numpy(dy))
    tolerance = {"rtol": 1e-10, "atol": 1e-12}
    np.testing.assert_allclose(model.forward(x, True), scores.detach().numpy(), **tolerance)
    np.testing.assert_allclose(model.backward(dy), tensor.grad.numpy(), **tolerance)
    for name, param in twin.named_parameters():
        np.testing.assert_allclose(model.params[name].grad, param.grad.numpy(), **tolerance)


def test_backward_can_be_repeated_but_needs_a_forward(model, rng):
    dy = rng.normal(size=(4, 3)).astype(model.dtype)
    with pytest.raises(RuntimeError, match=r"forward\(X, training=True\) before it"):
        model.backward(dy)
    x = rng.normal(size=(4, 2, 8, 8))
    model.forward(x)
    with pytest.raises(RuntimeError, match="backward"):
        model.backward(dy)
    model.forward(x, training=True)
    dx = model.backward(dy)
    model.predict(-x)  # inference does not touch the kept activations
    assert model.backward(dy).tobytes() == dx.tobytes()
    np.testing.assert_allclose(model.backward(3 * dy), 3 * dx, rtol=1e-4, atol=1e-6)


def test_an_empty_batch_has_zero_gradients(model, rng):
    model.forward(rng.normal(size=(4, 2, 8, 8)), training=True)
    model.backward(np.ones((4, 3)))
    model.forward(np.zeros((0, 2, 8, 8)), training=True)
    assert model.backward(np.zeros((0, 3))).shape == (0, 2, 8, 8)
    assert not any(param.grad.any() for param in model.params.values())


# ---- weights
def test_state_dict_returns_copies_that_can_be_loaded(model, rng):
    state = model.state_dict()
    assert {name: value.shape for name, value in state.items()} == {
        "1.weight": (4, 2, 3, 3),
        "1.bias": (4,),
        "5.weight": (3, 36),
        "5.bias": (3,),
    }
    for name, value in state.items():
        assert value.flags.c_contiguous and not np.shares_memory(value, model.params[name].value)
    x = rng.normal(size=(3, 2, 8, 8))
    other = Sequential(layers(), input_shape=(2, 8, 8), seed=9, dtype=model.dtype)
    assert (other.predict(x) != model.predict(x)).all()
    other.load_state_dict({name: value.tolist() for name, value in reversed(state.items())})
    assert other.predict(x).tobytes() == model.predict(x).tobytes()


# ---- slices and reprs
@pytest.mark.parametrize("part", [slice(None, -1), slice(2, None), slice(1, 3), slice(None)])
def test_a_slice_is_a_copy_with_its_weights(model, part, rng):
    shape = model.layers[part.start - 1].out_shape if part.start else model.input_shape
    copy = model[part]
    x = rng.normal(size=(3, *shape)).astype(model.dtype)
    expected = x
    for layer in model.layers[part]:  # layer by layer, each a model of its own
        alone = Sequential([type(layer)(**layer.config())], expected.shape[1:], dtype=model.dtype)
        for name, param in layer.params.items():
            alone.params[f"0.{name}"].value = param.value
        expected = alone.predict(expected)
    assert copy.predict(x).tobytes() == expected.tobytes()
    before = model.state_dict()
    for param in copy.params.values():
        param.value[...] = 0
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_a_slice_keeps_a_custom_layer_and_an_unbuilt_model_unbuilt():
    class Gain(Layer):
        def __init__(self, start):
            self.start = start

        def build(self, in_shape):
            self.param("gain", in_shape, ones)
            return in_shape

        def forward(self, x, training):
            return x * self.start * self.params["gain"].value

    model = Sequential([Gain([2.0]), ReLU()], input_shape=(3,))
    model.params["0.gain"].value = [1, 2, 3]
    copy = model[:1]
    np.testing.assert_array_equal(copy.predict(np.ones((1, 3))), [[2, 4, 6]])
    assert copy.layers[0].start is not model.layers[0].start
    with pytest.raises(ValueError, match="not built yet"):
        _ = Sequential(layers())[:2].params
    with pytest.raises(ValueError, match="at least one"):
        _ = model[2:]
    with pytest.raises(IndexError):
        _ = model[7]


def test_repr_is_readable():
    assert repr(Sequential([Dense(4), ReLU()])) == "Sequential(\n  (0): Dense(units=4)\n  (1): ReLU()\n)"


# ---- copies
def pickled(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickled, lambda model: model[:]])
def test_a_copy_predicts_the_same_and_is_independent(make, rng):
    model = Sequential(layers(), input_shape=(2, 8, 8), seed=3, dtype="float64")
    for param in model.params.values():
        param.value = rng.standard_normal(param.value.shape)
    X = rng.standard_normal((5, 2, 8, 8))
    expected = model.predict(X)
    twin = make(model)
    np.testing.assert_array_equal(twin.predict(X), expected)
    for param in twin.params.values():
        param.value = 0 * param.value
    np.testing.assert_array_equal(model.predict(X), expected)
    assert (twin.seed, twin.dtype) == (3, "float64")


def test_an_unbuilt_model_can_be_copied():
    assert repr(copy.deepcopy(Sequential([Dense(3)]))) == repr(Sequential([Dense(3)]))


def test_a_slice_of_incompatible_layers_is_refused():
    model = Sequential([Dense(4), Dense(5), Dense(3)], input_shape=(2,))
    with pytest.raises(ValueError, match=r"model\[None:None:2\]: Dense\(units=3\) takes \(5,\).*gives \(4,\)"):
        model[::2]


# ---- by hand, hard cases
def test_a_refused_build_does_not_change_another_models_layers():
    shared = Dense(3)
    owner, other = Sequential([shared], input_shape=(4,)), Sequential([shared])
    before = owner.state_dict()
    for attempt in (lambda: other.build((4,)), lambda: Trainer(other, "softmax_cross_entropy", SGD(0.1)).fit(*DATA)):
        with pytest.raises(ValueError, match="belongs to another model"):
            attempt()
    assert all(np.array_equal(before[name], value) for name, value in owner.state_dict().items())


def test_backward_by_hand_in_many_threads_is_correct_or_refused():
    model = Sequential(layers(), input_shape=(2, 8, 8))
    X, wrong = np.ones((300, 2, 8, 8), "f4"), []

    def work(n):
        for _ in range(400):
            try:
                model.backward(np.ones_like(model.forward(X[:n], training=True)))
            except (ValueError, RuntimeError):
                continue
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 40, 300, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_released_pass_is_refused():
    plan = Sequential(layers(), input_shape=(2, 8, 8)).network.segments[0].plan
    param, y = np.zeros(1000, "f4"), np.empty((4, 3), "f4")
    kept = plan.forward(np.ones((4, 128), "f4"), param, y)
    plan.release(kept)
    plan.release(kept)  # a second release does nothing
    with pytest.raises(RuntimeError, match="released"):
        plan.backward(kept, y, None, param, np.zeros(1000, "f4"))


def test_outputs_of_forward_are_writable():
    class Tanh(Layer):
        def forward(self, x, training):
            self.y = np.tanh(x)
            return self.y

        def backward(self, dy):
            return dy * (1 - self.y**2)

    model = Sequential([Dense(3), Tanh()], input_shape=(4,), dtype="float64")
    X = np.linspace(-1, 1, 8).reshape(2, 4)
    y = model.forward(X, training=True)
    expected = model.backward(np.ones((2, 3)))
    y = model.forward(X, training=True)
    y -= 1
    np.testing.assert_array_equal(model.backward(np.ones((2, 3))), expected)


def test_weights_may_be_views_of_each_other_but_must_fit():
    model = Sequential([Dense(3), Dense(3)], input_shape=(3,))
    one, two = model.state_dict()["0.weight"], model.state_dict()["1.weight"]
    values = {name: param.value for name, param in model.params.items()}
    model.load_state_dict(values | {"0.weight": values["1.weight"], "1.weight": values["0.weight"]})
    np.testing.assert_array_equal([model.params["0.weight"].value, model.params["1.weight"].value], [two, one])
    before = model.state_dict()
    with pytest.raises(ValueError, match=r"state\['1.bias'\]: expected values that float32 can hold"):
        model.load_state_dict(before | {"0.bias": np.ones(3), "1.bias": np.array([0, 1e39, 0])})
    assert all(np.array_equal(before[name], value) for name, value in model.state_dict().items())


def test_a_read_only_parameter_is_refused_before_any_is_written(model):
    state, before = {name: value + 1 for name, value in model.state_dict().items()}, model.state_dict()
    locked = list(model.params)[-1]
    model.params[locked].value.flags.writeable = False
    with pytest.raises(ValueError, match=rf"expected parameters that can be written, {locked} are read-only"):
        model.load_state_dict(state)
    assert all(np.array_equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_list_given_to_a_layer_may_change_later(rng, tmp_path):
    dilation = [1, 1]
    model = Sequential([Conv2D(2, [3, 3], padding="same", dilation=dilation)], input_shape=(1, 6, 6))
    x, dilation[0] = rng.standard_normal((3, 1, 6, 6)), 2
    model.save(tmp_path / "model")
    for same in (copy.deepcopy(model), model[:], Sequential.load(tmp_path / "model")):
        assert np.array_equal(same.predict(x), model.predict(x))


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (99, IndexError, r"model\[99\]: expected an index from -2 to 1, got 99"),
        (-3, IndexError, r"model\[-3\]: expected an index from -2 to 1"),
        ("conv", ValueError, r"model\['conv'\]: expected a model that ends with Outputs, got "),
        (1.0, TypeError, r"model\[1.0\]: expected an index"),
        ((0, 1), TypeError, r"model\[\(0, 1\)\]: expected an index"),
    ],
)
def test_indices_without_a_layer_are_refused(index, error, message):
    model = Sequential([Dense(3), ReLU()], (4,))
    with pytest.raises(error, match=message):
        model[index]
    assert [type(layer) for layer in model] == [Dense, ReLU]  # which indexes until there is an IndexError
    assert model[np.int64(1)] is model[1] is model[-1]
