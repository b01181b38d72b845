"""Values that are carried along as one array: which layers take them out, pass them on, and put them in."""

import numpy as np
import pytest

from minidl import Sequential
from minidl.onnx.structure.carried_values import CarriedValues

CHANNELS = {3: (2, 4, 5), 1: (3, 4, 5), 7: (1, 4, 5)}
SIZES = {3: (2, 4, 5), 1: (3, 2, 2), 7: (6,)}


def apply(layers, x):
    if not layers:
        return x
    return Sequential([weighted.layer for weighted in layers], x.shape[1:], dtype="float64").predict(x)


def arrays(shapes, rng):
    return {i: rng.standard_normal((2, *shape)) for i, shape in shapes.items()}


def packed(carried, values):
    return np.concatenate([apply(carried.pack(value.shape[1:]), value) for value in values.values()], 1)


@pytest.mark.parametrize(("shapes", "shape"), [(CHANNELS, (6, 4, 5)), (SIZES, (58,)), ({2: (3, 4)}, (3, 4))])
def test_values_are_packed_and_unpacked(shapes, shape, rng):
    carried, values = CarriedValues(shapes), arrays(shapes, rng)
    x = packed(carried, values)
    assert x.shape[1:] == carried.shape == shape
    for i, value in values.items():
        assert np.array_equal(apply(carried.unpack(i), x), value)


@pytest.mark.parametrize("kept", [[3], [7], [3, 1], [3, 7], [3, 1, 7]])
@pytest.mark.parametrize("new", [(2, 4, 5), (2, 2, 2), (4,)])
@pytest.mark.parametrize("shapes", [CHANNELS, SIZES])
def test_kept_values_are_passed_on(shapes, new, kept, rng):
    """Images of one size become vectors if a value of another size is new, and images again if it is gone."""
    carried, values = CarriedValues(shapes), arrays(shapes, rng)
    x, added = packed(carried, values), rng.standard_normal((2, *new))
    following = CarriedValues({**{i: shapes[i] for i in kept}, 9: new})
    branches = carried.pass_on(kept, following)
    parts = [apply(branch, x) for branch in branches] + [apply(following.pack(new), added)]
    assert len(branches) == (2 if kept == [3, 7] else 1)  # neighbours together
    assert np.array_equal(np.concatenate(parts, 1), packed(following, {**{i: values[i] for i in kept}, 9: added}))


def test_vectors_stay_vectors():
    """Between images of several sizes, without a layer."""
    vectors, images = {1: (3,), 2: (4,)}, {5: (2, 2, 2)}
    assert CarriedValues(vectors).pass_on([1, 2], CarriedValues(vectors | images)) == [[]]
