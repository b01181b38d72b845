"""PiecewiseLinearEncoding: bins from data, missing values in a model, files. Gradients are in test_contract.py."""

import json
import warnings

import numpy as np
import pytest
import reference as ref
import scipy.sparse
from odd_arrays import Lazy

import minidl
from minidl import Sequential, Trainer
from minidl.layers import Columns, Dense, Embedding, Flatten, Parallel, PiecewiseLinearEncoding
from minidl.layers.piecewise_linear_encoding import quantile_edges
from minidl.optimizers import SGD

NAN, INF = float("nan"), float("inf")
EDGES, MISSING = [[-2.0, 0.5, 1.0, 4.0], [], [10.0, 11.0]], [False, True, True]
ROWS = [[-3, 0, 10.25], [0.25, NAN, NAN], [0.75, 1, 11], [1e9, 2, 9]]
PLACES = [[0, 0, 0, 0, 0.25, 0], [0.9, 0, 0, 1, 0, 1], [1, 0.5, 0, 0, 1, 0], [1, 1, 1, 0, 0, 0]]


def encoding_model(*layers, dtype="float32"):
    return Sequential([PiecewiseLinearEncoding(EDGES, MISSING), *layers], input_shape=(3,), seed=0, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outputs_of_a_column_lie_side_by_side(dtype):
    model = encoding_model(dtype=dtype)
    np.testing.assert_allclose(model.predict(ROWS), PLACES, rtol=1e-6)
    x = np.array([*ROWS, [INF, -INF, INF], [-INF, INF, -INF]], dtype)
    expected = ref.encoding_forward(x, EDGES, MISSING)
    assert model.network.predict(x).tobytes() == expected.tobytes()
    assert expected[-2:].tolist() == [[1, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("kind", [np.array, lambda v: np.array(v, "f4")])
def test_arrays_are_kept_as_lists(kind, tmp_path):
    """Quantiles are arrays; config and files are those of lists."""
    arrays = PiecewiseLinearEncoding([kind(of_column) for of_column in EDGES], np.array(MISSING))
    config = arrays.config()
    assert config == {"edges": EDGES, "missing": MISSING} == json.loads(json.dumps(config))
    Sequential([arrays], (3,)).save(tmp_path / "arrays")
    encoding_model().save(tmp_path / "lists")
    assert (tmp_path / "arrays").read_bytes() == (tmp_path / "lists").read_bytes()
    assert Sequential.load(tmp_path / "lists").predict(ROWS).tobytes() == encoding_model().predict(ROWS).tobytes()


def test_a_matrix_of_edges_and_one_indicator_for_all():
    layer = PiecewiseLinearEncoding(np.array([[0, 1], [2, 4]]), np.bool_(True))
    assert repr(layer) == "PiecewiseLinearEncoding(edges=[[0, 1], [2, 4]], missing=True)"
    assert Sequential([layer], (2,)).predict([[0.5, NAN]]).tolist() == [[0.5, 0, 0, 1]]


def test_repr_shortens_long_lists():
    layer = PiecewiseLinearEncoding([list(range(49)), [0, 1], [], [1, 2], [3, 4]])
    edges = "[[0, 1, 2, ... 49 values], [0, 1], [], ... 5 values]"
    assert repr(layer) == f"PiecewiseLinearEncoding(edges={edges}, missing=False)"


# ---- bins from data ------------------------------------------------------------------------------
def test_bins_of_rows_and_of_distinct_values(rng):
    """Where most rows have one value, quantiles of the rows alone would leave the others in a single bin."""
    values = np.where(rng.random(20_000) < 0.95, 0, rng.lognormal(0, 1, 20_000))
    edges = quantile_edges(values, 48)
    assert (np.diff(edges) > 0).all() and (edges[0], edges[-1]) == (0, values.max())
    assert 16 <= len(edges) <= 49
    shares = np.histogram(values[values > 0], edges)[0] / (values > 0).sum()
    assert shares.max() < 0.15
    even = quantile_edges(rng.random(100_000), 48)
    assert len(even) == 49 and np.abs(np.histogram(even, 8, (0, 1))[0] - 49 / 8).max() < 3


def test_quantiles_of_rows_and_of_values_seldom_coincide(rng):
    values = rng.random(2000)
    counts = [len(quantile_edges(values, bins)) - 1 for bins in range(4, 100)]
    assert all(bins - 3 <= count <= bins for bins, count in zip(range(4, 100), counts, strict=True))


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 48])
def test_few_values_are_the_edges_themselves(bins):
    for count in range(1, 2 * bins):
        values = np.repeat(np.arange(count) ** 2.0, 3)
        edges = quantile_edges(values, bins)
        if count == 1:
            assert edges.size == 0
        elif count <= bins + 1:
            assert edges.tolist() == np.unique(values).tolist()
        else:
            assert 2 <= len(edges) <= bins + 1 and (edges[0], edges[-1]) == (0, values[-1])


def test_edges_that_float32_cannot_tell_apart_count_once():
    values = np.array([0.3, 0.1 + 0.2, 1.0, 1.0 + 1e-9])
    assert quantile_edges(values, 48).tolist() == [0.3, 1.0]
    assert quantile_edges(values[:2], 48).size == 0
    Sequential([PiecewiseLinearEncoding.from_data(values[:, np.newaxis])], (1,))


KINDS = {
    "float32": lambda X: X.astype("f4"),
    "big-endian": lambda X: X.astype(">f8"),
    "strided": lambda X: np.asfortranarray(X),
    "list": lambda X: X.tolist(),
    "lazy": Lazy,
}


@pytest.mark.parametrize("kind", KINDS)
def test_data_of_any_kind(kind, rng):
    X = np.round(rng.normal(size=(500, 3)), 2).astype("f4").astype("f8")
    X[::7, 1], X[:, 2] = np.nan, 5
    layer = PiecewiseLinearEncoding.from_data(KINDS[kind](X), bins=6)
    assert layer.config() == PiecewiseLinearEncoding.from_data(X, bins=6).config()
    assert layer.missing == [False, True, False] and [len(edges) for edges in layer.edges] == [7, 7, 0]
    known = X[~np.isnan(X[:, 1]), 1]
    assert (layer.edges[1][0], layer.edges[1][-1]) == (known.min(), known.max())


def test_integers_and_sparse_matrices(rng):
    X = rng.integers(0, 4, (100, 2))
    for kind in (lambda v: v, lambda v: v.astype("u1"), lambda v: scipy.sparse.csr_array(v.astype("f8"))):
        assert PiecewiseLinearEncoding.from_data(kind(X)).edges == [[0, 1, 2, 3]] * 2


def test_a_memory_map_is_never_copied_as_a_whole(tmp_path, rng):
    tracemalloc = pytest.importorskip("tracemalloc")
    np.save(tmp_path / "X.npy", rng.normal(size=(50_000, 40)).astype("f4"))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    tracemalloc.start()
    PiecewiseLinearEncoding.from_data(mapped, bins=4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 8 * len(mapped)  # some copies of a column, in float64; all of X is 40 columns


@pytest.mark.parametrize(
    ("X", "bins", "error", "message"),
    [
        (np.zeros(5), 48, ValueError, r"X: expected examples along the first of at least two axes, got shape \(5,\)"),
        (np.zeros((3, 2, 2)), 48, ValueError, r"X: expected rows \(n, columns\), at least one, got shape \(3, 2, 2\)"),
        (np.zeros((0, 3)), 48, ValueError, r"X: expected rows .*, got shape \(0, 3\)"),
        ([[1, 2], [3, INF]], 48, ValueError, "X: expected finite numbers, or NaN .*, got infinity in column 1"),
        ([[1, NAN], [1, NAN]], 48, ValueError, "X: expected a column that is not constant, got none"),
        ([[0], [1]], 0, ValueError, "bins: expected at least 1, got 0"),
        ([[0], [1]], 2.0, TypeError, "bins: expected an integer, got 2.0"),
        ([["a"]], 48, TypeError, "X: expected real numbers"),
        (None, 48, TypeError, "X: expected an array, got None"),
    ],
    ids=str,
)
def test_invalid_data(X, bins, error, message):
    with pytest.raises(error, match=message):
        PiecewiseLinearEncoding.from_data(X, bins)


# ---- in a model ----------------------------------------------------------------------------------
def test_a_function_of_an_unscaled_column_is_learned(rng):
    """Which no linear model has: the sign changes four times, and missing values have a label of their own."""
    X = rng.uniform(-1e4, 3e4, (600, 1))
    y = (np.sin(X[:, 0] / 3e3) > 0).astype(int)
    X[::5], y[::5] = np.nan, 1
    model = Sequential([PiecewiseLinearEncoding.from_data(X, 24), Dense(2)], input_shape=(1,), seed=0)
    trainer = Trainer(model, "softmax_cross_entropy", SGD(1.0, momentum=0.9), ["accuracy"])
    trainer.fit(X, y, epochs=30, batch_size=32, verbose=0)
    assert trainer.evaluate(X, y)["accuracy"] > 0.97


@pytest.mark.oracle("onnxruntime")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_onnx_files_have_the_same_values(dtype, tmp_path):
    """Also of NaN and infinity; the layer is restored."""
    import onnxruntime

    model = encoding_model(dtype=dtype)
    minidl.onnx.export(model, tmp_path / "model.onnx")
    x = np.array([*ROWS, [INF, INF, INF], [-INF, -INF, -INF], [-2, 0, 10], [0.5, -0.0, 11]], dtype)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    assert np.array_equal(session.run(None, {"input": x})[0], model.network.predict(x))
    restored = minidl.onnx.import_model(tmp_path / "model.onnx")
    assert repr(restored.layers) == repr(model.layers)


@pytest.mark.parametrize(
    ("edges", "missing", "shape", "message"),
    [
        ([[0, 1]], False, (2,), "edges: expected one for each of 2 columns, got 1"),
        ([[0, 1]] * 2, [True], (2,), "missing: expected one for each of 2 columns, got 1"),
        ([[0, 1]], False, (1, 2), r"expected \(columns,\), got \(1, 2\): put a Flatten before it"),
        ([[0, "1"]], False, (1,), r"edges\[0\]: expected a number, got '1'"),
        ([[0, NAN]], False, (1,), r"edges\[0\]: expected a finite number that float32 can hold, got nan"),
        ([[], [1, 0]], False, (2,), r"edges\[1\]: expected finite numbers that increase in float32, got \[1.0, 0.0\]"),
        ([[5]], True, (1,), r"edges\[0\]: expected a list of none, or at least two, got \[5.0\]"),
        ([[]], False, (1,), "edges: expected the edges of a bin, or missing values, in at least one column, got none"),
        ([0, 1], False, (2,), r"edges\[0\]: expected a list, got 0"),
        (3, False, (1,), "edges: expected a list, got 3"),
        ([[0, 1]], [0], (1,), "missing: expected True or False, got 0"),
        ([[0, 1]], None, (1,), "missing: expected True or False, got None"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(edges, missing, shape, message):
    with pytest.raises((TypeError, ValueError), match=rf"layer 0, PiecewiseLinearEncoding, input .*: {message}"):
        Sequential([PiecewiseLinearEncoding(edges, missing)], input_shape=shape)
    with pytest.raises(TypeError, match=r"edges\[1\]: expected real numbers"):
        PiecewiseLinearEncoding([[0, 1], np.array(["a"])])


# ---- missing values in X -------------------------------------------------------------------------
def test_only_a_model_with_an_indicator_takes_nan():
    """At the beginning, or at that of a branch; elsewhere NaN is no input."""
    encoding = PiecewiseLinearEncoding([[0, 1]], True)
    beside = Parallel([Columns(0, 1), Embedding(3, 2), Flatten()], [Columns(1), encoding])
    assert Sequential([beside], (2,)).predict([[1, NAN]])[0, 2:].tolist() == [0, 1]
    for layers, width in (
        ([PiecewiseLinearEncoding([[0, 1]])], 1),
        ([Dense(1), PiecewiseLinearEncoding([[0, 1]], True)], 1),
        ([Parallel([Dense(2)], [PiecewiseLinearEncoding([[0, 1]])])], 1),
        ([Parallel([Columns(0, 1)], [Columns(1), Dense(2)])], 2),
    ):
        message = r"X: expected finite values, got NaN or infinity \(first in example 1\)"
        with pytest.raises(minidl.InputError, match=message):
            Sequential(layers, (width,)).predict([[0.5] * width, [NAN] * width])


def test_infinity_and_numbers_beyond_the_dtype_are_refused():
    model = encoding_model()
    refused = (
        (INF, r"expected finite values or NaN, got infinity \(first in example 1\)"),
        (1e39, r"expected values of at most 3.4e\+38 \(float32\), got larger ones"),
    )
    for bad, message in refused:
        for X in ([[0, NAN, 0], [0, bad, 0]], np.asfortranarray([[0, NAN, 0], [0, bad, 0]])):
            with pytest.raises(minidl.InputError, match=f"X: {message}"):
                model.predict(X)


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, Lazy, "map", "batches"])
def test_nan_trains_as_other_numbers(kind, rng, tmp_path):
    """With the bits of a fit on places that were computed before; also of validation data, on disk, in batches."""
    X, y = rng.normal(size=(80, 3)) * [1, 1, 0.5] + [0, 0, 10], rng.integers(0, 2, 80)
    X[rng.random(X.shape) < 0.2] = np.nan
    places = ref.encoding_forward(X.astype("f4"), EDGES, MISSING)
    given, fits = X.astype("f4"), []
    if kind == "map":
        np.save(tmp_path / "X.npy", given)
        given = np.load(tmp_path / "X.npy", mmap_mode="r")
    elif kind != "batches":
        given = kind(given)
    plain = Sequential([Dense(2)], input_shape=(6,), seed=0)
    encoded = encoding_model(Dense(2))
    plain.params["0.weight"].value = encoded.params["1.weight"].value
    for model, rows in ((encoded, given), (plain, places)):
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), seed=1)
        options = {"epochs": 2, "validation_data": (rows, y), "verbose": 0}
        if kind == "batches":
            trainer.fit([(rows[i : i + 16], y[i : i + 16]) for i in range(0, 80, 16)], **options)
        else:
            trainer.fit(rows, y, batch_size=16, **options)
        fits.append((trainer.history, model.predict(rows).tobytes(), trainer.train_batch(rows[:9], y[:9])))
    assert fits[0][0]["val_loss"] == fits[1][0]["val_loss"] and fits[0][1:] == fits[1][1:]


def test_mixed_examples_and_gradients_of_missing_values(rng):
    """A mixture with a missing value is missing."""
    X, y = rng.normal(size=(64, 3)), rng.integers(0, 2, 64)
    X[::4, 2] = np.nan
    model = encoding_model(Dense(2))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    trainer.fit(X, y, epochs=1, mixup=0.2, verbose=0)
    assert np.isfinite(trainer.history["loss"]).all()
    dx = model.input_gradient(X, y=1)
    assert not dx[::4, 2].any() and dx[:, 0].any()


def test_numbers_that_float32_cannot_tell_apart_are_named_beside_missing_ones():
    X, y = np.array([[1.7e9 + k] for k in range(200)]), np.arange(200) % 2
    X[3] = np.nan
    model = Sequential([PiecewiseLinearEncoding([[0, 2e9]], True), Dense(2)], input_shape=(1,))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1))
    with pytest.warns(UserWarning, match=r"float32 has steps of 128 .* element 0 of the examples is, from 1700000000"):
        trainer.fit(X, y, epochs=1, verbose=0)
    exact = np.where(X < 1.7e9 + 10, 2.0**30, X * 0 + 2.0**30 + 128)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.fit(exact, y, epochs=1, verbose=0)
