"""op: a plan refuses an op whose parameters would get no gradient, or whose sums would not be reduced."""

import pytest

from minidl_c.runtime.plan import Plan


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"n_param": 3},
            r"op has 3 parameters, but neither sums .*\(reduce.n_sums\) nor reduce.backward: set n_sums =",
        ),
        ({"n_param": 3, "n_items": 3}, "op has 3 parameters, but neither sums"),
        ({"n_param": 3, "n_items": 3, "backward": False}, "op has 3 parameters, but neither sums"),
        ({"n_param": 3, "n_sums": 3, "n_items": 3, "reduce_forward": True}, "op has 3 parameters, but neither sums"),
        ({"n_param": 3, "n_sums": 3}, r"reduce.n_items: expected a divisor of 3 sums \(n_sums\), got 0"),
        ({"n_param": 3, "reduce_backward": True}, "op has 3 parameters, but no reduce.n_items"),
        ({"n_param": 3, "n_sums": 3, "n_items": 3, "backward": False}, "op has 3 parameters, but no backward_tile"),
        ({"n_param": 4, "n_sums": 2, "n_items": 2}, "reduce.n_sums: expected 0, or a sum for each of 4 .*, got 2"),
        ({"n_param": 2, "n_sums": 4, "n_items": 2, "reduce_backward": True}, "reduce.n_sums: expected 0, or a sum for"),
        ({"n_sums": 4, "reduce_backward": True}, r"reduce.n_items: expected a divisor of 4 sums \(n_sums\), got 0"),
        (
            {"n_sums": 4, "n_items": 3, "reduce_forward": True},
            r"reduce.n_items: expected a divisor of 4 sums .*, got 3",
        ),
        ({"n_param": 4, "n_items": 3, "reduce_backward": True}, r"reduce.n_items: expected a divisor of 4 parameters"),
    ],
    ids=str,
)
def test_ops_that_cannot_compute_their_gradients_are_refused(user, fields, message):
    with pytest.raises(ValueError, match=f"op 0, FieldsOp: {message}"):
        Plan([user.fields.FieldsOp(**fields)], [0])
    with pytest.raises(ValueError, match=message):  # frozen too: it may be unfrozen later
        Plan([user.fields.FieldsOp(**fields)], [0], frozen=(True,))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"backward": False},
        {"n_param": 4, "n_sums": 4, "n_items": 2},
        {"n_param": 4, "n_items": 2, "reduce_backward": True},
        {"n_param": 4, "n_sums": 4, "n_items": 2, "reduce_backward": True},
        {"n_param": 4, "n_sums": 2, "n_items": 2, "reduce_backward": True, "reduce_forward": True},
        {"n_sums": 4, "n_items": 2, "reduce_forward": True},
    ],
    ids=str,
)
def test_all_other_combinations_of_fields_are_accepted(user, fields):
    assert Plan([user.fields.FieldsOp(**fields)], [0]).has_loss is False
