"""batch_sum: sums arrays of per-example values in the order of a batch's reduction."""

import numpy as np
import pytest

import minidl

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (3,), (4, 1), (2, 3, 3, 5)])
def test_arrays_of_all_shapes_and_layouts_have_the_same_sum(dtype, shape):
    g = RNG.standard_normal((70, *shape)).astype(dtype)
    total = minidl.batch_sum(g)
    assert np.shape(total) == shape and total.dtype == dtype
    assert np.allclose(total, g.sum(axis=0, dtype="f8"), 1e-4)
    turned = np.ascontiguousarray(g.transpose(0, *range(g.ndim - 1, 0, -1))).transpose(0, *range(g.ndim - 1, 0, -1))
    for other in (turned, np.repeat(g, 2, axis=0)[::2], g.astype(g.dtype.newbyteorder()), g[::-1][::-1], g.tolist()):
        again = minidl.batch_sum(np.asarray(other, dtype) if isinstance(other, list) else other)
        assert np.array_equal(again, total) and again.dtype == dtype
    g.flags.writeable = False
    assert np.array_equal(minidl.batch_sum(g), total)


def test_a_dict_gives_a_dict():
    g = {"a": RNG.standard_normal((5, 2)), "b": RNG.standard_normal((5,)).astype("f4")}
    result = minidl.batch_sum(g)
    assert list(result) == ["a", "b"] and all(np.array_equal(result[k], minidl.batch_sum(v)) for k, v in g.items())
    assert minidl.batch_sum({}) == {}


def test_empty_batch_sums_to_zero():
    assert np.array_equal(minidl.batch_sum(np.empty((0, 2, 3), "f4")), np.zeros((2, 3)))
    assert minidl.batch_sum(np.empty((4, 0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("g", "error", "message"),
    [
        (np.arange(6).reshape(3, 2), TypeError, "g: expected float32 or float64, got int64"),
        (np.ones((3, 2), "f2"), TypeError, "g: expected float32 or float64, got float16"),
        (np.float64(3), ValueError, "g: expected examples along the first axis"),
        ({"w": np.ones((2, 2)), "b": None}, TypeError, r"g\['b'\]: expected an array, got None"),
        (None, TypeError, "g: expected an array, got None"),
        (np.ma.masked_array(np.ones(3), [0, 1, 0]), TypeError, "without a mask"),
    ],
)
def test_other_types_are_refused_by_name(g, error, message):
    with pytest.raises(error, match=message):
        minidl.batch_sum(g)


def test_infinity_and_nan_propagate():
    g = np.ones((20, 3))
    g[7, 1], g[9, 2] = np.inf, np.nan
    assert np.array_equal(minidl.batch_sum(g), [20, np.inf, np.nan], equal_nan=True)
