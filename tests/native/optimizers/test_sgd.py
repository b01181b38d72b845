"""sgd: exact momentum and weight decay. test_update.py compares with the formula."""

import numpy as np
import pytest

from minidl_c.optimizers.sgd import SGDUpdate

DTYPES = ("float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_of_integers_are_exact(dtype):
    for nesterov, v_after, w_after in ((False, [5, 8, 0], [-1.5, -2, 3]), (True, [5, 8, 0], [-2.25, -4, 5])):
        w, g = np.array([1, 2, 3], dtype), np.array([4, 8, -4], dtype)
        update = SGDUpdate(3, dtype, 0.5, nesterov)
        update.state["velocity"][...] = [2, 0, 8]
        update.apply(w, g, 0.5)
        assert update.state["velocity"].tolist() == v_after
        assert w.tolist() == w_after


@pytest.mark.parametrize("dtype", DTYPES)
def test_decay_is_part_of_the_gradient(dtype):
    w, update = np.array([1, -2, 4], dtype), SGDUpdate(3, dtype, 0.5, False, 0.25)
    update.apply(w, np.zeros(3, dtype), 1.0)
    assert update.state["velocity"].tolist() == [0.25, -0.5, 1]
    assert w.tolist() == [0.75, -1.5, 3]


def test_without_momentum_there_is_no_state():
    assert SGDUpdate(3, "float32").state == {}
