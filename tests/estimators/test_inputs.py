"""X of every kind: equal values give the same model, bit for bit; wrong shapes are refused."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse
from odd_arrays import ALWAYS, KINDS, NEVER, Lazy, plain

from minidl import InputError, Sequential
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.estimators.inputs import validate_input
from minidl.layers import Conv1D, Conv2D, Dense, Embedding, Flatten, ReLU

RNG = np.random.default_rng(0)
X, Y = RNG.integers(-3, 4, (60, 12)).astype("float32"), np.arange(60) % 3  # integers: exact in float16
IMAGES = X.reshape(60, 1, 3, 4)
FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


def make_classifier(model=None, **options):
    return SequentialClassifier(model, **{"epochs": 3, "tol": None, "batch_size": 16, "random_state": 0, **options})


def probabilities(X, **options):
    return make_classifier(**options).fit(X, Y).predict_proba(X)


# ---- arrays
@pytest.mark.parametrize(
    "dtype, computed",
    [("uint8", "float32"), ("int64", "float32"), (">i2", "float32"), ("bool", "float32"), ("float16", "float32"),
     ("float32", "float32"), (">f4", "float32"), ("float64", "float64"), (">f8", "float64"), ("longdouble", "float64"),
     ("object", "float64")],
)  # fmt: skip
def test_dtypes_are_equivalent_and_float64_is_computed_in_float64(dtype, computed):
    given = abs(X).astype(dtype)
    fitted = make_classifier().fit(given, Y)
    assert fitted.model_.dtype == computed == fitted.predict_proba(given).dtype
    np.testing.assert_array_equal(fitted.predict_proba(given), probabilities(given.astype(computed)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_requested_dtype_is_used(dtype):
    for given in (X, X.astype("float64"), X.astype(int)):
        fitted = make_classifier(dtype=dtype).fit(given, Y)
        assert fitted.model_.dtype == dtype
        np.testing.assert_array_equal(fitted.predict_proba(given), probabilities(X.astype(dtype)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fit", "predict"])
def test_odd_arrays(method, kind):
    """Arrays of the same values give the same result, others are refused; scikit-learn accepts object arrays."""
    odd = KINDS[kind](IMAGES)
    right = make_classifier().fit(IMAGES, Y)
    try:
        result = make_classifier().fit(odd, Y) if method == "fit" else right.predict_proba(odd)
    except (TypeError, ValueError, MemoryError) as error:
        assert kind not in ALWAYS and str(error)
        return
    assert kind not in set(NEVER) - {"object"}
    if method == "fit":
        expected = make_classifier().fit(plain(odd, result.model_.dtype), Y).predict_proba(IMAGES)
        np.testing.assert_array_equal(result.predict_proba(IMAGES), expected)
    else:
        np.testing.assert_array_equal(result, right.predict_proba(plain(odd, "float32")))


def test_lists_of_rows_and_of_images():
    rows, images = X.astype(float), IMAGES.astype(float)
    np.testing.assert_array_equal(probabilities(rows.tolist()), probabilities(rows))
    assert make_classifier().fit(images.tolist(), Y).input_shape_ == (1, 3, 4)
    np.testing.assert_array_equal(probabilities(images.tolist()), probabilities(images))


def test_a_memory_map_is_read_and_not_written(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    before = (tmp_path / "X.npy").read_bytes()
    np.testing.assert_array_equal(probabilities(mapped), probabilities(X))
    assert (tmp_path / "X.npy").read_bytes() == before


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_in_fit_and_predict(value):
    fitted = make_classifier().fit(IMAGES, Y)
    for invalid in (X.copy(), IMAGES.copy(), scipy.sparse.csr_matrix(X)):
        (invalid.data if scipy.sparse.issparse(invalid) else invalid).reshape(-1)[7] = value
        for call in (lambda X: make_classifier().fit(X, Y), fitted.predict):
            with pytest.raises(ValueError, match=r"X contains (NaN|infinity)"):
                call(invalid)


def test_values_that_overflow_the_dtype_are_refused():
    with pytest.raises(ValueError, match=r"X: expected values of at most 3.4e\+38 \(float32\)"):
        make_classifier(dtype="float32").fit(X.astype(float) * 1e300, Y)


# ---- shapes
def test_images_and_their_flattened_rows_are_equivalent():
    of_images = make_classifier().fit(IMAGES, Y)
    assert of_images.input_shape_ == of_images.model_.input_shape == (1, 3, 4) and of_images.n_features_in_ == 12
    of_rows = make_classifier(input_shape=(1, 3, 4)).fit(X, Y)
    of_lists = make_classifier(input_shape=[1, 3, 4]).fit(X, Y)
    without_channels = make_classifier().fit(IMAGES[:, 0], Y)
    for fitted in (of_images, of_rows, of_lists, without_channels):
        assert any(isinstance(layer, Conv2D) for layer in fitted.model_.layers)
        for given in (X, IMAGES, IMAGES[:, 0], X.tolist(), np.asfortranarray(IMAGES)):
            np.testing.assert_array_equal(fitted.predict_proba(given), of_images.predict_proba(IMAGES))


def test_rows_are_used_as_rows():
    fitted = make_classifier().fit(X, Y)
    assert fitted.input_shape_ == (12,)
    with pytest.raises(ValueError, match=r"X: expected examples of shape \(12,\), got \(1, 3, 4\)"):
        fitted.predict(IMAGES)


def test_wrong_widths_and_shapes_are_refused():
    fitted = make_classifier().fit(IMAGES, Y)
    for given, message in (
        (X[:, :11], "X has 11 features, but SequentialClassifier is expecting 12 features"),
        (IMAGES.reshape(60, 1, 4, 3), r"X: expected examples of shape \(1, 3, 4\), got \(1, 4, 3\)"),
        (IMAGES.reshape(60, 3, 4, 1), r"got \(3, 4, 1\): channels come first, X.transpose\(0, 3, 1, 2\)"),
        (X[0], "Expected 2D array, got 1D array"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted.predict(given)
    with pytest.raises(ValueError, match=r"X: expected 13 features, for examples of shape \(13,\), got 12"):
        make_classifier(input_shape=(13,)).fit(X, Y)
    with pytest.raises(ValueError, match="channels come first"):
        make_classifier(input_shape=(3, 2, 2)).fit(X.reshape(60, 2, 2, 3), Y)


def test_the_input_shape_of_a_built_model_is_used():
    model = Sequential([Conv2D(2, 3, padding=1), ReLU(), Flatten(), Dense(3)], input_shape=(1, 3, 4))
    of_rows, of_images = make_classifier(model).fit(X, Y), make_classifier(model).fit(IMAGES, Y)
    np.testing.assert_array_equal(of_rows.predict_proba(X), of_images.predict_proba(X))
    with pytest.raises(ValueError, match=r"X: expected 12 features, for examples of shape \(1, 3, 4\), got 11"):
        make_classifier(model).fit(X[:, :11], Y)
    with pytest.raises(ValueError, match=r"model: expected one for inputs of shape \(2, 6\), got one for \(1, 3, 4\)"):
        make_classifier(model, input_shape=(2, 6)).fit(X, Y)


def test_zero_examples_and_zero_features_are_refused():
    for given in (X[:0], IMAGES[:0]):
        with pytest.raises(ValueError, match=r"0 sample\(s\)"):
            make_classifier().fit(given, Y[:0])
    for given in (X[:, :0], IMAGES[:, :, :0]):
        with pytest.raises(ValueError, match=r"0 feature\(s\)"):
            make_classifier().fit(given, Y)


# ---- data frames
def test_data_frames_and_their_column_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X.astype(float), columns=[f"c{i}" for i in range(12)])
    labels = pandas.Series(np.array(["a", "b", "c"])[Y], index=RNG.permutation(60))
    fitted = make_classifier().fit(frame, labels)
    assert fitted.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_array_equal(fitted.predict_proba(frame), probabilities(X.astype(float)))
    assert set(fitted.predict(frame)) <= {"a", "b", "c"}
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame.rename(columns={"c0": "other"}))
    with pytest.raises(ValueError, match="feature names"):
        fitted.partial_fit(frame[frame.columns[::-1]], labels)
    with pytest.warns(UserWarning, match="feature names"):
        fitted.predict(X)


def test_columns_of_different_dtypes():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[:, 0].astype("int8"), "b": X[:, 1] > 0, "c": X[:, 2]})
    expected = np.stack([X[:, 0], X[:, 1] > 0, X[:, 2]], axis=1).astype("float32")
    np.testing.assert_array_equal(probabilities(frame), probabilities(expected))


def test_targets_in_a_frame():
    pandas = pytest.importorskip("pandas")
    targets = pandas.DataFrame({"u": X[:, 0], "v": X[:, 1]})
    fitted = SequentialRegressor(epochs=2, random_state=0).fit(X, targets)
    expected = SequentialRegressor(epochs=2, random_state=0).fit(X, targets.to_numpy())
    np.testing.assert_array_equal(fitted.predict(X), expected.predict(X))


# ---- sparse matrices
@pytest.mark.parametrize("kind", [f"{name}_{form}" for name in FORMATS for form in ("matrix", "array")])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool"])
@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
def test_sparse_matrices_have_the_bits_of_dense_ones(kind, dtype):
    dense = np.where(X > 1, X, 0).astype(dtype)
    sparse = getattr(scipy.sparse, kind)(dense)
    np.testing.assert_array_equal(probabilities(sparse), probabilities(dense))


@pytest.mark.parametrize(
    "options",
    [{"early_stopping": True, "validation_fraction": 0.2}, {"class_weight": "balanced"}, {"input_shape": (1, 3, 4)},
     {"shuffle": False}, {"optimizer": "sgd"}],
    ids=str,
)  # fmt: skip
def test_sparse_matrices_work_wherever_dense_ones_do(options):
    sparse = scipy.sparse.csr_matrix(X)
    on_sparse, on_dense = (make_classifier(**options).fit(given, Y) for given in (sparse, X))
    np.testing.assert_array_equal(on_sparse.predict_proba(sparse), on_dense.predict_proba(X))
    np.testing.assert_array_equal(on_sparse.transform(sparse), on_dense.transform(X))
    assert on_sparse.loss_curve_ == on_dense.loss_curve_ and on_sparse.score(sparse, Y) == on_dense.score(X, Y)


def test_partial_fit_on_sparse_matrices():
    on_sparse, on_dense = make_classifier(), make_classifier()
    for rows in (slice(0, 40), slice(20, 60)):
        on_sparse.partial_fit(scipy.sparse.csr_array(X[rows]), Y[rows], classes=[0, 1, 2])
        on_dense.partial_fit(X[rows], Y[rows], classes=[0, 1, 2])
    np.testing.assert_array_equal(on_sparse.predict_proba(X), on_dense.predict_proba(X))


WIDE = """
import resource
import numpy as np
import scipy.sparse
from minidl.estimators import SequentialClassifier
from minidl.layers import Dense

n = 20_000
rng = np.random.default_rng(0)
X = scipy.sparse.csr_matrix((np.ones(50 * n, "f4"), rng.integers(0, n, 50 * n), np.arange(n + 1) * 50), shape=(n, n))
X.data[:] = rng.normal(size=len(X.data))
y = rng.integers(0, 10, n)
def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
before = megabytes()
classifier = SequentialClassifier([Dense(10)], epochs=1, early_stopping=True, random_state=0).fit(X, y)
classifier.predict(X)
print(megabytes() - before)
"""


@pytest.mark.slow
def test_a_wide_sparse_matrix_is_never_dense_as_a_whole():
    """It would take 1.6 GB."""
    run = subprocess.run([sys.executable, "-c", WIDE], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 500


def test_signals_need_an_input_shape():
    """Three axes are grey images, as in scikit-learn's data sets."""
    signals, layers = X.reshape(60, 3, 4), [Conv1D(2, 2), Flatten(), Dense(3)]
    with pytest.raises(ValueError, match=r"got \(1, 3, 4\): for signals, set input_shape=\(channels, length\)"):
        make_classifier(layers).fit(signals, Y)
    assert make_classifier(layers, input_shape=(3, 4)).fit(signals, Y).input_shape_ == (3, 4)


@pytest.mark.parametrize("unknown", [-1.0, 3.0, 0.5])
def test_unknown_categories_are_refused(unknown):
    """argmax of NaN is the first class, which a prediction must not be taken for."""
    codes, layers = Y[:, np.newaxis].astype("float32"), [Embedding(3, 2), Flatten(), Dense(3)]
    classifier = make_classifier(layers).fit(codes, Y)
    regressor = SequentialRegressor([*layers[:2], Dense(1)], epochs=1, random_state=0).fit(codes, Y.astype(float))
    other = np.where(np.arange(60)[:, np.newaxis] == 7, unknown, codes)
    for predict in (classifier.predict, classifier.predict_proba, classifier.predict_log_proba, regressor.predict):
        assert len(predict(codes)) == 60
        with pytest.raises(ValueError, match="X: expected rows with scores, got NaN for example 7 of X: an Embedding"):
            predict(other)


# ---- arrays that are not copied


def test_maps_windows_and_lazy_arrays_are_not_copied(tmp_path):
    """Nor rows of weight 0 looked at; integers that float32 rounds, and one channel that is missing, count."""
    series = RNG.normal(size=130).astype("float32")
    windows = np.lib.stride_tricks.sliding_window_view(series, 12)[:60]
    np.save(tmp_path / "series.npy", series)
    on_disk = np.lib.stride_tricks.sliding_window_view(np.load(tmp_path / "series.npy", mmap_mode="r"), 12)[:60]
    layers = [Conv1D(4, 3), ReLU(), Flatten(), Dense(3)]
    expected = make_classifier(layers, input_shape=(1, 12)).fit(windows.copy(), Y).predict_proba(windows.copy())
    for given in (windows, on_disk, windows[:, np.newaxis], on_disk[:, np.newaxis]):
        fitted = make_classifier(layers, input_shape=(1, 12)).fit(given, Y)
        assert np.shares_memory(validate_input(fitted, given, reset=False)[0], given)
        np.testing.assert_array_equal(fitted.predict_proba(given), expected)
    for values in (X, IMAGES, IMAGES[:, 0], (X.astype("int64") + 2**24) * 3, X.astype(float)):
        of_array, of_lazy = make_classifier().fit(values, Y), make_classifier().fit(Lazy(values), Y)
        assert of_lazy.input_shape_ == of_array.input_shape_ and of_lazy.n_features_in_ == 12
        assert of_lazy.model_.dtype == of_array.model_.dtype
        np.testing.assert_array_equal(of_lazy.predict_proba(Lazy(values)[:59]), of_array.predict_proba(values[:59]))


@pytest.mark.parametrize("kind", [Lazy, lambda array: array.transpose(0, 2, 1)[:, :, ::1].transpose(0, 2, 1)[:, ::-1]])
def test_arrays_that_are_not_copied_are_checked(kind):
    images = RNG.normal(size=(60, 3, 4)).astype("float32")
    fitted = make_classifier().fit(kind(images), Y)
    for given, message in (
        (kind(images[:, :2]), r"X: expected examples of shape \(1, 3, 4\), got \(2, 4\)"),
        (kind(images[:0]), "Found array with 0 sample"),
        (kind(images * 1j), "Complex data not supported|expected real numbers"),
    ):
        with pytest.raises(InputError, match=message):
            fitted.predict(given)
    images[41, 1, 1] = np.nan
    for call in (lambda X: make_classifier().fit(X, Y), fitted.predict, fitted.transform):
        with pytest.raises(InputError, match=r"X: expected finite values, got NaN or infinity \(first in example 41\)"):
            call(kind(images))
    weights = (np.arange(60) != 41).astype(float)
    make_classifier().fit(kind(images), Y, weights)
    with pytest.raises(InputError, match="inconsistent numbers of samples"):
        make_classifier().fit(kind(images), Y[1:])
