"""activations: every function and its gradient compared with NumPy; kinks, infinities, accuracy, reproducibility."""

import numpy as np
import pytest
from reference_activations import FUNCTIONS, error

import minidl_c
from minidl_c.kernels.activations import ActivationOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
ARGUMENTS = {"leaky_relu": (0.01, 0.0, 1.5, -0.5), "elu": (1.0, 0.0, 0.3, 2.5)}
CASES = [(name, a) for name in FUNCTIONS for a in ARGUMENTS.get(name, (0.0,))]
BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
INF, NAN = np.inf, np.nan
SPECIAL = (-INF, -3e38, -1e4, -3.5, -3.0, -1e-30, -0.0, 0.0, 1e-30, 3.0, 3.5, 1e4, 3e38, INF)

each_function = pytest.mark.parametrize(("name", "a"), CASES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def forward(check, name, a, x, **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(ActivationOp(x.shape[1:], name, a, x.dtype.name), x, y, **options)
    return y


def backward(check, name, a, dy, x, **options):
    dx = check.output(x.shape, x.dtype)
    backward_batch(ActivationOp(x.shape[1:], name, a, x.dtype.name), dy, x, dx, **options)
    return dx


def draw(rng, shape):
    """Draws values of every magnitude, exact in float32."""
    return (rng.standard_normal(shape) * rng.choice([1e-6, 1e-2, 1, 1, 3, 10, 100], shape)).astype("f4")


@each_function
@each_dtype
def test_matches_numpy(check, dtype, name, a):
    f, slope = FUNCTIONS[name]
    for n in BATCHES:
        rng = np.random.default_rng(n)
        for size in (1, 2, 3, 15, 16, 17, int(rng.integers(100, 1000))):
            x, dy = draw(rng, (n, size)), rng.standard_normal((n, size), "f4")
            wide, what = x.astype("f8"), f"{name} {a} {dtype} n={n} size={size}"
            a_rounded = float(np.dtype(dtype).type(a))
            y_bound, slope_bound = error(name, wide, a_rounded, dtype)
            x, dy = check.input(x, dtype), check.input(dy, dtype)
            check.close(forward(check, name, a, x), f(wide, a_rounded), y_bound, f"y {what}")
            bound = slope_bound * np.abs(dy)
            check.close(backward(check, name, a, dy, x), slope(wide, a_rounded) * dy, bound, f"dx {what}")
            check.count(name, dtype)


@each_function
@each_dtype
def test_kinks_and_infinities(check, dtype, name, a):
    """Small inputs keep full precision and large ones reach the limit; infinity times 0 is not checked."""
    f, slope = FUNCTIONS[name]
    x, a = np.array([SPECIAL] * 17, dtype), float(np.dtype(dtype).type(a))
    known = np.isfinite(x) if name == "leaky_relu" and a == 0 else np.full(x.shape, True)
    wide = x.astype("f8")
    with np.errstate(all="ignore"):
        y_bound, slope_bound = error(name, wide, a, dtype)
        expected, slopes = f(wide, a).astype(dtype), slope(wide, a)
    got, dx = forward(check, name, a, x), backward(check, name, a, np.full(x.shape, 2, dtype), x)
    check.close(got[known], expected[known], y_bound[known], f"y {name} {a}")
    check.close(dx[known], 2 * slopes[known], 2 * slope_bound, f"dx {name} {a}")


@each_function
@each_dtype
def test_nan_stays_nan_and_in_its_lane(check, dtype, name, a):
    x = np.random.default_rng(0).standard_normal((17, 5)).astype(dtype)
    clean = forward(check, name, a, x)
    x[3, 1] = NAN
    y = forward(check, name, a, x)
    assert np.isnan(y[3, 1])
    y[3, 1] = clean[3, 1]
    check.same_bits(y, clean, "the others")


@pytest.mark.parametrize(("name", "a", "slope"), [("leaky_relu", 0.25, 0.25), ("elu", 2.0, 1), ("hardswish", 0, 1)])
def test_the_slope_at_nan_matches_pytorch(check, name, a, slope):
    x, dy = np.full((17, 3), NAN), np.full((17, 3), 2.0)
    check.equal(backward(check, name, a, dy, x), slope * dy, "dx")


@each_function
@each_dtype
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, name, a):
    rng = np.random.default_rng(1)
    x, dy = (3 * rng.standard_normal((277, 37)).astype(dtype) for _ in range(2))
    y, dx = forward(check, name, a, x), backward(check, name, a, dy, x)
    for threads in THREADS:
        check.same_bits(forward(check, name, a, x, num_threads=threads), y, f"y {threads} threads")
        check.same_bits(backward(check, name, a, dy, x, num_threads=threads), dx, f"dx {threads} threads")
    for i in (*range(17), 276):
        row = slice(i, i + 1)
        for threads in THREADS:
            check.same_bits(forward(check, name, a, x[row], num_threads=threads), y[row], f"y row {i}")
            check.same_bits(backward(check, name, a, dy[row], x[row], num_threads=threads), dx[row], f"dx row {i}")


def ulp_error(got, exact):
    """Returns the largest error of normal results, in units in the last place."""
    near = np.abs(exact) >= np.finfo(got.dtype).tiny
    unit = np.spacing(np.abs(exact[near].astype(got.dtype)))
    return float(np.max(np.abs(got[near] - exact[near]) / unit))


@pytest.mark.parametrize(
    ("name", "exact", "units"),
    [
        ("tanh", np.tanh, 2.7),
        ("elu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), 1.3),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), 2.7),
        ("silu", lambda x: x / (1 + np.exp(-x)), 3.2),
    ],
)
@each_dtype
def test_errors_in_units_in_the_last_place(check, dtype, name, exact, units):
    rng = np.random.default_rng(2)
    sizes = 10.0 ** rng.uniform(-20, 1.9, (2000, 100))
    x = (sizes * rng.choice([-1, 1], sizes.shape)).astype(dtype)
    assert ulp_error(forward(check, name, 1.0, x), exact(x.astype(np.longdouble))) < units


@pytest.mark.skipif(minidl_c.isa in ("v2", "base"), reason="the rounding of x^2 is made good by an FMA")
@pytest.mark.parametrize("low, high, units", [(-3, 8, 8), (-12.5, -3, 12)])
def test_gelu_is_accurate_in_its_tail(check, low, high, units):
    x = np.random.default_rng(3).uniform(low, high, (2000, 50)).astype("f4")
    assert ulp_error(forward(check, "gelu", 0.0, x), FUNCTIONS["gelu"][0](x.astype("f8"), 0)) < units


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("swish",), ValueError, "function: expected one of leaky_relu, elu, .*, got 'swish'"),
        ((None,), TypeError, "function"),
        ((7,), TypeError, "function"),
        (("elu", -1e-9), ValueError, "alpha: expected at least 0, got -1e-09"),
        (("elu", NAN), ValueError, "alpha: .*nan"),
        (("elu", "1"), TypeError, "real number"),
        (("tanh", 0, "float16"), ValueError, "dtype"),
    ],
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        ActivationOp((4,), *arguments)
