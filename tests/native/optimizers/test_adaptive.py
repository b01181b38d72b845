"""adaptive: extreme gradients, bias correction, state. test_update.py compares with the formulas."""

import numpy as np
import pytest

from minidl_c.optimizers.adaptive import AdagradUpdate, AdamUpdate, RMSpropUpdate

DTYPES = ("float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_a_constant_gradient_has_no_variance(alpha, dtype):
    """The variance under the root is 0 up to rounding, which can make it negative: PyTorch then returns NaN."""
    gradients = np.random.default_rng(0).standard_normal(2000).astype(dtype)
    w, update = np.zeros(2000, dtype), RMSpropUpdate(2000, dtype, alpha, eps=0.1, centered=True)
    negative = 0
    for _ in range(500):
        update.apply(w, gradients, 0.01)
        negative += (update.state["squares"] < update.state["mean"] ** 2).sum()
    assert negative > 0, "nothing was tested"
    assert np.isfinite(w).all()


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e-5, 1.0, 1e5, 1e15])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_step_has_the_size_of_the_learning_rate(dtype, size):
    """Bias correction: the first step of Adam has length lr for gradients of any size, as that of Adagrad."""
    g = np.array([size, -size], dtype)
    for update in (AdamUpdate(2, dtype), AdamUpdate(2, dtype, decoupled=True), AdagradUpdate(2, dtype)):
        w = np.zeros(2, dtype)
        update.apply(w, g, 0.25)
        assert np.all(np.abs(w) <= 0.25 * (1 + 1e-6)) and w[0] == -w[1] <= 0
        if size >= 1e-5:
            np.testing.assert_allclose(w, [-0.25, 0.25], rtol=2e-3)


def test_gradients_whose_squares_overflow_leave_parameters_finite():
    g = np.array([3e38, -3e38, 2e19], "f4")
    for update in (AdamUpdate(3, "float32"), AdamUpdate(3, "float32", amsgrad=True), AdagradUpdate(3, "float32"),
                   RMSpropUpdate(3, "float32"), RMSpropUpdate(3, "float32", momentum=0.9)):  # fmt: skip
        w = np.ones(3, "f4")
        for _ in range(3):
            update.apply(w, g, 0.1)
        assert np.isfinite(w).all(), update


@pytest.mark.parametrize("steps", [0, 1, 9, 999, 10**6, 2**40, 2**62 - 2])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.0), (0.5, 0.99999)])
def test_bias_correction_at_any_step(steps, betas):
    w, update = np.zeros(1), AdamUpdate(1, "float64", *betas, eps=1e-30)
    update.steps = steps
    update.apply(w, np.ones(1), 1.0)
    m, s = (1 - beta for beta in betas)
    expected = -(m / (1 - betas[0] ** (steps + 1))) / np.sqrt(s / (1 - betas[1] ** (steps + 1)))
    np.testing.assert_allclose(w, expected, rtol=1e-10)
    assert update.steps == steps + 1


def test_amsgrad_keeps_the_largest_second_moment():
    update, w = AdamUpdate(1, "float64", 0.0, 0.5, amsgrad=True), np.zeros(1)
    for g, largest in ((2.0, 2.0), (0.0, 2.0), (2.0, 2.5), (0.0, 2.5), (4.0, 8.625)):
        update.apply(w, np.array([g]), 0.1)
        assert update.state["largest"].tolist() == [largest]


def test_state_holds_only_what_the_options_need():
    assert list(AdagradUpdate(3, "float32").state) == ["squares"]
    assert list(RMSpropUpdate(3, "float32").state) == ["squares"]
    assert list(RMSpropUpdate(3, "float32", momentum=0.5, centered=True).state) == ["squares", "mean", "velocity"]
    assert list(AdamUpdate(3, "float32").state) == ["mean", "squares"]
    assert list(AdamUpdate(3, "float32", amsgrad=True).state) == ["mean", "squares", "largest"]
    assert AdagradUpdate(3, "float32", first=0.5).state["squares"].tolist() == [0.5] * 3
