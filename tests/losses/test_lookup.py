"""Losses by name."""

import pytest

from minidl import losses
from minidl.losses import Huber, Pinball, softmax_cross_entropy


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
    assert [type(loss) for loss in losses.NAMES.values()] == [cls for cls in losses.CLASSES if cls is not Pinball]
