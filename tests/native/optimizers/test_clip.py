"""clip: gradient clipping compared with NumPy and PyTorch."""

import numpy as np
import pytest

from minidl_c.optimizers.clip import clip

RNG = np.random.default_rng(3)
SIZES = (1, 7, 15, 16, 17, 255, 256, 257, 1000, 70001)
DTYPES = ("float32", "float64")


def naive(g, clip_norm=None, clip_value=None):
    g = g.astype("f8")
    if clip_value is not None:
        g = np.clip(g, -clip_value, clip_value)
    if clip_norm is not None:
        g = g * min(1.0, clip_norm / (np.sqrt((g * g).sum()) + 1e-6))
    return g


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "limits", [{}, {"clip_value": 0.5}, {"clip_norm": 0.75}, {"clip_norm": 3.0, "clip_value": 0.1}]
)
def test_matches_numpy(size, dtype, limits):
    g = RNG.standard_normal(size).astype(dtype)
    found = g.copy()
    clip(found, **limits)
    np.testing.assert_allclose(found, naive(g, **limits), rtol=1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_small_gradient_is_left_unchanged(dtype):
    g = RNG.standard_normal(1000).astype(dtype)
    found = g.copy()
    clip(found, clip_norm=1e6, clip_value=1e6)
    assert found.tobytes() == g.tobytes()


def test_norms_are_right_when_squares_overflow():
    g = np.array([3e200, -4e200, 0, 1e-300])
    clip(g, clip_norm=10)
    np.testing.assert_allclose(g, [6, -8, 0, 0], rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(
    "limits", [{"clip_norm": 0}, {"clip_value": -1}, {"clip_norm": np.nan}, {"clip_value": np.inf}]
)
def test_invalid_limits_are_refused(limits):
    g = np.ones(3)
    with pytest.raises(ValueError, match=r"clip_(norm|value): expected a finite number above 0"):
        clip(g, **limits)
    assert (g == 1).all()


def test_invalid_arrays_are_refused():
    with pytest.raises((TypeError, ValueError), match="grad"):
        clip(np.ones(6, "f4")[::2], clip_norm=1)
    with pytest.raises((TypeError, ValueError), match="grad"):
        clip(np.ones(6, "i8"), clip_norm=1)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_pytorch(dtype):
    torch = pytest.importorskip("torch")
    for _ in range(100):
        parts = [RNG.standard_normal(int(n)).astype(dtype) for n in RNG.integers(1, 50, 4)]
        params = [torch.nn.Parameter(torch.zeros(len(part), dtype=getattr(torch, dtype))) for part in parts]
        for param, part in zip(params, parts, strict=True):
            param.grad = torch.tensor(part)
        value, norm = RNG.uniform(0.1, 3), RNG.uniform(0.1, 9)
        torch.nn.utils.clip_grad_value_(params, value)
        torch.nn.utils.clip_grad_norm_(params, norm)
        found = np.concatenate(parts)
        clip(found, norm, value)
        expected = np.concatenate([param.grad.numpy() for param in params])
        np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == "float32" else 1e-14)
