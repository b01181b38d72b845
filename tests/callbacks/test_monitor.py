"""Monitor: which quantity is monitored, and which value is better."""

import math

import pytest

from minidl.callbacks.monitor import Monitor


@pytest.mark.parametrize(
    ("name", "lower", "expected"),
    [
        ("loss", None, True),
        ("val_f1_macro", None, False),
        ("top_5_accuracy", None, False),
        ("val_rmse", None, True),
        ("r2", None, False),
        ("val_loss", None, True),
        ("accuracy", None, False),
        ("val_accuracy", None, False),
        ("val_accuracy", True, True),
        ("f1", False, False),
        ("val_f1", True, True),
    ],
)
def test_which_value_is_better(name, lower, expected):
    monitor = Monitor(name, lower)
    assert monitor.lower_is_better == expected and monitor.is_held_out == name.startswith("val_")
    assert monitor.beyond(-3.0, 0.5) == (-3.5 if expected else -2.5)
    assert (monitor.is_better(1.0, 2.0), monitor.is_better(2.0, 1.0)) == (expected, not expected)
    assert not monitor.is_better(1.0, 1.0)
    assert monitor.is_better(math.inf, None) and monitor.is_better(-math.inf, None)
    assert not monitor.is_better(math.nan, None) and not monitor.is_better(math.nan, 1.0)


@pytest.mark.parametrize(
    ("name", "lower", "error", "message"),
    [
        (3, None, TypeError, "monitor: expected a name such as 'val_accuracy', got 3"),
        (None, None, TypeError, "monitor: expected a name"),
        (
            "val_gini",
            None,
            ValueError,
            "monitor: .* loss, accuracy, .* val_loss, val_accuracy, .*, got 'val_gini'; .* lower_is_better=",
        ),
        ("loss", "yes", TypeError, "lower_is_better: expected True or False, got 'yes'"),
    ],
)
def test_invalid_monitors_are_refused(name, lower, error, message):
    with pytest.raises(error, match=message):
        Monitor(name, lower)
