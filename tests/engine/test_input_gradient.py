"""Sequential.input_gradient: the gradient of each example in inference mode, without a trace in the model."""

import threading

import numpy as np
import pytest
import scipy.sparse

from minidl import Layer, Sequential, Trainer
from minidl.engine import input_gradient as module
from minidl.layers import (
    BatchNorm2D,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool2D,
    MaxPool2D,
    Parallel,
    RandomCrop,
    RandomFlip,
    RandomShift,
    ReLU,
    Rescale,
    Residual,
    Tanh,
)
from minidl.losses import softmax_cross_entropy
from minidl.optimizers import SGD

SHAPE, CLASSES = (2, 9, 8), 4
BATCHES = (0, 1, 15, 16, 17, 33)


class Scaled(Layer):
    """A NumPy layer with a parameter, and a buffer that training changes."""

    def build(self, in_shape):
        self.param("weight", in_shape, lambda rng, shape: 1 + rng.random(shape))
        self.seen = self.buffer("seen", (1,), lambda rng, shape: np.zeros(shape))
        return in_shape

    def forward(self, x, training):
        if training:
            self.x = x
            self.seen += len(x)
        return x * self.params["weight"].value

    def backward(self, dy):
        self.params["weight"].grad = (self.x * dy).sum(axis=0)
        return dy * self.params["weight"].value


class Noise(Layer):
    """A NumPy layer that computes something else in training."""

    def forward(self, x, training):
        return x + self.rng.standard_normal(x.shape).astype(x.dtype) if training else x

    def backward(self, dy):
        return dy


class Locked(Layer):
    """A NumPy layer that cannot be copied."""

    def __init__(self):
        self.lock = threading.Lock()

    def forward(self, x, training):
        return x

    def backward(self, dy):
        return dy


def kernels():
    branches = Parallel([Conv2D(3, 1), Dropout(0.5)], [MaxPool2D(3, 1, padding=1), RandomFlip()])
    body = Residual(Conv2D(6, 3, padding=1), BatchNorm2D(), Dropout(0.5), Tanh())
    return [
        *(Rescale(1 / 255), RandomShift(2), RandomCrop(7), Conv2D(6, 3, padding=1), BatchNorm2D(), ReLU()),
        *(body, branches, Flatten(), Dense(40), Dropout(0.5), Tanh(), Dense(CLASSES)),
    ]


def numpy_layers():
    inner = Residual(Conv2D(4, 1), BatchNorm2D(), Scaled(), ReLU())
    return [Rescale(1 / 255), Conv2D(4, 3), Dropout(0.5), inner, Flatten(), Scaled(), Dense(CLASSES)]


def wide_layers():
    """Dense layers at which threads meet."""
    return [Rescale(1 / 255), Flatten(), Dense(700), ReLU(), Dense(600), Tanh(), Dense(CLASSES)]


NETS = {"kernels": kernels, "numpy": numpy_layers, "wide": wide_layers}


def data(n):
    rng = np.random.default_rng(n)
    return rng.integers(0, 256, (n, *SHAPE), dtype=np.uint8), rng.integers(0, CLASSES, n)


def make_model(net, dtype="float32"):
    """Returns a model with gradients and running statistics of a training step."""
    model = Sequential(NETS[net](), SHAPE, seed=1, dtype=dtype)
    Trainer(model, "softmax_cross_entropy", SGD(0.05)).train_batch(*data(30))
    return model


def traces(model):
    """Returns everything of a model that a gradient could change."""
    arrays = {**model.state_dict(), **{f"{name}, gradient": param.grad for name, param in model.params.items()}}
    return {name: array.tobytes() for name, array in arrays.items()}


@pytest.fixture(params=NETS)
def net(request):
    return request.param


def test_it_is_the_slope_of_the_loss_in_inference(net, rng):
    model, (X, y) = make_model(net, "float64"), data(9)
    gradient = model.input_gradient(X, y, "softmax_cross_entropy")
    assert gradient.shape == X.shape

    def losses(X):
        return softmax_cross_entropy(model.predict(X), y)[0]

    for _ in range(3):
        direction = rng.standard_normal(X.shape)
        difference = (losses(X + 1e-4 * direction) - losses(X - 1e-4 * direction)) / 2e-4
        np.testing.assert_allclose((gradient * direction).sum(axis=(1, 2, 3)), difference, rtol=1e-5, atol=1e-10)


def test_it_is_the_slope_of_a_score(net, rng):
    model, (X, y) = make_model(net, "float64"), data(9)
    direction = rng.standard_normal(X.shape)
    before, after = (model.predict(X + step * direction) for step in (-1e-4, 1e-4))
    slopes = (after - before) / 2e-4
    for labels, given in ((y, y), (np.full(9, 2), 2), (model.predict(X).argmax(axis=1), None)):
        found = (model.input_gradient(X, given) * direction).sum(axis=(1, 2, 3))
        np.testing.assert_allclose(found, slopes[np.arange(9), labels], rtol=1e-5, atol=1e-10)
    weights = rng.standard_normal((9, CLASSES))
    found = (model.input_gradient(X, dscores=weights) * direction).sum(axis=(1, 2, 3))
    np.testing.assert_allclose(found, (weights * slopes).sum(axis=1), rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_has_the_same_bits_in_every_batch_with_any_threads(net, dtype):
    model, (X, y) = make_model(net, dtype), data(40)
    whole = model.input_gradient(X, y, "softmax_cross_entropy", num_threads=1)
    assert whole.dtype == dtype
    for n in BATCHES:
        for threads in (1, 2, 3, 8):
            rows = model.input_gradient(X[:n], y[:n], "softmax_cross_entropy", num_threads=threads)
            assert rows.shape == (n, *SHAPE)
            assert np.array_equal(rows, whole[:n])
    for i in (5, 16, 39):
        assert np.array_equal(model.input_gradient(X[i : i + 1], y[i : i + 1])[0], model.input_gradient(X, y)[i])


def test_any_number_of_rows_goes_through_chunks(net, monkeypatch):
    model, (X, y) = make_model(net), data(70)
    whole, weights = model.input_gradient(X, y), np.arange(70.0 * CLASSES).reshape(70, CLASSES)
    weighted = model.input_gradient(X, dscores=weights)
    monkeypatch.setattr(module, "CHUNK_BYTES", 1)
    assert module._chunk_size(model._in_inference(model.network)) == (1 if net == "numpy" else 16)
    assert np.array_equal(model.input_gradient(X, y), whole)
    assert np.array_equal(model.input_gradient(X, dscores=weights), weighted)
    model.input_gradient(X, y, lambda scores, y: (scores[:, 0], np.zeros_like(scores)))  # sees chunks of both


def test_the_model_is_unchanged(net):
    model, (X, y) = make_model(net), data(20)
    before, steps = traces(model), [layer._step for layer in model.layers]
    model.forward(X, training=True)
    dx = model.backward(np.ones((20, CLASSES)))
    forwarded = traces(model)
    for given in ({"y": y, "loss": "softmax_cross_entropy"}, {"y": y}, {"dscores": np.ones((20, CLASSES))}):
        model.input_gradient(X, **given)
    assert traces(model) == forwarded != before
    assert [layer._step for layer in model.layers] == steps
    if net != "numpy":  # its layers are the tape of a forward by hand
        assert np.array_equal(model.backward(np.ones((20, CLASSES))), dx)
    assert [layer.trainable for layer in model.layers] == [True] * len(model.layers)


def test_training_goes_on_with_the_same_bits(net):
    X, y = data(50)
    results = []
    for looks in (False, True):
        model = make_model(net)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.05, momentum=0.9), seed=2)
        for _ in range(3):
            trainer.fit(X, y, batch_size=20, verbose=0)
            if looks:
                model.input_gradient(X, y)
        results.append(traces(model))
    assert results[0] == results[1]


def test_it_follows_the_weights_and_statistics(net):
    model, (X, y) = make_model(net), data(20)
    first = model.input_gradient(X, y)
    Trainer(model, "softmax_cross_entropy", SGD(0.05)).train_batch(X, y)
    second = model.input_gradient(X, y)
    assert not np.array_equal(second, first)
    assert np.array_equal(second, model[:].input_gradient(X, y))  # a copy, whose plan is new
    for layer in model.layers:
        layer.trainable = False
    assert np.array_equal(model.input_gradient(X, y), second)


def test_without_layers_that_differ_in_training_it_is_that_of_a_backward_by_hand():
    model, (X, y) = make_model("wide"), data(37)
    gradient = model.input_gradient(X, y, "softmax_cross_entropy")
    scores = model.forward(X, training=True)
    assert np.array_equal(gradient, model.backward(softmax_cross_entropy(scores, y)[1]))


def test_kinds_of_input():
    model, (X, y) = make_model("kernels"), data(20)
    expected = model.input_gradient(X, y)
    flat = X.reshape(20, -1)
    for same in (X.astype("f8"), X.astype("i4"), flat.tolist(), X[::-1][::-1], scipy.sparse.csr_array(flat)):
        assert np.array_equal(model.input_gradient(same, y), expected)


def test_losses():
    model, (X, y) = make_model("wide"), data(20)
    expected = model.input_gradient(X, y, "softmax_cross_entropy")
    assert np.array_equal(model.input_gradient(X, y, softmax_cross_entropy), expected)
    names = np.array(list("abcd"))[y]  # targets that only the loss understands
    by_name = model.input_gradient(
        X, names, lambda scores, y: softmax_cross_entropy(scores, np.searchsorted(list("abcd"), y))
    )
    assert np.array_equal(by_name, expected)


def test_outputs_of_other_shapes():
    model = Sequential([Conv2D(3, 3, padding=1), Tanh()], (1, 6, 5), dtype="float64")
    X = np.random.default_rng(0).standard_normal((4, 1, 6, 5))
    targets = np.zeros((4, 3, 6, 5))
    gradient = model.input_gradient(X, targets, "mean_squared_error")
    assert np.allclose(gradient, model.input_gradient(X, dscores=2 * model.predict(X) / 90))
    with pytest.raises(ValueError, match=r"loss: expected a loss, or dscores, for a model with outputs \(3, 6, 5\)"):
        model.input_gradient(X)
    single = Sequential([Conv2D(2, 3), ReLU(), GlobalAvgPool2D(), Dense(1)], (1, 6, 5))
    assert np.array_equal(single.input_gradient(X), single.input_gradient(X, 0))


def test_many_threads_may_call_it(net):
    model, (X, y) = make_model(net), data(40)
    expected, found = model.input_gradient(X, y), [None] * 4
    model._inference = None  # made by several threads at the same time

    def work(k):
        found[k] = [model.input_gradient(X[k:], y[k:], num_threads=1 + k) for _ in range(5)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(gradient, expected[k:]) for k in range(4) for gradient in found[k])


def test_it_is_refused_while_another_thread_trains():
    model, (X, y) = make_model("wide"), data(20)
    errors = []

    def look():
        try:
            model.input_gradient(X, y)
        except RuntimeError as error:
            errors.append(str(error))

    class Callback:
        def on_epoch_end(self, trainer, epoch, logs):
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            trainer.model.input_gradient(X, y)  # the thread that trains may

    Trainer(model, "softmax_cross_entropy", SGD(0.1)).fit(X, y, callbacks=[Callback()], verbose=0)
    assert len(errors) == 1
    assert errors[0].startswith("input_gradient: another thread is at work on this model, in fit")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"X": np.zeros((20, 3))}, ValueError, r"X: expected shape \(n, 2, 9, 8\)"),
        ({"X": np.full((20, *SHAPE), np.nan)}, ValueError, "X: expected finite values"),
        ({"y": np.zeros(19, int)}, ValueError, "y: expected 20 targets, one for each example of X, got 19"),
        ({"y": np.full(20, 4)}, ValueError, "y: expected labels from 0 to 3"),
        ({"y": np.zeros(20)}, TypeError, "y: expected integer labels"),
        ({"y": 4}, ValueError, "y: expected labels from 0 to 3"),
        ({"y": -1}, ValueError, "y: expected at least 0"),
        ({"y": 1.5}, TypeError, "y: expected an integer"),
        ({"y": True}, TypeError, "y: expected an integer"),
        ({"loss": "softmax_cross_entropy"}, ValueError, "y: expected the targets of the loss, got None"),
        ({"y": 1, "loss": "softmax_cross_entropy"}, ValueError, "y: expected 20 targets, .*, got a single number"),
        ({"y": np.zeros(20, int), "loss": "l2"}, ValueError, "loss: expected one of"),
        ({"y": np.zeros(20, int), "loss": 3}, TypeError, "loss: expected a name"),
        ({"dscores": np.zeros((20, 3))}, ValueError, r"dscores: expected shape \(20, 4\), .*, got \(20, 3\)"),
        ({"dscores": np.zeros((20, 4), complex)}, TypeError, "dscores: expected real numbers"),
        ({"y": 1, "dscores": np.zeros((20, 4))}, ValueError, "dscores: expected neither y nor a loss with it"),
        ({"loss": "huber", "dscores": np.zeros((20, 4))}, ValueError, "dscores: expected neither y nor a loss"),
        ({"num_threads": 0}, ValueError, "num_threads: expected"),
    ],
)
def test_invalid_arguments_are_refused(given, error, message):
    model = make_model("wide")
    before = traces(model)
    with pytest.raises(error, match=message):
        model.input_gradient(**{"X": data(20)[0]} | given)
    assert traces(model) == before
    model.input_gradient(*data(20))  # which released its memory


def test_layers_and_models_that_cannot_are_refused():
    X = np.zeros((2, 3))
    with pytest.raises(ValueError, match="the model is not built yet"):
        Sequential([Dense(2)]).input_gradient(X)
    expected = "layer 1, Noise: expected a layer in NumPy that computes the same in training and in inference"
    with pytest.raises(ValueError, match=expected):
        Sequential([Dense(2), Noise()], (3,)).input_gradient(X)
    with pytest.raises(ValueError, match=r"layer 0, Residual: body\.1, Noise: expected a layer in NumPy that"):
        Sequential([Residual(Dense(3), Noise())], (3,)).input_gradient(X)
    with pytest.raises(TypeError, match=r"input_gradient: expected layers that can be copied: .*lock"):
        Sequential([Dense(2), Locked()], (3,)).input_gradient(X)


def test_a_slice_gives_the_gradient_at_an_inner_layer():
    model, (X, y) = make_model("kernels", "float64"), data(10)
    front, back = model[:6], model[6:]
    at_layer = back.input_gradient(front.predict(X), y, "softmax_cross_entropy")
    through = front.input_gradient(X, dscores=at_layer)
    np.testing.assert_allclose(through, model.input_gradient(X, y, "softmax_cross_entropy"), rtol=1e-12)
