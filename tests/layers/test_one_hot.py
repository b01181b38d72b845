"""OneHot: categories of columns, numbers that are none, files. All geometries are in the tests of its kernel."""

import json

import numpy as np
import pytest

import minidl
from minidl import Sequential, Trainer
from minidl.layers import Columns, Dense, OneHot, Parallel, PiecewiseLinearEncoding
from minidl.optimizers import SGD

NAN, INF = float("nan"), float("inf")
CODES = [[0, 2, 0], [1, 0, 0], [1, 1, 1]]
ROWS = [[1, 0, 0, 0, 1, 1], [0, 1, 1, 0, 0, 1], [0, 1, 0, 1, 0, 0]]


def one_hot_model(*layers, dtype="float32"):
    return Sequential([OneHot([2, 3, 1]), *layers], input_shape=(3,), seed=0, dtype=dtype)


@pytest.mark.parametrize("kind", ["uint8", "int64", "float32", "float64"])
def test_outputs_of_a_column_lie_side_by_side(kind):
    for dtype in ("float32", "float64"):
        scores = one_hot_model(dtype=dtype).predict(np.array(CODES, kind))
        assert scores.dtype == dtype and scores.tolist() == ROWS


def test_other_numbers_are_unknown_categories():
    model = Sequential([OneHot(3)], input_shape=(8,))
    x = np.array([[-1, 3, 0.5, 1e30, NAN, INF, -INF, -0.0]], "f4")
    assert model.network.predict(x).tolist() == [[0] * 21 + [1, 0, 0]]
    assert model.predict(x[:, [0, 1, 2, 3, 7, 7, 7, 7]])[0, :12].tolist() == [0] * 12
    with pytest.raises(minidl.InputError, match="X: expected finite values, got NaN or infinity"):
        model.predict(x)


def test_a_missing_value_has_no_category_beside_a_layer_that_takes_them():
    bins = [Columns(1), PiecewiseLinearEncoding([[0, 1]], missing=True)]
    model = Sequential([Parallel([Columns(0, 1), OneHot(2)], bins)], input_shape=(2,))
    assert model.predict([[NAN, NAN], [1, 0.5]]).tolist() == [[0, 0, 0, 1], [0, 1, 0.5, 0]]


@pytest.mark.parametrize("kind", [np.array, lambda v: np.array(v, "u1")])
def test_arrays_are_kept_as_lists(kind, tmp_path):
    """Counts may be those of an array; config and files are those of lists."""
    layer = OneHot(kind([2, 3, 1]))
    assert json.loads(json.dumps(layer.config())) == {"categories": [2, 3, 1]}
    Sequential([layer], (3,)).save(tmp_path / "array")
    one_hot_model().save(tmp_path / "list")
    assert (tmp_path / "array").read_bytes() == (tmp_path / "list").read_bytes()
    assert Sequential.load(tmp_path / "list").predict(CODES).tolist() == ROWS


def test_repr_shortens_long_lists():
    assert repr(OneHot(np.int64(7))) == "OneHot(7)"
    assert repr(OneHot(np.array([7, 2]))) == "OneHot([7, 2])"
    assert repr(OneHot(list(range(2, 9)))) == "OneHot([2, 3, 4, ... 7 values])"


def test_codes_train_as_their_rows(rng):
    """With the bits of a fit on one-hot rows, unknown categories and bytes among them."""
    codes, y = rng.integers(0, 5, (80, 3)).astype("u1"), rng.integers(0, 2, 80)
    rows = (codes[:, :, np.newaxis] == np.arange(4)).reshape(80, 12)
    assert (rows.sum(axis=1) < 3).any()
    fits = []
    for first, X in (([OneHot(4)], codes), ([], rows)):
        model = Sequential([*first, Dense(5), Dense(2)], input_shape=X.shape[1:], seed=0)
        for param, values in zip(model.params.values(), np.random.default_rng(0).normal(size=(4, 60)), strict=True):
            param.value = values[: param.value.size].reshape(param.value.shape)
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), seed=1)
        trainer.fit(X, y, epochs=2, batch_size=16, validation_data=(X, y), verbose=0)
        fits.append((trainer.history["val_loss"], model.predict(X).tobytes(), trainer.train_batch(X[:9], y[:9])))
    assert fits[0] == fits[1]


@pytest.mark.oracle("onnxruntime")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_onnx_files_have_the_same_values(dtype, tmp_path):
    """Also of NaN and infinity; the layer is restored."""
    import onnxruntime

    model = one_hot_model(dtype=dtype)
    minidl.onnx.export(model, tmp_path / "model.onnx")
    x = np.array([*CODES, [2, 3, 1], [-1, 0.5, -0.0], [NAN, INF, -INF]], dtype)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    scores = session.run(None, {"input": x})[0]
    assert scores.dtype == dtype and scores.tobytes() == model.network.predict(x).tobytes()
    restored = minidl.onnx.import_model(tmp_path / "model.onnx")
    assert repr(restored.layers) == repr(model.layers)
    minidl.onnx.export(model, tmp_path / "bytes.onnx", input_dtype="uint8")
    session = onnxruntime.InferenceSession(str(tmp_path / "bytes.onnx"))
    assert session.run(None, {"input": np.array(CODES, "u1")})[0].tolist() == ROWS


@pytest.mark.parametrize(
    ("categories", "shape", "message"),
    [
        ([2, 3], (3,), "categories: expected one for each of 3 columns, got 2"),
        ([], (3,), "categories: expected one for each of 3 columns, got 0"),
        (2, (1, 2), r"expected \(columns,\), got \(1, 2\): put a Flatten before it"),
        (0, (2,), "categories: expected at least 1, got 0"),
        ([2, -1], (2,), "categories: expected at least 1, got -1"),
        ([2, 3.0], (2,), "categories: expected an integer, got 3.0"),
        (np.array([2.0, 3.0]), (2,), "categories: expected an integer, got 2.0"),
        (np.array([[2, 3]]), (1,), r"categories: expected an integer, got \[2, 3\]"),
        (True, (1,), "categories: expected an integer, got True"),
        (None, (1,), "categories: expected an integer, got None"),
        ("ab", (2,), "categories: expected an integer, got 'ab'"),
        (2**24 + 1, (1,), "categories: expected at most 16777216, up to which float32 has all whole numbers"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(categories, shape, message):
    with pytest.raises((TypeError, ValueError), match=rf"layer 0, OneHot, input .*: {message}"):
        Sequential([OneHot(categories)], input_shape=shape)
    with pytest.raises(TypeError, match="categories: expected real numbers"):
        OneHot(np.array(["a"]))
