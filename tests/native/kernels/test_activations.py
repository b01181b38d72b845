"""activations: every function and its gradient compared with NumPy; kinks, infinities, accuracy, reproducibility."""

import numpy as np
import pytest
from reference_activations import ARGUMENTS, FUNCTIONS, error
from slow_marks import slow_after

import minidl_c
from minidl import Sequential
from minidl.layers import Conv2D, Exp, Log, Reciprocal, Sqrt, Square
from minidl_c.kernels.activations import ActivationOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
CASES = [(name, a, b) for name in FUNCTIONS for a, b in ARGUMENTS.get(name, ((0, 0),))]
BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
INF, NAN = np.inf, np.nan
SPECIAL = (-INF, -3e38, -1e4, -3.5, -3.0, -1e-30, -0.0, 0.0, 1e-30, 3.0, 3.5, 1e4, 3e38, INF)

each_function = pytest.mark.parametrize(("name", "a", "b"), CASES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def forward(check, name, a, b, x, **options):
    y = check.output(x.shape, x.dtype)
    forward_batch(ActivationOp(x.shape[1:], name, a, b, x.dtype.name), x, y, **options)
    return y


def backward(check, name, a, b, dy, x, **options):
    dx = check.output(x.shape, x.dtype)
    backward_batch(ActivationOp(x.shape[1:], name, a, b, x.dtype.name), dy, x, dx, **options)
    return dx


def expected(name, x, a, b, dtype):
    """Returns f(x), its derivative and their allowed errors; like the kernel's, a and b are numbers of the dtype."""
    arguments = np.array((a, b), dtype).astype("f8")
    with np.errstate(all="ignore"):
        y, slope = (function(x, *arguments).astype(dtype) for function in FUNCTIONS[name])
        return y, slope, *error(name, x, *arguments, dtype)


def draw(rng, shape):
    """Draws values of every magnitude, exact in float32."""
    return (rng.standard_normal(shape) * rng.choice([1e-6, 1e-2, 1, 1, 3, 10, 100], shape)).astype("f4")


@each_function
@each_dtype
def test_matches_numpy(check, dtype, name, a, b):
    for n in BATCHES:
        rng = np.random.default_rng(n)
        for size in (1, 2, 3, 15, 16, 17, int(rng.integers(100, 1000))):
            x, dy = draw(rng, (n, size)), rng.standard_normal((n, size), "f4")
            wide, what = x.astype("f8"), f"{name} {a} {b} {dtype} n={n} size={size}"
            y, slope, y_bound, slope_bound = expected(name, wide, a, b, dtype)
            x, dy = check.input(x, dtype), check.input(dy, dtype)
            check.close(forward(check, name, a, b, x), y, y_bound, f"y {what}")
            check.close(backward(check, name, a, b, dy, x), slope * dy, slope_bound * np.abs(dy), f"dx {what}")
            check.count(name, dtype)


@each_function
@each_dtype
def test_kinks_and_infinities(check, dtype, name, a, b):
    """Small inputs keep full precision and large ones reach the limit; infinity times 0 is not checked."""
    x = np.array([SPECIAL] * 17, dtype)
    known = np.isfinite(x) if name in ("leaky_relu", "hard_sigmoid") and a == 0 else np.full(x.shape, True)
    y, slope, y_bound, slope_bound = (array[known] for array in expected(name, x.astype("f8"), a, b, dtype))
    got, dx = forward(check, name, a, b, x), backward(check, name, a, b, np.full(x.shape, 0.5, dtype), x)
    check.close(got[known], y, y_bound, f"y {name} {a} {b}")
    check.close(dx[known], 0.5 * slope, 0.5 * slope_bound, f"dx {name} {a} {b}")


@each_function
@each_dtype
def test_nan_stays_nan_and_in_its_lane(check, dtype, name, a, b):
    x = np.random.default_rng(0).standard_normal((17, 5)).astype(dtype)
    clean = forward(check, name, a, b, x)
    x[3, 1] = NAN
    y = forward(check, name, a, b, x)
    assert np.isnan(y[3, 1])
    y[3, 1] = clean[3, 1]
    check.same_bits(y, clean, "the others")


@pytest.mark.parametrize(
    ("name", "a", "b", "slope"),
    [
        ("leaky_relu", 0.25, 0, 0.25),
        ("elu", 2.0, 0, 1),
        ("celu", 2.0, 0, 1),
        ("hardswish", 0, 0, 1),
        ("hardtanh", -1, 1, 1),
        ("hard_sigmoid", 0.25, 0.5, 0),
        ("threshold", 0, 1, 1),
        ("hardshrink", 0.5, 0, 1),
        ("softshrink", 0.5, 0, 1),
    ],
)
def test_the_slope_at_nan_matches_pytorch(check, name, a, b, slope):
    x, dy = np.full((17, 3), NAN), np.full((17, 3), 2.0)
    check.equal(backward(check, name, a, b, dy, x), slope * dy, "dx")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "a", "b", "kinks"),
    [
        ("hardtanh", -1, 3, (-1, 3)),
        ("hard_sigmoid", 1 / 6, 0.5, (-3, 3)),
        ("threshold", 0.5, 0.25, (0.5,)),
        ("threshold", -3, 3, (-3,)),
        ("hardshrink", 0.5, 0, (-0.5, 0.5)),
        ("softshrink", 0.5, 0, (-0.5, 0.5)),
    ],
)
def test_the_slope_at_a_kink_is_0_as_in_pytorch(check, dtype, name, a, b, kinks):
    x = np.array([kinks] * 17, dtype)
    check.equal(backward(check, name, a, b, np.ones_like(x), x), np.zeros(x.shape), "dx")
    near = np.nextafter(x, np.full_like(x, 1 if name == "hardtanh" else 0 if name != "threshold" else 9))
    if name not in ("hardshrink", "softshrink", "hard_sigmoid"):  # there 0 is between the kinks, or y is rounded
        check.equal(backward(check, name, a, b, np.ones_like(x), near), np.ones(x.shape), "dx near it")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("layer", "weight", "bias"),
    [(Exp, -500, 2000), (Log, 1, 0), (Sqrt, 1, 0), (Sqrt, 2, -1), (Reciprocal, 1, 0), (Square, -(2.0**98), 2.0**100)],
    ids=str,
)
def test_lanes_without_an_example_are_finite(check, dtype, layer, weight, bias):
    """They get a bias alone, of which the function or its slope may be infinite: sums of gradients stay finite."""
    layers = [Conv2D(3, 1), layer(), Conv2D(2, 2)]
    model = Sequential(layers, input_shape=(4, 2, 2), dtype=dtype)
    model.params["0.weight"].value, model.params["0.bias"].value = np.full((3, 4, 1, 1), weight), np.full(3, bias)
    for n in (1, 5, 15, 17):
        y = model.forward(np.ones((n, 4, 2, 2)), training=True)
        dx = model.backward(np.ones_like(y))
        assert all(np.isfinite(a).all() for a in (y, dx, *(param.grad for param in model.params.values())))


@each_function
@pytest.mark.parametrize("dtype", slow_after(1, DTYPES))
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, name, a, b):
    rng = np.random.default_rng(1)
    x, dy = (3 * rng.standard_normal((277, 37)).astype(dtype) for _ in range(2))
    y, dx = forward(check, name, a, b, x), backward(check, name, a, b, dy, x)
    for threads in THREADS:
        check.same_bits(forward(check, name, a, b, x, num_threads=threads), y, f"y {threads} threads")
        check.same_bits(backward(check, name, a, b, dy, x, num_threads=threads), dx, f"dx {threads} threads")
    for i in (*range(17), 276):
        row = slice(i, i + 1)
        for threads in THREADS:
            check.same_bits(forward(check, name, a, b, x[row], num_threads=threads), y[row], f"y row {i}")
            check.same_bits(backward(check, name, a, b, dy[row], x[row], num_threads=threads), dx[row], f"dx row {i}")


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
        ("exp", np.exp, 1.2),
        ("log", np.log, 2),
        ("sqrt", np.sqrt, 0.51),
        ("reciprocal", lambda x: 1 / x, 0.51),
        ("celu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), 1.3),
        ("softplus", lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), 3.5),
        ("log_sigmoid", lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))), 3.5),
        ("softsign", lambda x: x / (1 + np.abs(x)), 1.6),
        ("mish", lambda x: x * np.tanh(np.log1p(np.exp(x))), 4),
    ],
)
@each_dtype
def test_errors_in_units_in_the_last_place(check, dtype, name, exact, units):
    rng = np.random.default_rng(2)
    sizes = 10.0 ** rng.uniform(-20, 1.9, (2000, 100))
    x = (sizes * rng.choice([-1, 1], sizes.shape)).astype(dtype)
    with np.errstate(invalid="ignore"):
        expected = exact(x.astype(np.longdouble))
    assert ulp_error(forward(check, name, 1, 0, x), expected) < units


@pytest.mark.oracle
@each_dtype
@pytest.mark.parametrize("name", ["log", "sqrt", "reciprocal", "square", "abs"])
def test_special_numbers_as_pytorch(check, dtype, name):
    import torch

    x = np.array([(*SPECIAL, NAN)] * 17, dtype)
    given = torch.tensor(x, requires_grad=True)
    y = getattr(given, name)()
    y.sum().backward()
    for got, wanted in (
        (forward(check, name, 0, 0, x), y.detach().numpy()),
        (backward(check, name, 0, 0, np.ones_like(x), x), given.grad.numpy()),
    ):
        wanted = np.where(np.abs(wanted) < np.finfo(dtype).tiny, np.copysign(0, wanted), wanted)  # no subnormal numbers
        np.testing.assert_allclose(got, wanted, 4 * np.finfo(dtype).eps)
        special = (wanted == 0) | np.isinf(wanted)
        assert (np.signbit(got) == np.signbit(wanted))[special].all()


@pytest.mark.skipif(minidl_c.isa in ("v2", "base"), reason="the rounding of x^2 is made good by an FMA")
@pytest.mark.parametrize("low, high, units", [(-3, 8, 8), (-12.5, -3, 12)])
def test_gelu_is_accurate_in_its_tail(check, low, high, units):
    x = np.random.default_rng(3).uniform(low, high, (2000, 50)).astype("f4")
    assert ulp_error(forward(check, "gelu", 0, 0, x), FUNCTIONS["gelu"][0](x.astype("f8"), 0, 0)) < units


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("swish",), ValueError, "function: expected one of leaky_relu, .*, got 'swish'"),
        ((None,), TypeError, "function"),
        ((7,), TypeError, "function"),
        (("elu", -1e-9), ValueError, "alpha: expected at least 0, got -1e-09"),
        (("elu", NAN), ValueError, "alpha: .*nan"),
        (("elu", "1"), TypeError, "real number"),
        (("hardshrink", -0.5), ValueError, "lambd: expected at least 0, got -0.5"),
        (("softshrink", NAN), ValueError, "lambd: expected at least 0, got nan"),
        (("celu", 0.0), ValueError, "alpha: expected at least 1.17549435e-38, got 0.0"),
        (("softplus", 1e-39), ValueError, "beta: expected at least 1.17549435e-38, got 1e-39"),
        (("squareplus", -4), ValueError, "b: expected at least 1.17549435e-38, got -4.0"),
        (("hardtanh", 1, 1), ValueError, "min_val: expected a number below max_val, 1.0, got 1.0"),
        (("tanh", 0, 0, "float16"), ValueError, "dtype"),
    ],
)
def test_invalid_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        ActivationOp((4,), *arguments)
