"""Tables as strangers have them: a result, or an error that names the column."""

import datetime
import decimal
import re

import numpy as np
import pytest

from minidl import InputError
from minidl.estimators import TabularClassifier, TabularRegressor

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 80
Z = RNG.normal(size=N)
Y = np.where(Z + 0.3 * RNG.normal(size=N) > 0, "yes", "no")
DAYS = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.round(1000 * Z), "h")


def few(**options):
    return TabularClassifier(**{"epochs": 2, "n_folds": 2, "hidden_layer_sizes": (8,), "random_state": 0, **options})


def with_gaps(values, missing):
    return [missing if i % 5 == 0 else value for i, value in enumerate(values)]


# ---- those that give a result

FINE = {
    "numbers": {"a": Z},
    "numbers and strings": {"a": Z, "b": np.where(Z > 0, "x", "y")},
    "booleans": {"a": Z > 0},
    "nullable integers": {"a": pd.array(with_gaps(np.round(9 * Z).astype(int).tolist(), None), "Int64")},
    "nullable booleans": {"a": pd.array(with_gaps((Z > 0).tolist(), None), "boolean")},
    "nullable floats": {"a": pd.array(with_gaps(Z.tolist(), None), "Float64")},
    "strings with NA": {"a": pd.array(with_gaps(Y.tolist(), None), "string")},
    "objects with None and NaN": {"a": with_gaps(with_gaps(Y.tolist(), None)[::-1], np.nan)},
    "objects that are numbers": {"a": pd.Series(with_gaps(Z.tolist(), None), dtype=object)},
    "objects of several types": {"a": pd.Series([["x", 1, 2.5, True, None][i % 5] for i in range(N)], dtype=object)},
    "decimals": {"a": pd.Series([decimal.Decimal(f"{value:.3f}") for value in Z], dtype=object)},
    "a category": {"a": pd.Categorical(Y)},
    "a category of numbers": {"a": pd.Categorical(np.round(Z))},
    "dates": {"a": DAYS},
    "dates with NaT": {"a": pd.Series(DAYS).where(np.arange(N) % 7 > 0)},
    "dates of a time zone": {"a": DAYS.tz_localize("Europe/Berlin", ambiguous=True, nonexistent="shift_forward")},
    "dates as objects": {"a": pd.Series([datetime.date(2024, 1, 1 + i % 28) for i in range(N)], dtype=object)},
    "durations": {"a": pd.to_timedelta(Z, "D")},
    "periods": {"a": pd.PeriodIndex(DAYS, freq="D")},
    "a column without values": {"a": Z, "b": np.full(N, np.nan)},
    "a column of None": {"a": Z, "b": [None] * N},
    "constant columns": {"a": Z, "b": 1.0, "c": "same"},
    "only missing or not": {"a": np.where(Z > 0, 1.0, np.nan)},
    "large integers": {"a": 2**60 + np.round(1000 * Z).astype(np.int64)},
    "huge and tiny numbers": {"a": Z * 1e300, "b": Z * 1e-300},
    "mostly one value": {"a": np.where(Z > 1, Z, 0)},
    "more categories than rows repeat": {"a": [f"id {i}" for i in range(N)], "b": Z},
    "integers as names": {0: Z, 1: Z},
    "numbers as float16": {"a": Z.astype("float16")},
    "an index that repeats": {"a": pd.Series(Z, index=np.zeros(N))},
}


@pytest.mark.parametrize("name", FINE)
def test_a_table_has_a_result(name):
    frame = pd.DataFrame(FINE[name])
    fitted = few().fit(frame, Y)
    probabilities = fitted.predict_proba(frame)
    assert probabilities.shape == (N, 2) and np.isfinite(probabilities).all()
    rest = frame.iloc[::-1].iloc[: N // 2]
    np.testing.assert_array_equal(fitted.predict_proba(rest), probabilities[::-1][: N // 2])


@pytest.mark.parametrize(
    "name", ["numbers", "dates of a time zone", "decimals", "large integers", "a category", "periods"]
)
def test_it_learns_from_them(name):
    frame = pd.DataFrame(FINE[name])
    assert few(epochs=60, hidden_layer_sizes=(32,)).fit(frame, Y).score(frame, Y) > 0.75


def test_many_columns_and_many_categories():
    wide = pd.DataFrame(RNG.normal(size=(40, 1500)))
    fitted = few(epochs=1).fit(wide, Y[:40])
    assert fitted.predict(wide).shape == (40,)
    assert fitted.model_[0].out_shape == (4 * 1500,)  # bins: 48 for each column would be 18 times 4096
    rare = np.where(np.arange(4000) % 3, 0, np.arange(4000) % 100 + 1.0)
    spiked = few(epochs=1).fit(rare[:, None], rare > 50)
    assert spiked.model_[0].out_shape == (100,)  # a column of mostly one value has an edge for each
    n = 12_000
    many = pd.DataFrame({"a": RNG.integers(0, 2000, n).astype(str), "b": RNG.normal(size=n)})
    fitted = few(epochs=1).fit(many, many["b"] > 0)
    assert fitted._encoder.categories[0].n_codes == 255 and fitted.predict(many[:3]).shape == (3,)


# ---- those that are refused

REFUSED = {
    "an integer beyond float64": (
        {"a": pd.Series([10**400] * N, dtype=object)},
        "column 'a': expected numbers that float64",
    ),
    "infinity": ({"a": Z, "size": np.where(Z > 2, np.inf, Z)}, "column 'size': expected finite numbers"),
    "complex numbers": ({"a": Z, "b": Z + 1j}, "column 'b': expected numbers, dates or categories, got complex128"),
    "lists": ({"a": Z, "b": [[i] for i in range(N)]}, r"column 'b': expected categories, got \[0\]"),
    "dicts": ({"a": Z, "b": [{}] * N}, "column 'b': expected categories, got {}"),
    "arrays": ({"a": Z, "b": [np.zeros(2)] * N}, r"column 'b': expected categories, got"),
    "nothing that varies": ({"a": [1.0] * N, "b": "same"}, "expected a column that varies, got 2 constant ones"),
    "all missing": ({"a": np.full(N, np.nan)}, "expected a column that varies, got 1 constant ones"),
    "subnormal numbers": ({"a": Z * 1e-310}, "expected a column that varies, got 1 constant ones"),
    "no columns": ({}, "0 feature"),
    "no rows": ({"a": []}, "0 sample"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_is_refused_by_name(name):
    columns, message = REFUSED[name]
    frame = pd.DataFrame(columns) if columns else pd.DataFrame(index=range(N))
    estimator = few()
    with pytest.raises(InputError, match=message):
        estimator.fit(frame, Y[: len(frame)])
    assert not hasattr(estimator, "n_features_in_")


def test_names_of_several_types_are_refused():
    with pytest.raises(InputError, match=r"X: expected names of columns that are all strings, or none"):
        few().fit(pd.DataFrame({0: Z, "a": Z}), Y)


def test_duplicate_names_are_refused():
    with pytest.raises(InputError, match="X: expected columns whose names differ, got several of 'a'"):
        few().fit(pd.DataFrame(np.column_stack([Z, -Z]), columns=["a", "a"]), Y)


def test_one_row_and_one_class_are_refused():
    with pytest.raises(InputError, match="expected at least two classes, got one class"):
        few().fit(pd.DataFrame({"a": Z}), ["same"] * N)
    with pytest.raises(InputError, match="n_samples = 1"):
        TabularRegressor().fit(pd.DataFrame({"a": [1.0]}), [1.0])


def test_later_tables_have_the_columns_of_the_fit():
    frame = pd.DataFrame({"a": Z, "b": Y})
    fitted = few().fit(frame, Y)
    for other, message in [
        (frame[["b", "a"]], "feature names"),
        (frame[["a"]], "feature names"),
        (frame.assign(c=1), "feature names"),
        (frame.assign(a="x"), re.escape("X: column 'a': expected numbers, as in fit, got 'x'")),
        (frame.assign(a=np.inf), "column 'a': expected finite numbers"),
        (frame.assign(b=[[1]] * N), "column 'b': expected categories"),
        (frame.assign(b=3), re.escape("X: column 'b': expected values of type str, as in fit, got 3")),
        (frame.assign(a=DAYS), re.escape("X: column 'a': expected numbers, as in fit, got ")),
    ]:
        with pytest.raises(InputError, match=message):
            fitted.predict(other)


def test_unknown_and_missing_values_later_are_those_without_information():
    """A category is as rare ones, or without an output; a missing number the median; others in the range of the fit."""
    frame = pd.DataFrame({"a": Z, "b": np.where(Z > 0, "x", "y")})
    fitted = few().fit(frame, Y)
    unknown = [fitted.predict_proba(frame[:1].assign(b=value)) for value in ("z", None, np.nan, pd.NA)]
    assert all(np.array_equal(unknown[0], other) for other in unknown)
    for value, same in ((np.nan, np.median(Z)), (-1e9, Z.min()), (1e300, Z.max())):
        one, other = (fitted.predict_proba(frame[:1].assign(a=a)) for a in (value, same))
        np.testing.assert_array_equal(one, other)
    rare = few().fit(frame.assign(b=["q", *frame["b"][1:]]), Y)
    assert rare._encoder.categories[1].has_rare
    np.testing.assert_array_equal(*(rare.predict_proba(frame[:1].assign(b=value)) for value in ("q", "unknown")))


def test_dates_keep_their_order_far_from_today():
    """Nanoseconds would wrap around before 1677 and after 2262."""
    years = np.array([f"{year}-01-01" for year in range(1200, 9200, 100)], "M8[D]")
    arrays = [years, years.astype("M8[s]"), years.astype("M8[us]")]
    frames = [pd.DataFrame({"d": years.astype("M8[s]")}), pd.DataFrame({"d": [d.item() for d in years]}, dtype=object)]
    seconds = years.astype("M8[s]").astype(np.int64)
    for table in [*(array[:, np.newaxis] for array in arrays), *frames]:
        fitted = few().fit(table, Y[: len(years)])
        assert (np.diff(fitted.encode(table)[:, 0]) > 0).all()
        assert fitted._encoder.numbers[0].edges[0] == seconds[0] and fitted._encoder.numbers[0].edges[-1] == seconds[-1]
        assert fitted.model_.metadata["inputs"][0]["kind"] == "seconds since 1970-01-01 (UTC)"


def test_lists_keep_numbers_beside_strings():
    rows = [[float(z), str(y)] for z, y in zip(Z, Y, strict=True)]
    fitted = few().fit(rows, Y)
    assert list(fitted._encoder.numbers) == [0] and list(fitted._encoder.categories) == [1]
    np.testing.assert_array_equal(fitted.encode(rows), fitted.encode(np.array(rows, object)))


def test_rows_of_weight_0_may_hold_anything():
    frame = pd.DataFrame({"a": Z, "b": Y})
    odd = frame.astype(object)
    odd.loc[5, "a"], odd.loc[6, "b"], odd.loc[7, "a"] = "oops", [1], np.inf
    weights = np.ones(N)
    weights[5:8] = 0
    one, other = (few().fit(table, Y, weights).predict_proba(frame) for table in (frame, odd))
    np.testing.assert_array_equal(one, other)


def test_whole_numbers_are_named_so_beside_missing_ones():
    zips = pd.DataFrame({"zip": np.where(Z > 1, np.nan, np.where(Z > 0, 94110, 10001)), "a": Z})
    fitted = few(categorical_features=["zip"]).fit(zips, Y)
    assert fitted.model_.metadata["inputs"][1]["codes"] == ["10001", "94110"]


def test_columns_may_be_declared_to_have_categories():
    frame = pd.DataFrame({"a": np.round(Z).astype(int), "b": Z})
    for declared in (["a"], [0], np.array([0])):
        fitted = few(categorical_features=declared).fit(frame, Y)
        assert list(fitted._encoder.categories) == [0]
    assert list(few(categorical_features=[0]).fit(frame.to_numpy(), Y)._encoder.categories) == [0]
    for wrong in (["c"], [2], [-1], [1.5], "a", [True], None, 5, [[0]]):
        with pytest.raises(
            (TypeError, ValueError), match="categorical_features: expected names or indices of 2 columns"
        ):
            few(categorical_features=wrong).fit(frame, Y)


def test_numbers_as_names_of_columns_are_compared():
    frame = pd.DataFrame({1: Z, 2: Z**2})
    fitted = few().fit(frame, Y)
    with pytest.raises(InputError, match=r"X: expected the columns \[1, 2\], as in fit, got \[2, 1\]"):
        fitted.predict(frame[[2, 1]])
    np.testing.assert_array_equal(fitted.predict(frame.to_numpy()), fitted.predict(frame))
