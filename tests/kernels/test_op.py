"""op: a plan refuses an op whose parameters would get no gradient, or whose sums nothing would add up."""

import pytest

from minidl_c.runtime.plan import Plan


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n_param": 3}, r"op has 3 parameters, but neither sums .*\(n_lane\) nor backward_rows: say n_lane ="),
        ({"n_param": 3, "rows": 3}, "op has 3 parameters, but neither sums"),
        ({"n_param": 3, "rows": 3, "backward": False}, "op has 3 parameters, but neither sums"),
        ({"n_param": 3, "n_lane": 3, "rows": 3, "forward_rows": True}, "op has 3 parameters, but neither sums"),
        ({"n_param": 3, "n_lane": 3}, "op has 3 parameters, but no rows"),
        ({"n_param": 3, "backward_rows": True}, "op has 3 parameters, but no rows"),
        ({"n_param": 3, "n_lane": 3, "rows": 3, "backward": False}, "op has 3 parameters, but no backward_tile"),
        ({"n_param": 4, "n_lane": 2, "rows": 2}, "n_lane: expected 0, or a sum for each of 4 parameters, got 2"),
        ({"n_param": 2, "n_lane": 4, "rows": 2, "backward_rows": True}, "n_lane: expected 0, or a sum for each of 2"),
        ({"n_lane": 4, "backward_rows": True}, r"rows: expected a divisor of 4 sums \(n_lane\), got 0"),
        ({"n_lane": 4, "rows": 3, "forward_rows": True}, r"rows: expected a divisor of 4 sums \(n_lane\), got 3"),
        ({"n_param": 4, "rows": 3, "backward_rows": True}, "expected sizes of at least 0, and rows of equal"),
    ],
    ids=str,
)
def test_parameters_without_a_way_to_their_gradient_are_refused(user, fields, said):
    with pytest.raises(ValueError, match=f"op 0, FieldsOp: {said}"):
        Plan([user.fields.FieldsOp(**fields)], [0])
    with pytest.raises(ValueError, match=said):  # frozen or not: it may be thawed
        Plan([user.fields.FieldsOp(**fields)], [0], frozen=(True,))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"backward": False},
        {"n_param": 4, "n_lane": 4, "rows": 2},
        {"n_param": 4, "rows": 2, "backward_rows": True},
        {"n_param": 4, "n_lane": 4, "rows": 2, "backward_rows": True},
        {"n_param": 4, "n_lane": 2, "rows": 2, "backward_rows": True, "forward_rows": True},
        {"n_lane": 4, "rows": 2, "forward_rows": True},
    ],
    ids=str,
)
def test_all_other_ways_are_taken(user, fields):
    assert Plan([user.fields.FieldsOp(**fields)], [0]).has_loss is False
