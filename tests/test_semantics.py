"""The table of docs/reference/semantics.md, line by line, on whole models. Expected values come from NumPy."""

import numpy as np
import pytest
import reference

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, MaxPool2D, ReLU, Rescale
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD

DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
LOSSES = pytest.mark.parametrize(  # the same loss, in C and in Python
    "loss", ["softmax_cross_entropy", lambda s, y: softmax_cross_entropy(s, y)], ids=["C", "Python"]
)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 1, 6, 6)), RNG.integers(0, 3, 50)
KEEP = np.flatnonzero(RNG.random(50) < 0.6)


def make_net(dtype="float32", first_layers=()):
    layers = [*first_layers, Conv2D(3, 3), ReLU(), MaxPool2D(2), Flatten(), Dense(3)]
    return Sequential(layers, input_shape=(1, 6, 6), dtype=dtype)


def make_trainer(model, loss="softmax_cross_entropy"):
    return Trainer(model, loss, SGD(0.1, momentum=0.9), ["accuracy"])


def full_state(trainer, history):
    """Returns weights, gradients and history without timings, as bytes."""
    params = trainer.model.params
    arrays = {name: (p.value.tobytes(), p.grad.tobytes()) for name, p in params.items()}
    return arrays, {name: v for name, v in history.items() if name != "images_per_second"}


# ---- gradient and loss of a batch
@DTYPES
def test_one_division_by_the_number_of_examples_after_the_reduction(dtype):
    """In float32 only this order of operations gives these bits."""
    w = RNG.uniform(0, 2, 50).astype(dtype)
    model, trainer = make_net(dtype), make_trainer(make_net(dtype))
    losses, dscores = softmax_cross_entropy(model.forward(X, training=True), Y)
    model.backward(w[:, None] * dscores)
    loss = trainer.train_batch(X, Y, sample_weight=w)
    assert loss == pytest.approx((w.astype("f8") * losses).sum() / w.astype("f8").sum(), rel=1e-12)
    for name, param in model.params.items():
        divided = param.grad / param.grad.dtype.type(50)
        assert divided.tobytes() == trainer.model.params[name].grad.tobytes(), name


@DTYPES
@LOSSES
def test_weights_of_one_equal_no_weights(loss, dtype):
    result = []
    for weight in (None, np.ones(50), [1] * 50, np.ones(50, bool)):
        trainer = make_trainer(make_net(dtype), loss)
        result.append(full_state(trainer, trainer.fit(X, Y, 3, batch_size=16, sample_weight=weight, verbose=0)))
    assert result[0] == result[1] == result[2] == result[3]


@DTYPES
@pytest.mark.parametrize("split", [0.0, 0.3])
@LOSSES
def test_a_weight_of_zero_removes_a_row(loss, split, dtype):
    one, other = make_trainer(make_net(dtype), loss), make_trainer(make_net(dtype), loss)
    weight = np.zeros(50)
    weight[KEEP] = RNG.uniform(0.5, 2, len(KEEP))
    options = {"epochs": 3, "batch_size": 8, "validation_split": split, "verbose": 0}
    with_zeros = one.fit(X, Y, sample_weight=weight, **options)
    without = other.fit(X[KEEP], Y[KEEP], sample_weight=weight[KEEP], **options)
    assert full_state(one, with_zeros) == full_state(other, without)
    assert one.step == other.step
    assert one.evaluate(X, Y, weight) == other.evaluate(X[KEEP], Y[KEEP], weight[KEEP])
    assert one.train_batch(X, Y, weight) == other.train_batch(X[KEEP], Y[KEEP], weight[KEEP])


def test_a_weight_of_two_repeats_a_row():
    one, other = make_trainer(make_net("float64")), make_trainer(make_net("float64"))
    weight = np.ones(20)
    weight[:4] = 2
    loss = one.fit(X[:20], Y[:20], sample_weight=weight, verbose=0)["loss"]
    twice = np.r_[0:4, 0:20]
    assert loss == pytest.approx(other.fit(X[twice], Y[twice], verbose=0)["loss"], rel=1e-12)
    for name, param in one.model.params.items():
        np.testing.assert_allclose(param.value, other.model.params[name].value, rtol=1e-11)


def test_class_weights_multiply_sample_weights():
    by_class, sample = {0: 0.5, 2: 3.0}, RNG.uniform(0.5, 2, 50)
    expected = np.array([by_class.get(label, 1.0) for label in Y])
    balanced = len(Y) / (3 * np.bincount(Y))[Y]
    for class_weight, given, weight in (
        (by_class, None, expected),
        (by_class, sample, expected * sample),
        ("balanced", None, balanced),
        ({1: 0}, None, (Y != 1).astype(float)),
    ):
        one, other = make_trainer(make_net()), make_trainer(make_net())
        a = one.fit(X, Y, 2, batch_size=16, class_weight=class_weight, sample_weight=given, verbose=0)
        b = other.fit(X, Y, 2, batch_size=16, sample_weight=weight, verbose=0)
        assert full_state(one, a) == full_state(other, b)


def test_an_epochs_loss_weights_its_batches():
    """Batches of 20, 20 and 10 of unequal weight; a rate of 0 leaves the model unchanged."""
    model, weight = make_net("float64"), RNG.uniform(0, 3, 50)
    losses = reference.softmax_cross_entropy_forward(model.predict(X), Y)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.0))
    assert trainer.fit(X, Y, 1, batch_size=20, verbose=0)["loss"][-1] == pytest.approx(losses.mean(), rel=1e-12)
    history = trainer.fit(X, Y, 1, batch_size=20, sample_weight=weight, verbose=0)
    expected = (weight * losses).sum() / weight.sum()
    assert history["loss"][-1] == pytest.approx(expected, rel=1e-12)


# ---- values in X
@DTYPES
def test_values_in_x_are_not_rescaled(dtype):
    model = Sequential([Dense(1)], input_shape=(2,), dtype=dtype)
    model.params["0.weight"].value = [[1, 2]]
    for kind in ("uint8", "int16", "float16", "float32", "float64"):
        np.testing.assert_array_equal(model.predict(np.array([[200, 20]], kind)), [[240]])


# ---- max-pooling: per example, ties, NaN, -inf
@DTYPES
def test_each_example_routes_its_gradient_to_its_own_maximum(dtype):
    """The question that started the project: every example chose a different maximum."""
    n = 20
    x = np.zeros((n, 1, 2, 2))
    winner = np.arange(n) % 4
    x.reshape(n, 4)[np.arange(n), winner] = 1 + np.arange(n)
    model = Sequential([MaxPool2D(2), Flatten(), Dense(1)], input_shape=(1, 2, 2), dtype=dtype)
    model.params["2.weight"].value = [[2]]
    dy = np.arange(1, n + 1.0)[:, None]
    model.forward(x, training=True)
    dx = model.backward(dy)
    expected = np.zeros((n, 4))
    expected[np.arange(n), winner] = 2 * dy[:, 0]
    np.testing.assert_array_equal(dx.reshape(n, 4), expected)
    highest = x.max(axis=(1, 2, 3))
    np.testing.assert_array_equal(model.params["2.weight"].grad, [[highest @ dy[:, 0]]])


@DTYPES
def test_the_first_maximum_of_a_tie_takes_all_and_overlaps_add_up(dtype):
    model = Sequential([MaxPool2D(2, stride=1)], input_shape=(1, 3, 3), dtype=dtype)
    x = np.array([[[[1, 5, 5], [5, 1, 1], [5, 5, 0]]]])
    model.forward(x, training=True)
    dx = model.backward(np.array([[[[1, 10], [100, 1000]]]]))
    np.testing.assert_array_equal(dx, [[[[0, 11, 0], [100, 0, 0], [0, 1000, 0]]]])


@DTYPES
def test_nan_wins_and_windows_of_minus_infinity_keep_an_index(dtype):
    """X must be finite, so a convolution with weight 1 introduces them through its bias."""
    for bias, expected in ((np.nan, np.nan), (-np.inf, -np.inf)):
        model = Sequential([Conv2D(1, 1), MaxPool2D(2, padding=1)], input_shape=(1, 4, 4), dtype=dtype)
        model.params["0.bias"].value = [bias]
        y = model.forward(np.ones((17, 1, 4, 4)), training=True)
        np.testing.assert_array_equal(y, np.full((17, 1, 3, 3), expected))  # padding never wins
        model.backward(np.ones(y.shape))
        assert model.params["0.bias"].grad == [17 * 9]  # every gradient arrives inside


def test_pool_padding_is_at_most_half_the_window():
    with pytest.raises(ValueError, match=r"layer 0, MaxPool2D.*at most half"):
        Sequential([MaxPool2D(3, padding=2)], input_shape=(1, 6, 6))


# ---- other layers, the loss, the optimizer
@DTYPES
def test_relu_has_zero_gradient_at_zero_and_fusion_with_a_pool_changes_no_bit(dtype):
    """Alone or next to other layers, fused or not: the same bits."""
    separate = make_net(dtype).layers
    model, x = make_net(dtype), X.astype(dtype)
    x[:, :, :3] = 0
    expected = x
    for layer in separate:
        alone = Sequential([type(layer)(**layer.config())], expected.shape[1:], dtype=dtype)
        for name, param in layer.params.items():
            alone.params[f"0.{name}"].value = param.value
        expected = alone.predict(expected)
    assert model.predict(x).tobytes() == expected.tobytes()
    relu = Sequential([ReLU()], input_shape=(3,), dtype=dtype)
    relu.forward([[0, -0.0, 1]], training=True)
    np.testing.assert_array_equal(relu.backward([[7, 7, 7]]), [[0, 0, 7]])


@DTYPES
def test_convolution_is_cross_correlation_with_zero_padding(dtype):
    model = Sequential([Conv2D(1, (1, 3), padding=(0, 1))], input_shape=(1, 1, 4), dtype=dtype)
    model.params["0.weight"].value = [[[[1, 10, 100]]]]
    np.testing.assert_array_equal(model.predict([[1, 2, 3, 4]]), [[[[210, 321, 432, 43]]]])


@DTYPES
def test_softmax_cross_entropy_is_finite_for_huge_logits(dtype):
    model = Sequential([Rescale(1e4)], input_shape=(2,), dtype=dtype)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    x = np.array([[1, -1], [1, -1]])
    assert trainer.evaluate(x, [0, 0])["loss"] == 0
    assert trainer.train_batch(x, [0, 1]) == 1e4
    np.testing.assert_array_equal(model.predict_proba(x), [[1, 0], [1, 0]])


@pytest.mark.parametrize("name", ["0.weight", "4.weight"])
def test_initial_weights_are_damped_he_uniform_with_zero_bias(name):
    params = make_net().params
    outputs, inputs = params[name].value.shape[0], np.prod(params[name].value.shape[1:])
    variance = 2 / inputs * {"0.weight": 1, "4.weight": np.sqrt(outputs / inputs)}[name]  # the first one widens
    assert np.abs(params[name].value).max() <= np.sqrt(3 * variance)
    assert params[name].value.std() == pytest.approx(np.sqrt(variance), rel=0.4)
    assert not params[name.replace("weight", "bias")].value.any()


def test_the_last_partial_batch_counts_like_any_other():
    """33 examples in batches of 16: three steps, the last with a single example."""
    one, other = make_trainer(make_net("float64")), make_trainer(make_net("float64"))
    one.fit(X[:33], Y[:33], 1, batch_size=16, shuffle=False, verbose=0)
    for rows in (slice(0, 16), slice(16, 32), slice(32, 33)):
        other.train_batch(X[rows], Y[rows])
    assert one.step == 3
    for name, param in one.model.params.items():
        assert param.value.tobytes() == other.model.params[name].value.tobytes()


def test_averaging_activations_first_gives_a_different_gradient():
    """The mean of products is not the product of means: hence activations are kept per example."""
    x, dy = np.array([[1.0], [3.0]]), np.array([[2.0], [-2.0]])
    model = Sequential([Dense(1)], input_shape=(1,), dtype="float64")
    model.forward(x, training=True)
    model.backward(dy)
    np.testing.assert_array_equal(model.params["0.weight"].grad, [[-4]])
    assert (x.mean() * dy.mean() * 2) == 0


@DTYPES
def test_a_model_has_one_dtype_throughout(dtype):
    model = make_net(dtype, first_layers=[Rescale(0.5)])
    trainer = make_trainer(model)
    trainer.train_batch(X.astype("float64" if dtype == "float32" else "float32"), Y)
    arrays = [model.predict(X), model.predict_proba(X), model.forward(X, training=True)]
    arrays += [model.backward(np.ones((50, 3))), *model.state_dict().values()]
    arrays += [param.grad for param in model.params.values()]
    assert {str(array.dtype) for array in arrays} == {dtype}
