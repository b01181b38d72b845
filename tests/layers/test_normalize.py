"""Normalize: values as in NumPy; mean and std from data of any kind, as scikit-learn's StandardScaler computes them."""

import json
import math

import numpy as np
import pytest
import scipy.sparse
from odd_arrays import Lazy
from sklearn.preprocessing import StandardScaler

from minidl import Sequential, Trainer
from minidl.layers import Dense, Normalize, normalize
from minidl.layers.normalize import CHUNK
from minidl.optimizers import SGD


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "mean", "std"),
    [((5,), 0.5, 2), ((3, 4, 5), [1.0, -2.0, 3.0], [0.5, 3.0, 0.1]), ((2,), (1, 2), 0.25), ((2, 3), 7, [0.3, 0.0])],
)
def test_agrees_with_numpy(shape, mean, std, dtype, rng):
    model = Sequential([Normalize(mean, std)], input_shape=shape, dtype=dtype)
    x, dy = rng.integers(0, 256, (17, *shape)).astype("u1"), rng.normal(size=(17, *shape)).astype(dtype)
    column = (-1,) + (1,) * (len(shape) - 1)
    m, s = (np.broadcast_to(np.asarray(v, dtype), shape[:1]).reshape(column) for v in (mean, std))
    s = np.where(s == 0, np.asarray(1, dtype), s)
    assert model.forward(x, training=True).tobytes() == ((x.astype(dtype) - m) / s).tobytes()
    assert model.backward(dy).tobytes() == (dy / s).tobytes()


@pytest.mark.parametrize("kind", [np.asarray, lambda v: np.asarray(v, "f4"), lambda v: np.asarray(v, int)])
@pytest.mark.parametrize("values", [[1, 4, 2], 3, [5]])
def test_arrays_are_kept_as_lists(kind, values, tmp_path):
    """Means of data are arrays; config, repr and files are those of lists."""
    shape = (len(values) if isinstance(values, list) else 2, 3)
    left = Sequential([Normalize(kind(values), kind(values))], shape)
    right = Sequential([Normalize(values, values)], shape)
    config = left.layers[0].config()
    assert config == right.layers[0].config() and json.loads(json.dumps(config)) == config
    left.save(tmp_path / "left"), right.save(tmp_path / "right")
    x = np.arange(float(2 * math.prod(shape))).reshape(2, *shape)
    for model in (left, Sequential.load(tmp_path / "left")):
        assert model.predict(x).tobytes() == right.predict(x).tobytes()


def test_files_of_arrays_and_lists_are_equal(tmp_path):
    mean, std = np.array([0.5, 1.5]), np.array([0.25, 2], "f4")
    for name, layer in {"a": Normalize(mean, std), "b": Normalize(mean.tolist(), std.tolist())}.items():
        Sequential([layer], (2,)).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_arrays_that_are_not_numbers_per_channel_are_refused():
    for bad in (np.array(["a", "b"]), np.array([None, 1]), np.ma.masked_array([1.0, 2.0], [True, False])):
        with pytest.raises(TypeError, match=r"^std: expected"):
            Normalize(0.0, bad)
    for bad in (np.ones(3), np.array([1, np.nan])):
        with pytest.raises(ValueError, match=r"mean: expected"):
            Sequential([Normalize(bad, 1.0)], (2,))


# ---- from data ---------------------------------------------------------------------------------------
KINDS = {
    "uint8": lambda X: X,
    "float32": lambda X: X.astype("f4") / 3,
    "float64": lambda X: X.astype("f8") * 1e-7 + 1e3,
    "big-endian": lambda X: X.astype(">f8"),
    "int16": lambda X: X.astype("i2") - 300,
    "strided": lambda X: np.asfortranarray(X),
    "list": lambda X: X.tolist(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 3), (500, 7), (40, 3, 5, 4), (3, 1, 6, 6)])
def test_of_agrees_with_numpy(kind, shape, rng):
    X = KINDS[kind](rng.integers(0, 256, shape, np.uint8))
    wide = np.asarray(X, "f8")
    axes = (0, *range(2, wide.ndim))
    layer = Normalize.from_data(X)
    np.testing.assert_allclose(layer.mean, wide.mean(axis=axes), rtol=1e-13)
    np.testing.assert_allclose(layer.std, wide.std(axis=axes), rtol=1e-9)
    assert json.loads(json.dumps(layer.config())) == layer.config()


def test_of_agrees_with_scikit_learns_standard_scaler(rng):
    """Also for constant features, whose mean is exact only up to rounding."""
    X = rng.normal(size=(1000, 6)) * [1, 1e-8, 1e8, 1, 1, 1e-3] + [0, 1, 1e6, 0, 0, 1e5]
    X[:, 3], X[:, 4] = 0.1, -12345.678
    scaler = StandardScaler().fit(X)
    layer = Normalize.from_data(X)
    np.testing.assert_allclose(layer.mean, scaler.mean_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose([std or 1.0 for std in layer.std], scaler.scale_, rtol=1e-7)
    assert layer.std[3:5] == [0.0, 0.0]
    y = Sequential([layer], input_shape=(6,), dtype="float64").predict(X)
    np.testing.assert_allclose(y, scaler.transform(X), rtol=1e-7, atol=1e-7)


def test_many_chunks_equal_one(rng):
    """Means far from zero that change from chunk to chunk."""
    X = rng.normal(size=(3 * CHUNK // 128 + 5, 2, 8, 8)) + 1e4 + np.arange(3 * CHUNK // 128 + 5).reshape(-1, 1, 1, 1)
    layer = Normalize.from_data(X)
    np.testing.assert_allclose(layer.mean, X.mean(axis=(0, 2, 3)), rtol=1e-14)
    np.testing.assert_allclose(layer.std, X.std(axis=(0, 2, 3)), rtol=1e-12)


def test_a_memory_map_is_never_copied_as_a_whole(tmp_path, rng):
    tracemalloc = pytest.importorskip("tracemalloc")
    X = rng.integers(0, 256, (40_000, 3, 16, 16), np.uint8)
    np.save(tmp_path / "X.npy", X)
    expected = X.mean(axis=(0, 2, 3)), X.std(axis=(0, 2, 3))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    tracemalloc.start()
    layer = Normalize.from_data(mapped)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose([layer.mean, layer.std], expected, rtol=1e-10)
    assert peak < 5 * 8 * CHUNK  # some chunks in float64; all of X is 6 times as much


def test_gaps_are_left_out_on_request(rng, monkeypatch):
    """Also in a channel that begins with more gaps than a chunk has elements."""
    monkeypatch.setattr(normalize, "CHUNK", 64)
    X = rng.normal(5, 2, (300, 4)).astype("f4")
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:200, 1] = np.nan
    X[:, 2] = np.where(np.isnan(X[:, 2]), np.nan, 7)
    oracle = StandardScaler().fit(X.astype("f8"))
    layer = Normalize.from_data(X, skipna=True)
    np.testing.assert_allclose(layer.mean, oracle.mean_, rtol=1e-12)
    np.testing.assert_allclose(layer.std, np.sqrt(oracle.var_), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(Normalize.from_data(X[:, ::3], skipna=True).mean, layer.mean[::3], rtol=1e-12)
    for bad, message in ((np.inf, "got infinity$"), (np.nan, "got NaN alone in channel 3")):
        X[:, 3] = bad
        with pytest.raises(ValueError, match=message):
            Normalize.from_data(X, skipna=True)
    with pytest.raises(TypeError, match="skipna"):
        Normalize.from_data(X, skipna="yes")


def test_statistics_may_keep_the_axes_of_data(rng):
    X = rng.normal(size=(20, 3, 4, 5))
    layer = Normalize(X.mean((0, 2, 3), keepdims=True), X.std((0, 2, 3), keepdims=True))
    assert layer.mean == X.mean((0, 2, 3)).tolist() and layer.std == X.std((0, 2, 3)).tolist()
    grey = X[:, :1].mean((0, 2, 3), keepdims=True)
    assert Normalize(grey, 2.0).mean == [grey.item()]


def test_sparse_and_lazy_arrays(rng):
    X = np.where(rng.random((50, 4)) < 0.7, 0, rng.normal(size=(50, 4)))
    for kind in (Lazy, scipy.sparse.csr_array):
        assert repr(Normalize.from_data(kind(X))) == repr(Normalize.from_data(X))


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.zeros(5), ValueError, r"X: expected examples along the first of at least two axes, got shape \(5,\)"),
        (np.zeros((0, 3)), ValueError, r"got shape \(0, 3\)"),
        ([[1.0, np.nan]], ValueError, "X: expected finite values, got NaN or infinity; skipna=True leaves NaN out"),
        ([[1e200], [-1e200]], ValueError, "X: expected values whose squares float64 can hold"),
        (None, TypeError, "X: expected an array, got None"),
        ([["a"]], TypeError, "X: expected real numbers"),
        (np.ma.array([[1, 2]], mask=[[0, 1]]), TypeError, "X: expected an array without a mask"),
    ],
    ids=str,
)
def test_invalid_data(X, error, message):
    with pytest.raises(error, match=message):
        Normalize.from_data(X)


# ---- in a model --------------------------------------------------------------------------------------
def test_it_trains_and_is_saved(tmp_path, rng):
    X, y = rng.normal(size=(200, 4)) * [1, 1e3, 1e-3, 0] + [5, 6, 7, 8], rng.integers(0, 2, 200)
    X[:, 1] += 2e3 * y
    model = Sequential([Normalize.from_data(X), Dense(2)], input_shape=(4,))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), ["accuracy"])
    assert trainer.fit(X, y, epochs=20, verbose=0)["accuracy"][-1] > 0.75
    model.save(tmp_path / "model.safetensors")
    assert Sequential.load(tmp_path / "model.safetensors").predict(X).tobytes() == model.predict(X).tobytes()


def test_repr_shortens_long_lists():
    assert repr(Normalize([0.5, 1.0], 2)) == "Normalize(mean=[0.5, 1.0], std=2)"
    long = Normalize(list(range(784)), [1] * 784)
    assert repr(long) == "Normalize(mean=[0, 1, 2, ... 784 values], std=[1, 1, 1, ... 784 values])"


@pytest.mark.parametrize(
    ("mean", "std", "error", "message"),
    [
        (np.nan, 1, ValueError, "mean: expected a finite number.* got nan"),
        (0, -1, ValueError, "std: expected values of at least 0, got -1"),
        ([0, 0], [1, -2.5], ValueError, "std: expected values of at least 0, got -2.5"),
        ([0, 0, 0], 1, ValueError, "mean: expected 2 values, one per channel, got 3"),
        (0, [1], ValueError, "std: expected 2 values, one per channel, got 1"),
        (0, 1e-40, ValueError, "can hold and divide, got 0.0 and 1e-40"),
        ("0", 1, TypeError, "mean.*'0'"),
        (0, [1, None], TypeError, "std.*None"),
        (0, np.ones((2, 1)), TypeError, r"std: expected a number, got \[1.0\]"),
    ],
    ids=str,
)
def test_invalid_arguments(mean, std, error, message):
    with pytest.raises(error, match=rf"layer 0, Normalize.*{message}"):
        Sequential([Normalize(mean, std)], input_shape=(2, 3, 3))
