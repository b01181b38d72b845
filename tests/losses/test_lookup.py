"""Losses by name, and probabilities."""

import numpy as np
import pytest
import reference

from minidl import losses
from minidl.losses import Huber, softmax_cross_entropy


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities(dtype, rng):
    scores = rng.normal(0, 30, (40, 10)).astype(dtype)
    scores[0], scores[1, :2] = 1e4, (1e4, -1e4)
    result = losses.probabilities(scores)
    np.testing.assert_allclose(result, reference.softmax(scores), rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-6)
    assert result.dtype == dtype


def test_a_loss_is_a_name_or_a_function():
    def squares(scores, y):
        return ((scores - y) ** 2).sum(axis=1), 2 * (scores - y)

    assert losses.get("softmax_cross_entropy") is softmax_cross_entropy
    assert losses.get(squares) is squares
    assert losses.get(huber := Huber(2.0)) is huber
    with pytest.raises(ValueError, match=r"loss: .*'softmax_cross_entropy'.* got 'mse'"):
        losses.get("mse")
    for wrong in (None, 3, Huber):
        with pytest.raises(TypeError, match=f"loss: .* got {wrong}"):
            losses.get(wrong)


def test_names_give_the_module_level_objects():
    assert all(loss is getattr(losses, name) for name, loss in losses.NAMES.items())
    assert [type(loss) for loss in losses.NAMES.values()] == list(losses.CLASSES)
