"""batchnorm_statistics and batchnorm: compared with the reference; large means, constant channels, NaN, same bits."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.batchnorm import BatchNormOp
from minidl_c.kernels.batchnorm_statistics import BatchStatisticsOp
from minidl_c.runtime.plan import Plan

DTYPES = ("float32", "float64")
BATCHES = (1, 15, 16, 17, 33, 277)  # 277: slots of two tiles
THREADS = (1, 2, 3, 8)
NAMES = ("y", "dx", "dw", "db")


def bounds(x, dy, w, b, eps, dtype):
    """Returns the allowed errors of y, dx, dw and db: roundings of the terms, a quarter of which is summed in sequence.

    They grow with the mean only by the rounding of the sum over the examples, which is in float64.
    """
    n, deviation = (a.swapaxes(0, 1) for a in ref.normalized(x.swapaxes(0, 1), 1, eps))
    unit = (16 + x.shape[2] / 4) * np.finfo(dtype).eps
    size = 1 + np.abs(n) + (16 + len(x)) * np.finfo("f8").eps / unit * np.abs(x) / deviation
    g = np.abs(w[:, None] * dy)
    dw, db = (np.abs(dy * factor).sum(axis=(0, 2)) for factor in (size, 1))
    y = np.abs(w[:, None]) * size + np.abs(b[:, None])
    return [unit * y, unit * g.max(axis=(0, 2), keepdims=True) * size**2 / deviation, unit * dw, unit * db]


class Norm:
    """A plan of the two ops, with parameters and running statistics."""

    def __init__(self, rng, channels, pixels, eps=1e-5, affine=True, dtype="float32", momentum=0.1, frozen=False):
        self.shape, self.eps, self.dtype, self.affine = (channels, pixels), eps, dtype, affine
        arguments = (self.shape, eps, momentum, affine, dtype)
        self.plan = Plan([BatchStatisticsOp(*arguments), BatchNormOp(*arguments)], [0, 0], frozen=(frozen, frozen))
        self.w, self.b = (rng.standard_normal(channels).astype(dtype) for _ in range(2))
        if not affine:
            self.w, self.b = np.ones_like(self.w), np.zeros_like(self.b)
        self.mean, self.var = rng.standard_normal(channels).astype(dtype), rng.uniform(0.5, 2, channels).astype(dtype)

    def param(self):
        """Returns the flat buffer: parameters, running mean and variance, number of batches."""
        parameters = [self.w, self.b] if self.affine else []
        return np.concatenate([*parameters, self.mean, self.var, [5]]).astype(self.dtype)

    def draw(self, check, rng, n, mean=0.0, deviation=1.0):
        """Draws x and dy."""
        x = mean + deviation * rng.standard_normal((n, *self.shape))
        return check.input(x, self.dtype), check.input(rng.standard_normal(x.shape), self.dtype)

    def predict(self, check, x, threads=1):
        """Returns y of inference."""
        y = check.output(x.shape, self.dtype)
        rows = (len(x), np.prod(self.shape))
        self.plan.predict(x.reshape(rows), None, self.param(), y.reshape(rows), threads)
        return y

    def both(self, check, x, dy, threads=1):
        """Returns y, dx, dw and db of training (y and dx if not affine), and the updated state."""
        y, dx = (check.output(x.shape, self.dtype) for _ in range(2))
        param, rows = self.param(), (len(x), -1)
        grad = np.zeros_like(param)
        kept = self.plan.forward(x.reshape(rows), param, y.reshape(rows), threads)
        self.plan.backward(kept, dy.reshape(rows), dx.reshape(rows), param, grad)
        self.plan.release(kept)
        state = len(self.w) * 2 * self.affine
        return [y, dx, *(grad[:state].reshape(2, -1) if self.affine else [])], param[state:]

    def compare(self, check, x, dy, what, threads=1):
        """Compares with the reference."""
        exact = [ref.batchnorm_forward(x, self.w, self.b, self.eps), *ref.batchnorm_backward(dy, x, self.w, self.eps)]
        found, state = self.both(check, x, dy, threads)
        for name, *compared in zip(
            NAMES, found, exact, bounds(x, dy, self.w, self.b, self.eps, self.dtype), strict=False
        ):
            check.close(*compared, f"{name} {what}")
        mean, var = ref.batchnorm_statistics(x)
        unit = (16 + x.shape[2] / 4) * np.finfo(self.dtype).eps
        for name, got, old, new in (
            ("mean", state[: len(mean)], self.mean, mean),
            ("var", state[len(mean) : -1], self.var, var),
        ):
            check.close(got, 0.9 * old + 0.1 * new, unit * (np.abs(old) + np.abs(new)), f"running {name} {what}")
        assert state[-1] == 6
        check.count("batchnorm", self.dtype)


def geometries(seed, count):
    """Draws channels and pixels: often one, and counts around the number of the kernel's chains."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield (
            int(rng.choice([1, 2, 3, int(rng.integers(1, 40))])),
            int(rng.choice([1, 2, 3, 4, 5, 7, 8, int(rng.integers(1, 90))])),
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", BATCHES)
def test_random_geometries(check, dtype, n):
    rng = np.random.default_rng(n)
    for number, (channels, pixels) in enumerate(geometries(n, 30)):
        eps, affine = float(rng.choice([1e-5, 1e-3, 1.0])), bool(rng.integers(4))
        norm = Norm(rng, channels, max(pixels, 2) if n == 1 else pixels, eps, affine, dtype)
        x, dy = norm.draw(check, rng, n)
        norm.compare(check, x, dy, f"n={n} {norm.shape} {eps} {affine} {dtype}", THREADS[number % 4])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 64), (2, 1), (1, 3), (1, 5000)])
@pytest.mark.parametrize("mean", [1e3, -1e4, 1e5])
def test_values_far_from_zero(check, dtype, shape, mean):
    """With deviation 1 and bounds independent of the mean: E[x^2] - E[x]^2 in float32 would have no correct digit."""
    rng = np.random.default_rng(0)
    norm = Norm(rng, *shape, dtype=dtype)
    for n in (17, 33, 277):
        norm.compare(check, *norm.draw(check, rng, n, mean), f"{mean} {shape} {n} {dtype}")


@pytest.mark.parametrize("deviation", [1e-15, 1e-4, 1e4, 1e12])
def test_small_and_large_values(check, deviation):
    rng = np.random.default_rng(0)
    norm = Norm(rng, 3, 16)
    norm.compare(check, *norm.draw(check, rng, 17, 0, deviation), f"{deviation}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 1), (1, 7), (2, 600)])
@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, -1e4])
def test_constant_channels_become_the_bias(check, dtype, shape, value):
    rng = np.random.default_rng(0)
    norm = Norm(rng, *shape, dtype=dtype)
    x, dy = check.input(np.full((17, *norm.shape), value), dtype), norm.draw(check, rng, 17)[1]
    (y, _, dw, db), state = norm.both(check, x, dy)
    left = np.abs(value) * 1e-15 / np.sqrt(norm.eps)  # the rounding of the mean, in deviations
    check.close(y, np.broadcast_to(norm.b[:, None], x.shape), np.finfo(dtype).eps * np.abs(norm.b[:, None]) + left, "y")
    check.close(dw, np.zeros_like(norm.w), left * np.abs(dy).sum(), "dw")
    norm.compare(check, x, dy, f"{value} {shape} {dtype}")
    assert db.any()
    assert (state[shape[0] : -1] >= 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nonfinite", [np.nan, np.inf, -np.inf])
def test_non_finite_values_affect_only_their_channel(check, dtype, nonfinite):
    rng = np.random.default_rng(0)
    norm = Norm(rng, 3, 5, dtype=dtype)
    x, dy = norm.draw(check, rng, 33)
    (y, dx, *_), _ = norm.both(check, x, dy)
    for example, pixel in ((0, 0), (16, 4), (32, 2)):
        bad = np.array(x)
        bad[example, 1, pixel] = nonfinite
        (y_bad, dx_bad, dw, db), state = norm.both(check, bad, dy)
        for got, clean in ((y_bad, y), (dx_bad, dx)):
            assert np.isnan(got[:, 1]).all()
            check.same_bits(np.array(got[:, ::2]), np.array(clean[:, ::2]), "the other channels")
        assert np.isnan(dw[1])
        assert np.isfinite([*dw[::2], *db, *state[[0, 2, 3, 5]]]).all()
        assert not np.isfinite(state[[1, 4]]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (3, 9), (37, 4)])
def test_thread_count_changes_no_bit(check, dtype, shape):
    rng = np.random.default_rng(1)
    norm = Norm(rng, *shape, dtype=dtype)
    for n in (2, 5, 16, 40, 277):
        x, dy = norm.draw(check, rng, n)
        found, state = norm.both(check, x, dy)
        for threads in THREADS[1:]:
            again, state_again = norm.both(check, x, dy, threads)
            for name, a, b in zip(NAMES, again, found, strict=True):
                check.same_bits(a, b, f"{name} of {n}, {threads} threads")
            check.same_bits(state_again, state, f"state of {n}, {threads} threads")
            check.same_bits(norm.predict(check, x, threads), norm.predict(check, x), f"inference of {n}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, *BATCHES])
def test_inference_uses_the_running_statistics(check, dtype, n):
    rng = np.random.default_rng(n)
    norm = Norm(rng, 5, 3, dtype=dtype)
    x, _ = norm.draw(check, rng, n)
    y, scale = norm.predict(check, x), norm.w / np.sqrt(norm.var.astype("f8") + norm.eps)
    exact = scale[:, None] * (x - norm.mean[:, None].astype("f8")) + norm.b[:, None]
    size = np.abs(scale[:, None]) * (np.abs(x) + np.abs(norm.mean[:, None])) + np.abs(norm.b[:, None])
    check.close(y, exact, 4 * np.finfo(dtype).eps * size, "y")
    for i in range(0, n, 7):
        check.same_bits(norm.predict(check, x[i : i + 1]), y[i : i + 1], f"row {i} alone")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 17, 277])
def test_a_frozen_layer_trains_as_in_inference(check, dtype, n):
    """y has the bits of inference and dx is its gradient; state and parameters stay unchanged."""
    norm = Norm(np.random.default_rng(n), 5, 3, dtype=dtype, frozen=True)
    x, dy = norm.draw(check, np.random.default_rng(0), n)
    for threads in THREADS:
        (y, dx, *grads), state = norm.both(check, x, dy, threads)
        check.same_bits(y, norm.predict(check, x), "y")
        exact = dy * (norm.w / np.sqrt(norm.var.astype("f8") + norm.eps))[:, None]
        check.close(dx, exact, 4 * np.finfo(dtype).eps * np.abs(exact), "dx")
        assert not np.any(grads)
        check.same_bits(state, norm.param()[10:], "state")


@pytest.mark.parametrize("momentum", [0, 0.25, 1])
def test_momentum(check, momentum):
    norm = Norm(np.random.default_rng(0), 4, 6, dtype="float64", momentum=momentum)
    x, dy = norm.draw(check, np.random.default_rng(0), 33, 3.0)
    state, (mean, var) = norm.both(check, x, dy)[1], ref.batchnorm_statistics(x)
    check.close(state[:4], (1 - momentum) * norm.mean + momentum * mean, 1e-14, "mean")
    check.close(state[4:8], (1 - momentum) * norm.var + momentum * var, 1e-14, "var")


@pytest.mark.parametrize("cls", [BatchNormOp, BatchStatisticsOp])
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (((),), "channels first"),
        (((3, 4), -1e-9), "eps of at least 0"),
        (((3, 4), float("nan")), "eps of at least 0"),
        (((3, 4), 1e-5, -0.1), "momentum from 0 to 1"),
        (((3, 4), 1e-5, 1.1), "momentum from 0 to 1"),
        (((3, 4), 1e-5, 0.1, True, "float16"), "float16"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(cls, arguments, error):
    with pytest.raises(ValueError, match=error):
        cls(*arguments)
