"""Outputs: several outputs of one model, by name. Training with a loss for each: tests/training/test_outputs.py."""

import pickle

import numpy as np
import pytest

from minidl import Layer, Sequential
from minidl.layers import (
    BatchNorm1D,
    BatchNorm2D,
    Block,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    Outputs,
    Parallel,
    ReLU,
    Residual,
)
from minidl.testing import check_layer

SHAPE = (3, 5, 4)
DTYPES = ("float32", "float64")


class Double(Layer):
    """A layer in NumPy: the model is then no single plan."""

    def forward(self, x, training):
        return 2 * x

    def backward(self, dy):
        return 2 * dy


def outputs(extra=()):
    return Outputs(
        policy=[*extra, GlobalAvgPool2D(), Dense(5)], mask=Conv2D(2, 3, padding=1), value=[Flatten(), Dense(1)], seen=[]
    )


def make(dtype="float32", extra=()):
    return Sequential([Conv2D(6, 3, padding=1), ReLU(), outputs(extra)], SHAPE, seed=4, dtype=dtype)


def draw(n, dtype="float32"):
    return np.random.default_rng(n).standard_normal((n, *SHAPE)).astype(dtype)


def same(a, b):
    return a.keys() == b.keys() and all(
        np.array_equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a
    )


def test_shapes_and_names():
    model = make()
    assert model.output_shape == {"policy": (5,), "mask": (2, 5, 4), "value": (1,), "seen": (6, 5, 4)}
    assert model.output_names == ("policy", "mask", "value", "seen")
    assert {name: array.shape[1:] for name, array in model.predict(draw(2)).items()} == model.output_shape
    assert list(model.params)[2:4] == ["2.policy.1.weight", "2.policy.1.bias"]
    assert "2.mask.0 Conv2D" in str(model.summary()) and "(value.1): Dense" in repr(model)
    assert model[:-1].output_names == () and model[:-1].output_shape == (6, 5, 4)


@pytest.mark.parametrize("extra", [(), (Double,)], ids=["kernels", "numpy"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_output_is_that_of_its_branch_alone(dtype, extra):
    model = make(dtype, [layer() for layer in extra])
    for n in (1, 15, 16, 17, 33):
        x = draw(n, dtype)
        together = model.predict(x)
        assert same(together, model.forward(x)) and all(array.flags.owndata for array in together.values())
        for name, array in together.items():
            assert np.array_equal(model[name].predict(x), array), name
        assert same(model[["value", "mask"]].predict(x), {name: together[name] for name in ("mask", "value")})
        for i in (0, n - 1):
            assert same(model.predict(x[i : i + 1]), {name: array[i : i + 1] for name, array in together.items()})
        for threads in (1, 2, 3, 8):
            assert same(model.predict(x, num_threads=threads), together)


@pytest.mark.parametrize("branch", [Conv2D(2, 1), [], [Flatten(), Dense(3)]], ids=["image", "input", "vector"])
def test_keeps_the_contract(branch):
    check_layer(Outputs(only=branch), SHAPE)
    check_layer(Outputs(first=[BatchNorm2D(), Dropout(0.5)], second=branch), SHAPE, couples_examples=True)


def test_copies_and_files(tmp_path):
    model, x = make(extra=[BatchNorm2D()]), draw(9)
    model.layers[-1].lr_mult, model.layers[-1].branches["mask"][0].trainable = 0.5, False
    model.forward(x, training=True)
    model.save(tmp_path / "model.safetensors")
    for copy in (model[:], pickle.loads(pickle.dumps(model)), Sequential.load(tmp_path / "model.safetensors")):
        assert same(copy.predict(x), model.predict(x)) and copy.output_names == model.output_names
        assert copy.layers[-1].settings == model.layers[-1].settings
    alone = model[["mask"]]
    assert same(alone.predict(x), {"mask": model.predict(x)["mask"]}) and alone.layers[-1].lr_mult == 0.5
    assert not alone.layers[-1].branches["mask"][0].trainable and model["mask"].layers[-1].lr_mult == 0.5
    alone.params["2.mask.0.weight"].value[...] = 0  # a copy
    assert model.params["2.mask.0.weight"].value.any()


def test_any_name_will_do_but_those_of_the_history(tmp_path):
    model = Sequential([Outputs(**{"wind speed": Dense(1), "self": Dense(2), "branches": Dense(3)})], (4,))
    assert model.output_shape == {"wind speed": (1,), "self": (2,), "branches": (3,)}
    model.save(tmp_path / "model.safetensors")
    assert same(Sequential.load(tmp_path / "model.safetensors").predict(np.eye(4)), model.predict(np.eye(4)))
    for name in ("", "a.b", "val", "val_loss"):
        with pytest.raises(ValueError, match="outputs: expected a name"):
            Outputs(**{name: Dense(1)})
    with pytest.raises(ValueError, match="outputs: expected 1 to 256, got 0"):
        Outputs()
    with pytest.raises(TypeError, match="value: expected Layer objects, got 3"):
        Outputs(value=3)


def test_it_ends_a_model():
    with pytest.raises(ValueError, match="layer 0, Outputs: expected it as the last layer of a model"):
        Sequential([outputs(), ReLU()])
    nests = (Block, Residual, Parallel, lambda inner: Outputs(a=inner))
    for nest in (*(lambda nest=nest: nest(outputs()) for nest in nests), lambda: Sequential([make(), ReLU()])):
        with pytest.raises(ValueError, match="expected Outputs as the last layer of a model"):
            nest()


def test_slices_refuse_other_names():
    for place in ("speed", ["value", "speed"]):
        with pytest.raises(
            ValueError, match="outputs: expected names of the outputs policy, mask, value, seen, got 'speed'"
        ):
            make()[place]
    with pytest.raises(ValueError, match=r"model\['value'\]: expected a model that ends with Outputs, got ReLU"):
        make()[:2]["value"]
    unbuilt = Sequential([Outputs(a=Dense(2), b=Dense(3))])
    assert unbuilt["b"].layers[0].units == 3 and unbuilt.output_names == ("a", "b")


@pytest.mark.oracle
@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
def test_gradients_by_hand_are_those_of_pytorch(n):
    import torch

    model, x = make("float64"), draw(n, "float64")
    y = model.forward(x, training=True)
    rng = np.random.default_rng(7)
    dy = {name: rng.standard_normal(array.shape) for name, array in y.items()}
    leaf = torch.tensor(x, requires_grad=True)
    p = {name: torch.tensor(param.value, requires_grad=True) for name, param in model.params.items()}
    conv = torch.nn.functional.conv2d
    body = conv(leaf, p["0.weight"], p["0.bias"], padding=1).relu()
    found = {
        "policy": body.mean((2, 3)) @ p["2.policy.1.weight"].T + p["2.policy.1.bias"],
        "mask": conv(body, p["2.mask.0.weight"], p["2.mask.0.bias"], padding=1),
        "value": body.flatten(1) @ p["2.value.1.weight"].T + p["2.value.1.bias"],
        "seen": body,
    }
    for given in (dy, {"mask": dy["mask"]}):  # a missing one is zero
        dx = model.backward(given)
        total = sum((found[name] * torch.tensor(gradient)).sum() for name, gradient in given.items())
        gradients = torch.autograd.grad(total, [leaf, *p.values()], retain_graph=True, allow_unused=True)
        for ours, theirs in zip([dx, *(param.grad for param in model.params.values())], gradients, strict=True):
            np.testing.assert_allclose(ours, np.zeros_like(ours) if theirs is None else theirs, rtol=1e-10, atol=1e-12)


def test_invalid_gradients_are_refused():
    model = make()
    with pytest.raises(RuntimeError, match="expected a forward"):
        model.backward({})
    model.forward(draw(3), training=True)
    for dy, message in (
        (np.zeros((3, 5)), "dy: expected a dict of arrays for the outputs policy, mask, value, seen, got ndarray"),
        ({"speed": np.zeros((3, 5))}, "dy: expected names of the outputs .*, got 'speed'"),
        ({"value": np.zeros(3)}, r"dy: output 'value': expected shape \(3, 1\), got \(3,\)"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            model.backward(dy)


def test_an_argument_chooses_the_output():
    model, x = make("float64"), draw(6, "float64")
    policy, value = model["policy"], model["value"]
    assert np.array_equal(model.predict_proba(x, output="policy"), policy.predict_proba(x))
    assert np.array_equal(model.input_gradient(x, y=2, output="policy"), policy.input_gradient(x, y=2))
    assert np.array_equal(model.input_gradient(x, output="policy"), policy.input_gradient(x))
    squares = {"y": np.zeros(6), "loss": "mean_squared_error"}
    assert np.array_equal(model.input_gradient(x, output="value", **squares), value.input_gradient(x, **squares))
    ones = np.ones((6, 1))
    expected = value.input_gradient(x, dscores=ones)
    assert np.allclose(model.input_gradient(x, dscores={"value": ones}), expected, rtol=1e-12)
    assert np.array_equal(model.input_gradient(x, dscores=ones, output="value"), expected)
    both = model.input_gradient(x, dscores={"value": ones, "policy": np.ones((6, 5))})
    assert np.allclose(both, expected + policy.input_gradient(x, dscores=np.ones((6, 5))), rtol=1e-10, atol=1e-12)
    for call, got in ((model.predict_proba, None), (model.input_gradient, None), (policy.predict_proba, "policy")):
        for output in (got, "speed"):
            with pytest.raises(ValueError, match=f"output: expected .*, got {output!r}"):
                call(x, output=output)
    with pytest.raises(ValueError, match=r"predict_proba: expected a model with outputs \(classes,\)"):
        model.predict_proba(x, output="mask")


def test_few_examples_have_the_bits_of_many():
    """A batch of one has the blocked layout, one of 33 has tiles."""
    layers = [Dense(40), ReLU(), Outputs(a=[Dense(20), BatchNorm1D(), ReLU(), Dense(7)], b=[], c=Dense(33))]
    model, x = Sequential(layers, (30,), seed=1), np.random.default_rng(0).standard_normal((33, 30))
    whole = model.predict(x)
    for n in (1, 2, 5):
        assert same(model.predict(x[:n]), {name: array[:n] for name, array in whole.items()})
