"""Predictions over views: the mean of the scores of an image and of its variants."""

import tracemalloc

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from minidl import InputError, Layer, Sequential, Trainer
from minidl.engine.views import NAMES
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import (
    Conv1D,
    Conv2D,
    Dense,
    Flatten,
    GlobalAvgPool2D,
    MaxPool2D,
    Outputs,
    ReLU,
    Rescale,
    Softmax,
)
from minidl.optimizers import SGD

SHAPE = (2, 6, 7)
N = 1030  # more than a chunk


def net(*last, shape=SHAPE, dtype="float32"):
    return Sequential([Conv2D(4, 3), ReLU(), Flatten(), Dense(3), *last], shape, dtype=dtype)


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, *SHAPE)).astype(np.float32)


def both(predict, X):
    return (predict(X) + predict(X[..., ::-1])) / 2


def moved(X, step):
    """Returns X moved down and right by a step of 1 or -1, with a reflected border, by indices."""
    h, w = X.shape[2:]
    rows, columns = (np.abs(np.arange(size) - step) for size in (h, w))
    rows, columns = np.where(rows == h, h - 2, rows), np.where(columns == w, w - 2, columns)
    return X[:, :, rows][..., columns]


def expected_of(predict, X):
    return {
        "flip": both(predict, X),
        "flip+shift": (2 * both(predict, X) + both(predict, moved(X, 1)) + both(predict, moved(X, -1))) / 4,
    }


def test_pixels_of_views():
    """A Flatten shows the mean image: weights 1/2, or 1/4 and four times 1/8."""
    x = np.array([[[[0, 1, 2], [3, 4, 5], [6, 7, 8]]]])
    model = Sequential([Flatten()], (1, 3, 3))
    np.testing.assert_array_equal(model.predict(x, views="flip"), [[1, 1, 1, 4, 4, 4, 7, 7, 7]])
    x[0, 0] = 0
    x[0, 0, 1, 0] = 16  # moved down and right, its reflection is above
    still, down, up = [[0, 0, 0], [16, 0, 0], [0, 0, 0]], [[0, 16, 0], [0, 0, 0], [0, 16, 0]], [[0, 0, 0]] * 3
    mean = np.array(still) / 4 + np.array(down) / 8 + np.array(up) / 8
    np.testing.assert_array_equal(model.predict(x, views="flip+shift")[0].reshape(3, 3), mean + mean[:, ::-1])


@pytest.mark.parametrize("views", NAMES)
def test_it_is_the_mean_of_the_scores(views, X):
    model = net(dtype="float64")
    np.testing.assert_allclose(
        model.predict(X, views=views), expected_of(model.predict, X)[views], rtol=1e-12, atol=1e-14
    )


@pytest.mark.oracle
def test_views_are_those_of_pytorch(X):
    """With torch.flip, and F.pad of mode "reflect", as in the program of the paper."""
    torch = pytest.importorskip("torch")
    model, x = net(dtype="float64"), torch.tensor(X)
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1), "reflect")
    _, _, h, w = x.shape

    def mirror(x):
        return 0.5 * model.predict(x.numpy()) + 0.5 * model.predict(x.flip(-1).numpy())

    shifted = np.mean([mirror(padded[:, :, :h, :w]), mirror(padded[:, :, 2 : h + 2, 2 : w + 2])], axis=0)
    close = {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(model.predict(X, views="flip+shift"), 0.5 * mirror(x) + 0.5 * shifted, **close)
    np.testing.assert_allclose(model.predict(X, views="flip"), mirror(x), **close)


@pytest.mark.parametrize("views", NAMES)
def test_a_row_has_the_same_bits_for_any_threads_and_neighbours(views, X):
    model = net()
    scores = model.predict(X, 1, views)
    for threads in (2, 3, 8):
        np.testing.assert_array_equal(model.predict(X, threads, views), scores)
    for part in (slice(0, 1), slice(1020, 1029), slice(5, 22)):
        np.testing.assert_array_equal(model.predict(X[part], views=views), scores[part])
    assert model.predict(X[:0], views=views).shape == (0, 3)


@pytest.mark.parametrize("views", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_kinds_of_images_give_the_same_scores(views, dtype, tmp_path, rng):
    X = rng.integers(0, 256, (40, *SHAPE)).astype(np.uint8)
    model = Sequential([Rescale(1 / 255), Conv2D(4, 3), Flatten(), Dense(3)], SHAPE, dtype=dtype)
    np.save(tmp_path / "X.npy", X)
    scores = model.predict(X, views=views)
    assert scores.dtype == dtype
    kinds = [X.astype(np.float32), X.astype(np.float64), X.reshape(40, -1), X.tolist(), np.asfortranarray(X)]
    for same in (*kinds, np.load(tmp_path / "X.npy", mmap_mode="r")):
        np.testing.assert_array_equal(model.predict(same, views=views), scores)


class Halve(Layer):
    """A layer in NumPy."""

    def forward(self, x, training):
        return x / 2

    def backward(self, dy):
        return dy / 2


def test_models_of_other_kinds(X):
    """With a layer in NumPy, with several outputs, and for images of any size."""
    model = net(Halve())
    np.testing.assert_array_equal(model.predict(X, views="flip"), both(model.predict, X))
    model = Sequential([Flatten(), Outputs(a=Dense(2), b=Dense(1))], SHAPE)
    scores = model.predict(X, views="flip")
    for name in ("a", "b"):
        np.testing.assert_array_equal(scores[name], both(lambda X, name=name: model.predict(X)[name], X))
    model = Sequential([Conv2D(4, 3), GlobalAvgPool2D(), Dense(3)], (2, None, None))
    for part in (X, X[:, :, 1:, :6]):
        np.testing.assert_array_equal(model.predict(part, views="flip"), both(model.predict, part))
    one = Sequential([Flatten()], (1, 1, 1))  # a border of a single pixel reflects itself
    np.testing.assert_array_equal(one.predict([[[[3]]]], views="flip+shift"), [[3]])


def test_views_of_a_function(X):
    model = net(shape=(2, 6, 6))
    X = X[..., :6]

    def turns(x):
        for k in range(4):
            yield np.rot90(x, k, axes=(2, 3))

    expected = np.mean([model.predict(np.rot90(X, k, axes=(2, 3))) for k in range(4)], axis=0)
    scores = model.predict(X, views=turns)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    for same in (lambda x: list(turns(x)), lambda x: tuple(view.astype(np.float64) for view in turns(x))):
        np.testing.assert_array_equal(model.predict(X, views=same), scores)
    np.testing.assert_array_equal(model.predict(X, views=lambda x: [x]), model.predict(X))
    dtypes = []
    model.predict(np.ones(X.shape, np.uint8), views=lambda x: dtypes.append(x.dtype) or [x])
    assert set(dtypes) == {np.dtype("uint8")}  # of each chunk


def test_probabilities_are_those_of_the_mean_scores(X):
    model = net()
    softmax = Sequential([Softmax()], (3,))
    mean = model.predict(X, views="flip+shift")
    np.testing.assert_array_equal(model.predict_proba(X, views="flip+shift"), softmax.predict(mean))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    np.testing.assert_array_equal(trainer.predict(X, views="flip+shift"), mean)
    np.testing.assert_array_equal(trainer.predict_proba(X, views="flip+shift"), softmax.predict(mean))
    of_labels = Trainer(model, "binary_cross_entropy", SGD(0.1)).predict_proba(X, views="flip")
    np.testing.assert_allclose(of_labels, 1 / (1 + np.exp(-model.predict(X, views="flip"))), rtol=1e-5)


def test_estimators_pass_views_on(X):
    X, y = X[:60], np.array(["a", "b", "c"])[np.arange(60) % 3]
    classifier = SequentialClassifier(net(), epochs=1, random_state=0).fit(X, y)
    model, views = classifier.model_, "flip+shift"
    scores = model.predict(X, views=views)
    np.testing.assert_array_equal(classifier.predict(X, views=views), np.array(["a", "b", "c"])[scores.argmax(axis=1)])
    probabilities = model.predict_proba(X, views=views)
    np.testing.assert_array_equal(classifier.predict_proba(X, views=views), probabilities)
    np.testing.assert_allclose(classifier.predict_log_proba(X, views=views), np.log(probabilities), rtol=1e-5)
    pipeline = make_pipeline(FunctionTransformer(), SequentialClassifier(net(), epochs=1, random_state=0))
    np.testing.assert_array_equal(pipeline.fit(X, y).predict_proba(X, views=views), probabilities)
    regressor = SequentialRegressor(Sequential([Flatten(), Dense(1)], SHAPE), epochs=1, random_state=0)
    regressor.fit(X, X[:, 0, 0, 0])
    np.testing.assert_allclose(regressor.predict(X, views="flip"), both(regressor.predict, X), rtol=1e-5, atol=1e-6)


def test_memory_is_that_of_a_chunk():
    X = np.zeros((8192, 1, 24, 24), np.float32)  # 18 MiB
    model = Sequential([MaxPool2D(24), Flatten()], X.shape[1:])
    model.predict(X)
    tracemalloc.start()
    try:
        model.predict(X, views="flip+shift")
        assert tracemalloc.get_traced_memory()[1] < X.nbytes / 2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("views", "error", "message"),
    [
        ("mirror", ValueError, "views: expected 'flip' or 'flip\\+shift', or a function of images, got 'mirror'"),
        (3, TypeError, "views: expected 'flip' or 'flip\\+shift', or a function of images, got 3"),
        (["flip"], TypeError, r"views: expected .*, got \['flip'\]"),
        (Halve, TypeError, "views: expected .* a function of images, got <class"),
        (lambda x: [], ValueError, r"views\(X\): expected at least one view, got none"),
        (lambda x: None, TypeError, r"views\(X\): expected several arrays of images, .* got NoneType"),
        (lambda x: x[..., ::-1], TypeError, r"views\(X\): expected several arrays of images, .* got ndarray"),
        (lambda x: [x, x[1:]], ValueError, r"views\(X\): expected a view of each of 5 images, got 4"),
        (lambda x: [x[..., 1:]], InputError, r"views\(X\): expected shape \(n, 2, 6, 7\)"),
        (lambda x: [x * np.nan], InputError, r"views\(X\): expected finite values"),
        (lambda x: [x.__imul__(2)], ValueError, "read-only"),
    ],
)
def test_other_views_are_refused(views, error, message, X):
    model, before = net(), X.copy()
    with pytest.raises(error, match=message):
        model.predict(X[:5], views=views)
    np.testing.assert_array_equal(X, before)
    assert model.predict(X[:5], views="flip").shape == (5, 3)


@pytest.mark.parametrize(
    ("layers", "shape", "message"),
    [
        ([Dense(3)], (64,), r"expected a model of images \(c, h, w\), got input_shape \(64,\)"),
        ([Conv1D(3, 3), Flatten()], (2, 9), r"expected a model of images .*, got input_shape \(2, 9\)"),
        ([Conv2D(3, 3)], SHAPE, r"expected a model with a vector of scores, got outputs \(3, 4, 5\): take the mean"),
        ([Outputs(a=[Flatten(), Dense(2)], b=Conv2D(1, 3))], SHAPE, r"a vector of scores, got outputs \(1, 4, 5\)"),
    ],
)
def test_other_models_are_refused(layers, shape, message):
    with pytest.raises(ValueError, match=f"views: .*{message}"):
        Sequential(layers, shape).predict(np.zeros((2, *shape)), views="flip")


def test_images_of_several_sizes_are_refused():
    images = [np.zeros((2, 6, 7)), np.zeros((2, 5, 7))]
    with pytest.raises(InputError, match="X: expected images of one size"):
        net().predict(images, views="flip")
