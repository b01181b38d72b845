"""Dropout: a mask is a function of seed, layer path, step, example id and element, for any way of training."""

import copy

import numpy as np
import pytest
import reference as ref

from minidl import Layer, Sequential, Trainer
from minidl.engine.flat_parameters import FlatParameters
from minidl.engine.network import Network
from minidl.layers import Conv2D, Dense, Dropout, Dropout2D, Flatten, ReLU, Residual, StochasticDepth
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD
from minidl.testing import check_layer

DTYPES = ("float32", "float64")
N = 90
NUMBERED = np.arange(N)  # labels that identify their row


def mask(n, shape, rate, group=1, **what):
    """Returns True where a value is kept, from the reference."""
    kept = ref.dropout(np.ones((n, int(np.prod(shape)))), rate, group, rows=range(n), **what) != 0
    return kept.reshape(n, *shape)


def make_classifier(dtype="float32", rate=0.5, seed=0):
    layers = [Conv2D(4, 3), ReLU(), Dropout(rate), Flatten(), Dense(20), ReLU(), Dropout(rate), Dense(10)]
    return Sequential(layers, input_shape=(1, 8, 8), dtype=dtype, seed=seed)


def weights_after(X, y, seed=0, rate=0.5, **options):
    trainer = Trainer(make_classifier(rate=rate), "softmax_cross_entropy", SGD(0.05, momentum=0.9), seed=seed)
    trainer.fit(X, y, epochs=3, batch_size=17, verbose=0, **options)
    return b"".join(array.tobytes() for array in trainer.model.state_dict().values())


@pytest.fixture
def digits(rng):
    return rng.random((N, 1, 8, 8)).astype("f4"), rng.integers(0, 10, N)


@pytest.mark.parametrize(("rate", "shape"), [(0.3, (7,)), (0.5, (2, 3, 4)), (0.9, (5, 3))])
def test_it_keeps_the_contract(rate, shape):
    check_layer(Dropout(rate), shape)


# ---- by hand -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (3, 3)])
@pytest.mark.parametrize("n", [0, 1, 17])
def test_agrees_with_numpy(n, shape, dtype, rng):
    """Each training forward by hand is a new step; backward uses the mask of its forward."""
    model = Sequential([Dropout(0.3)], input_shape=shape, dtype=dtype, seed=4)
    x, dy = (rng.normal(size=(n, *shape)).astype(dtype) for _ in range(2))
    for step in range(3):
        kept, scale = mask(n, shape, 0.3, seed=4, step=step, path="0"), np.dtype(dtype).type(1 / 0.7)
        np.testing.assert_array_equal(model.forward(x, training=True), np.where(kept, x * scale, 0))
        np.testing.assert_array_equal(model.backward(dy), np.where(kept, dy * scale, 0))
    assert model.params == {} and model.output_shape == shape


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (18, 2, 2), (3, 3)])
@pytest.mark.parametrize("layer", [Dropout2D, StochasticDepth])
def test_channels_and_examples_agree_with_numpy(layer, shape, dtype, rng):
    group = int(np.prod(shape[1:] if layer is Dropout2D else shape))
    model = Sequential([layer(0.3)], input_shape=shape, dtype=dtype, seed=4)
    for step, n in enumerate((1, 3, 17)):
        x, dy = (rng.normal(size=(n, *shape)).astype(dtype) for _ in range(2))
        kept, scale = mask(n, shape, 0.3, group, seed=4, step=step, path="0"), np.dtype(dtype).type(1 / 0.7)
        np.testing.assert_array_equal(model.forward(x, training=True), np.where(kept, x * scale, 0))
        np.testing.assert_array_equal(model.backward(dy), np.where(kept, dy * scale, 0))
        assert model.predict(x).tobytes() == x.tobytes()
    together = kept.reshape(n, -1, group)
    assert (together.all(axis=2) == together.any(axis=2)).all() and kept.any() and not kept.all()


@pytest.mark.parametrize("n", [1, 2, 33])
def test_a_residual_skips_its_body_for_some_examples(n, rng):
    """An example gets the shortcut's output, or twice the body's added to it; only then the body gets its gradient."""
    x, dy = rng.normal(size=(n, 3, 5, 4)), rng.normal(size=(n, 2, 5, 4))
    body, shortcut = Conv2D(2, 3, padding=1), Conv2D(2, 1, use_bias=False)
    model = Sequential([Residual(body, StochasticDepth(0.5), shortcut=shortcut)], (3, 5, 4), dtype="float64", seed=2)
    kept = mask(n, (2, 5, 4), 0.5, 40, seed=2, path="0.body.1")
    weight, pointwise = (model.params[f"0.{name}.0.weight"].value for name in ("body", "shortcut"))
    plain = Sequential([Conv2D(2, 3, padding=1)], (3, 5, 4), dtype="float64")
    plain.params["0.weight"].value = weight
    added, passed = plain.forward(x, training=True), np.einsum("fc,nchw->nfhw", pointwise[:, :, 0, 0], x)
    np.testing.assert_allclose(model.forward(x, training=True), passed + np.where(kept, 2 * added, 0), rtol=1e-12)
    model.backward(dy)
    plain.backward(np.where(kept, 2 * dy, 0))
    grads = (net.params[name].grad for net, name in ((model, "0.body.0.weight"), (plain, "0.weight")))
    np.testing.assert_allclose(*grads, rtol=1e-10, atol=1e-12)


def test_gradients_of_other_layers_see_the_mask(rng):
    """y = (x w' + b) * m: dw = (m dy)' x, and two dropouts of one net differ."""
    model = Sequential([Dropout(0.2), Dense(6), Dropout(0.5)], input_shape=(4,), dtype="float64")
    x, dy = rng.normal(size=(33, 4)), rng.normal(size=(33, 6))
    preceding, back = mask(33, (4,), 0.2, path="0") / 0.8, mask(33, (6,), 0.5, path="2") / 0.5
    weight = model.params["1.weight"]
    np.testing.assert_allclose(model.forward(x, training=True), x * preceding @ weight.value.T * back, rtol=1e-12)
    dx = model.backward(dy)
    np.testing.assert_allclose(weight.grad, (dy * back).T @ (x * preceding), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dx, dy * back @ weight.value * preceding, rtol=1e-10, atol=1e-12)


def test_two_of_them_in_a_net_differ():
    model = Sequential([Dropout(0.5), Dropout(0.5)], input_shape=(1000,))
    kept = (model.forward(np.ones((16, 1000)), training=True) != 0).mean()
    assert abs(kept - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 16000)


def test_the_path_inside_a_container_counts():
    layer, x = Dropout(0.5), np.ones((20, 9))
    layer.setup((9,), "float64", 0, "3.body.0")
    y, _ = Network([layer], ["Dropout"], FlatParameters([layer], "float64")).forward(x, seed=8, step=2)
    assert np.array_equal(y != 0, mask(20, (9,), 0.5, seed=8, step=2, path="3.body.0"))


def test_a_copy_drops_the_same_values(rng):
    model, x = make_classifier(), rng.random((20, 1, 8, 8))
    assert np.array_equal(model.forward(x, training=True), copy.deepcopy(model).forward(x, training=True))


def test_a_rate_of_zero_changes_nothing(digits):
    without = [layer for layer in make_classifier().layers if not isinstance(layer, Dropout)]
    plain = Sequential([type(layer)(**layer.config()) for layer in without], input_shape=(1, 8, 8))
    model = make_classifier(rate=0)
    for ours, theirs in zip(model.params.values(), plain.params.values(), strict=True):
        ours.value = theirs.value
    x = digits[0]
    assert np.array_equal(model.forward(x, training=True), plain.forward(x, training=True))
    assert np.array_equal(model.backward(np.ones((N, 10))), plain.backward(np.ones((N, 10))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_inference_is_the_identity(dtype, rng):
    x = rng.normal(size=(33, 2, 3)).astype(dtype)
    model = Sequential([Dropout(0.9), Dropout(0.5)], input_shape=(2, 3), dtype=dtype)
    assert model.predict(x).tobytes() == model.forward(x).tobytes() == x.tobytes()


# ---- in training -------------------------------------------------------------------------------------
class Identity(Layer):
    """A NumPy identity layer, with which steps run segment by segment."""

    def forward(self, x, training):
        return x.copy()

    def backward(self, dy):
        return dy


class ScoreRecorder:
    """A metric that records labels and scores of every epoch, in step order."""

    __name__ = "watch"

    def __init__(self):
        self.seen = []

    def __call__(self, y, scores):
        self.seen.append((np.array(y), np.array(scores)))
        return 0.0


def python_loss(scores, y):
    return softmax_cross_entropy(scores, y)


WAYS = {  # name -> (preceding layers, loss, dtype and layout of X)
    "fused": ([], "softmax_cross_entropy", lambda X: X),
    "fused, float64": ([], "softmax_cross_entropy", lambda X: X.astype("f8")),
    "fused, converted": ([], "softmax_cross_entropy", lambda X: X.astype("i2")),
    "fused, strided": ([], "softmax_cross_entropy", lambda X: np.asfortranarray(X)),
    "segmented": ([Identity], "softmax_cross_entropy", lambda X: X),
    "segmented, converted": ([Identity], "softmax_cross_entropy", lambda X: X.astype(">f8")),
    "Python loss": ([], python_loss, lambda X: X),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch_size", [1, 16, 23, N])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_mask_belongs_to_the_example_however_it_reaches_a_step(way, batch_size, shuffle):
    """Labels identify rows; inputs are ones, and the dense layer, hardly changed, passes them on."""
    preceding, loss, made = WAYS[way]
    watch, dtype = ScoreRecorder(), "float32"
    model = Sequential([*(layer() for layer in preceding), Dense(N), Dropout(0.4)], input_shape=(2,), dtype=dtype)
    weight, bias = model.params.values()
    weight.value, bias.value = np.zeros(weight.value.shape), np.ones(N)
    trainer = Trainer(model, loss, SGD(1e-30), [watch], seed=3)
    trainer.fit(made(np.ones((N, 2), dtype)), NUMBERED, epochs=2, batch_size=batch_size, shuffle=shuffle, verbose=0)
    assert len(watch.seen) == 2
    steps = -(-N // batch_size)
    for epoch, (rows, scores) in enumerate(watch.seen):
        assert np.array_equal(np.sort(rows), NUMBERED)
        assert np.array_equal(rows, NUMBERED) is not shuffle
        for k in range(steps):
            batch = slice(k * batch_size, (k + 1) * batch_size)
            what = {"rows": rows[batch], "seed": 3, "step": epoch * steps + k, "path": str(len(preceding) + 1)}
            expected = ref.dropout(np.ones((len(rows[batch]), N), dtype), 0.4, **what)
            assert scores[batch].tobytes() == expected.tobytes()


def test_fit_is_reproducible(digits):
    first = weights_after(*digits)
    assert weights_after(*digits) == first
    assert weights_after(*digits, seed=1, shuffle=False) != weights_after(*digits, shuffle=False)  # only masks differ
    assert weights_after(*digits, rate=0.4) != first


def test_evaluate_drops_nothing(digits):
    trainer = Trainer(make_classifier(), "softmax_cross_entropy", SGD(0.1))
    by_hand = softmax_cross_entropy(trainer.model.predict(digits[0]), digits[1])[0].mean(dtype="f8")
    assert trainer.evaluate(*digits)["loss"] == pytest.approx(by_hand, rel=1e-6)


# ---- arguments ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rate", "error", "message"),
    [
        (1, ValueError, "rate: expected at least 0 and less than 1 .*, got 1"),
        (1.5, ValueError, "rate.*got 1.5"),
        (-0.1, ValueError, "rate.*got -0.1"),
        (1 - 2**-40, ValueError, r"rate.*at most 1 - 2\*\*-32"),
        (np.nan, ValueError, "rate.*got nan"),
        (None, TypeError, "rate: expected a number, got None"),
        ("0.5", TypeError, "rate.*'0.5'"),
        (True, TypeError, "rate.*True"),
    ],
)
@pytest.mark.parametrize("layer", [Dropout, Dropout2D, StochasticDepth])
def test_invalid_rates(layer, rate, error, message):
    with pytest.raises(error, match=rf"layer 1, {layer.__name__}, .*{message}"):
        Sequential([ReLU(), layer(rate)], input_shape=(4,))


def test_repr():
    model = Sequential([Dropout(0.25)], input_shape=(4,))
    assert repr(model[0]) == "Dropout(rate=0.25)"
    assert "0 Dropout(rate=0.25)" in str(model.summary())
