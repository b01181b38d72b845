"""Values as JSON: decoding restores type, bits and order."""

import json
import math

import numpy as np
import pytest

from minidl.saving.json_codec import MAX_DEPTH, decode, encode


def nothing(value, where):
    return None


def unknown(kind, content):
    raise ValueError(f"unknown kind {kind!r}")


def round_trip(value):
    text = json.dumps(encode(value, "value", nothing), allow_nan=False)
    return decode(json.loads(text), unknown)


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (float, np.generic)):
        return np.array(a).tobytes() == np.array(b).tobytes() or (math.isnan(a) and math.isnan(b))
    return a == b


VALUES = [
    *(None, True, 0, -1, 2**80, "", "ä\ud7ff\x00", 0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan),
    *([], (), {}, [1, [2, (3, [])]], (1,), ((1, 2), [3]), {"a": 1, "b": {"c": ()}}, {1: "x", (1, 2): None, None: 0}),
    *({"tuple": [1]}, {"float": "nan"}, {"z": 1, "a": 2}),
    *(np.float32(0.1), np.float64(0.1), np.float16(np.inf), np.int8(-7), np.uint64(2**64 - 1), np.bool_(True)),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_round_trip(value):
    assert same(round_trip(value), value)


def test_custom_kinds():
    def other(value, where):
        return {"complex": [value.real, value.imag]} if isinstance(value, complex) else None

    encoded = encode([(1j,)], "value", other)
    assert decode(encoded, lambda kind, content: complex(*content)) == [(1j,)]


class StrSubclass(str):
    """A str subclass, which a file could not restore."""


@pytest.mark.parametrize("value", [1j, object(), b"x", {1}, StrSubclass("a"), np.zeros(2), len, np.longdouble(1)])
def test_unsavable_values_are_named(value):
    with pytest.raises(TypeError, match=r"optimizer\['a'\]\[1\]: cannot be saved: .* got"):
        encode({"a": [0, value]}, "optimizer", nothing)


def test_self_references_are_refused():
    cyclic = []
    cyclic.append(cyclic)
    with pytest.raises(TypeError, match=f"nested at most {MAX_DEPTH} deep"):
        encode(cyclic, "value", nothing)


BAD = [
    *({}, {"tuple": [1], "dict": []}, {"tuple": 1}, {"dict": [1]}, {"dict": [[1]]}, {"dict": [[[], 1]]}),
    *({"float": "1"}, {"float": []}, {"numpy": 1}, {"numpy": ["float32"]}, {"numpy": ["object", 1]}),
    *({"numpy": ["int8", 300]}, {"numpy": ["float32", "1"]}, {"numpy": [[], 1]}, {"else": 1}, [{"else": 1}]),
]


@pytest.mark.parametrize("encoded", BAD, ids=repr)
def test_input_that_encode_cannot_produce_is_refused(encoded):
    with pytest.raises(ValueError, match=r"."):
        decode(encoded, unknown)
