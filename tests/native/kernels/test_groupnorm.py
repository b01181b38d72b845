"""groupnorm: random geometries compared with the reference; large means, constant groups, NaN, reproducibility."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.groupnorm import GroupNormOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33, 277)  # 277: slots of two tiles


def bounds(x, dy, w, b, groups, eps, dtype):
    """Returns the allowed errors of y, dx, dw and db: 16 roundings of the terms of each result."""
    n, deviation = ref.normalized(x, groups, eps)
    size, g, unit = 1 + np.abs(n), np.abs(w[:, None] * dy), 16 * np.finfo(dtype).eps
    rows = (len(x), groups, x[:1].size // groups or 1)
    reach = np.broadcast_to(g.reshape(rows).max(axis=2, keepdims=True), rows).reshape(x.shape)
    dw, db = (np.abs(dy * factor).sum(axis=(0, 2)) for factor in (size, 1))
    y = np.abs(w[:, None]) * size + np.abs(b[:, None])
    return [unit * y, unit * reach * size**2 / deviation, unit * dw, unit * db]


class Norm:
    """Calls of the kernel for one geometry, with parameters."""

    def __init__(self, rng, groups, channels, pixels, eps=1e-5, affine=True, dtype="float32"):
        self.shape, self.groups, self.eps = (groups * channels, pixels), groups, eps
        self.op = GroupNormOp(self.shape, groups, groups * channels, eps, affine, dtype)
        self.dtype = dtype
        self.w, self.b = (rng.standard_normal(self.shape[0]).astype(dtype) for _ in range(2))
        self.params = (self.w, self.b) if affine else ()
        if not affine:
            self.w, self.b = np.ones_like(self.w), np.zeros_like(self.b)

    def draw(self, check, rng, n, mean=0.0, deviation=1.0):
        """Draws x and dy."""
        x = mean + deviation * rng.standard_normal((n, *self.shape))
        return check.input(x, self.dtype), check.input(rng.standard_normal(x.shape), self.dtype)

    def forward(self, check, x, **options):
        y = check.output(x.shape, x.dtype)
        forward_batch(self.op, x, y, self.params, **options)
        return y

    def backward(self, check, dy, x, **options):
        """Returns dx and the gradients of the parameters."""
        dx, grads = check.output(x.shape, x.dtype), [check.output(p.shape, x.dtype) for p in self.params]
        backward_batch(self.op, dy, x, dx, self.params, grads, **options)
        return [dx, *grads]

    def compare(self, check, x, dy, what):
        """Compares with the reference."""
        exact = [ref.groupnorm_forward(x, self.w, self.b, self.groups, self.eps)]
        exact += ref.groupnorm_backward(dy, x, self.w, self.groups, self.eps)
        allowed = bounds(x, dy, self.w, self.b, self.groups, self.eps, self.dtype)
        found = [self.forward(check, x), *self.backward(check, dy, x)]
        for name, *compared in zip(("y", "dx", "dw", "db"), found, exact, allowed, strict=len(found) == 4):
            check.close(*compared, f"{name} {what}")
        check.count("groupnorm", self.dtype)


def geometries(seed, count):
    """Draws groups, channels per group and pixels: often one, and counts around the widths of the kernel's loops."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        groups, channels = (int(rng.choice([1, 1, 2, 3, int(rng.integers(1, 20))])) for _ in range(2))
        yield groups, channels, int(rng.choice([1, 1, 2, 3, 4, 5, 7, 8, int(rng.integers(1, 60))]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", BATCHES)
def test_random_geometries(check, dtype, n):
    rng = np.random.default_rng(n)
    for geometry in geometries(n, 40):
        eps, affine = float(rng.choice([1e-5, 1e-3, 1.0])), bool(rng.integers(4))
        norm = Norm(rng, *geometry, eps, affine, dtype)
        norm.compare(check, *norm.draw(check, rng, n), f"n={n} {geometry} {eps} {affine} {dtype}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("geometry", [(1, 1, 4096), (1, 4096, 1), (2, 3, 1000), (1, 257, 1), (1, 1, 257), (1, 700, 3)])
def test_long_groups(check, dtype, geometry):
    rng = np.random.default_rng(0)
    norm = Norm(rng, *geometry, dtype=dtype)
    norm.compare(check, *norm.draw(check, rng, 17), f"{geometry} {dtype}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("geometry", [(1, 3, 64), (1, 192, 1), (3, 2, 50), (1, 1, 20000)])
@pytest.mark.parametrize("mean", [1e3, -1e4, 1e5])
def test_values_far_from_zero(check, dtype, geometry, mean):
    """float32 resolves 1e5 to 0.008: E[x^2] - E[x]^2 has no correct digit, and a rounded mean is off by 0.004."""
    rng = np.random.default_rng(0)
    norm = Norm(rng, *geometry, dtype=dtype)
    norm.compare(check, *norm.draw(check, rng, 17, mean), f"{mean} {geometry} {dtype}")


@pytest.mark.parametrize("deviation", [1e-18, 1e-4, 1e4, 1e15])
def test_small_and_large_values(check, deviation):
    rng = np.random.default_rng(0)
    norm = Norm(rng, 2, 3, 16)
    norm.compare(check, *norm.draw(check, rng, 17, 0, deviation), f"{deviation}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("geometry", [(1, 1, 1), (3, 1, 1), (1, 5, 1), (2, 3, 7), (1, 1, 600)])
@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, -1e4, 3e38])
def test_constant_groups_become_the_bias(check, dtype, geometry, value):
    rng = np.random.default_rng(0)
    norm = Norm(rng, *geometry, dtype=dtype)
    x, dy = check.input(np.full((17, *norm.shape), value), dtype), norm.draw(check, rng, 17)[1]
    check.equal(norm.forward(check, x), np.broadcast_to(norm.b[:, None], x.shape), "y")
    norm.compare(check, x, dy, f"{value} {geometry} {dtype}")
    check.equal(norm.backward(check, dy, x)[1], np.zeros_like(norm.w), "dw")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("geometry", [(3, 2, 5), (3, 5, 1), (3, 1, 300)])
@pytest.mark.parametrize("nonfinite", [np.nan, np.inf, -np.inf])
def test_non_finite_values_stay_in_their_group_and_example(check, dtype, geometry, nonfinite):
    rng = np.random.default_rng(0)
    norm = Norm(rng, *geometry, dtype=dtype)
    x, dy = norm.draw(check, rng, 17)
    clean = [norm.forward(check, x), norm.backward(check, dy, x)[0]]
    for example, place in ((0, 0), (5, -1), (16, 3)):
        group = np.zeros(x.shape, bool)
        group.reshape(17, 3, -1)[example, 1] = True
        bad = np.array(x)
        bad.reshape(17, 3, -1)[example, 1, place] = nonfinite
        for got, expected in zip([norm.forward(check, bad), norm.backward(check, dy, bad)[0]], clean, strict=True):
            check.equal(got, np.where(group, np.nan, expected), f"{nonfinite} in x at {example}")
        bad = np.array(dy)
        bad.reshape(17, 3, -1)[example, 1, place] = nonfinite
        got = norm.backward(check, bad, x)[0]
        assert not np.isfinite(got[group]).any()
        check.equal(got[~group], clean[1][~group], f"{nonfinite} in dy at {example}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("geometry", [(1, 37, 1), (5, 2, 3), (1, 4, 9), (7, 1, 5), (2, 40, 1)])
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, geometry):
    rng = np.random.default_rng(1)
    norm = Norm(rng, *geometry, dtype=dtype)
    for n in (5, 16, 40, 277):
        x, dy = norm.draw(check, rng, n)
        y, found = norm.forward(check, x), norm.backward(check, dy, x)
        for threads in (2, 3, 8):
            check.same_bits(norm.forward(check, x, num_threads=threads), y, f"y of {n}, {threads} threads")
            for a, b in zip(norm.backward(check, dy, x, num_threads=threads), found, strict=True):
                check.same_bits(a, b, f"gradient of {n}, {threads} threads")
    for i in range(40):
        row = slice(i, i + 1)
        check.same_bits(norm.forward(check, x[row]), y[row], f"y row {i}")
        check.same_bits(norm.backward(check, dy[row], x[row])[0], found[0][row], f"dx row {i}")


@pytest.mark.parametrize("threads", [1, 2])
def test_gradients_without_dx(check, threads):
    rng = np.random.default_rng(2)
    norm = Norm(rng, 2, 5, 3)
    x, dy = norm.draw(check, rng, 17)
    grads = [check.output(p.shape, "float32") for p in norm.params]
    backward_batch(norm.op, dy, x, None, norm.params, grads, threads)
    for got, expected in zip(grads, norm.backward(check, dy, x)[1:], strict=True):
        check.same_bits(got, expected, "grad")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"groups": 0}, "groups, channels.*from 1"),
        ({"groups": 4}, r"groups, channels: expected divisors .*\(6, 5\), got \(4, 6\)"),
        ({"channels": 4}, r"groups, channels: expected divisors .* got \(3, 4\)"),
        ({"channels": 60}, "groups, channels: expected divisors"),
        ({"eps": 0.0}, "eps: expected a number above 0, .*got 0.0"),
        ({"eps": 1e-40}, "eps: expected .*float32, got 1e-40"),
        ({"eps": -1.0}, "eps: .*got -1.0"),
        ({"eps": float("nan")}, "eps: .*got nan"),
        ({"eps": float("inf")}, "eps: .*got inf"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GroupNormOp((6, 5), **{"groups": 3, "channels": 6} | arguments)


@pytest.mark.parametrize("arguments", [{"groups": "2"}, {"groups": 2.0}, {"channels": None}, {"eps": "a"}], ids=str)
def test_invalid_types_are_refused(arguments):
    with pytest.raises(TypeError):
        GroupNormOp((6, 5), **{"groups": 3, "channels": 6} | arguments)
