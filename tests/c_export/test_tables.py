"""Numbers in C text are exact."""

import numpy as np
import pytest

from minidl.c_export import tables


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_read_back_exactly(dtype, rng):
    info = np.finfo(dtype)
    special = [0.0, -0.0, 1.0, -1.0, info.max, info.min, info.tiny, info.eps, 0.1, 1 / 3, 2.0**30]
    values = np.concatenate([special, rng.standard_normal(500), np.exp(rng.standard_normal(500) * 20)]).astype(dtype)
    items = [tables.number(value, dtype).strip("()") for value in values.tolist()]
    assert all(item.endswith("f") == (dtype == "float32") for item in items)
    back = np.array([float.fromhex(item.rstrip("f")) for item in items], dtype)
    assert back.tobytes() == values.tobytes()


@pytest.mark.parametrize(("dtype", "kind"), [("float32", np.uint32), ("float64", np.uint64)])
def test_words_are_the_bits(dtype, kind, rng):
    values = np.concatenate([[0.0, -0.0, np.finfo(dtype).tiny], rng.standard_normal(100)]).astype(dtype)
    words = [int(word, 16) for word in tables.words(values).replace("\n", "").split(",")]
    assert np.array(words, kind).view(dtype).tobytes() == values.tobytes()


def test_subnormal_numbers_become_zeros_of_their_sign():
    values = np.array([1e-39, -1e-39, 0.0, -0.0, np.finfo("f4").tiny, -2.0], "float32")
    flushed = tables.flushed(values)
    assert flushed.tolist() == [0, 0, 0, 0, values[4], -2]
    assert np.signbit(flushed).tolist() == [False, True, False, True, False, True]
