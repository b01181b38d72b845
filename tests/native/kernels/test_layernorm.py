"""layernorm: random geometries compared with the reference; large means, constant pixels, NaN, reproducibility."""

import numpy as np
import pytest
import reference as ref

from minidl_c.kernels.layernorm import LayerNormOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33, 277)  # 277: slots of two tiles
FORMS = (True, False)  # centered: layer norm; else RMS norm
each_form = pytest.mark.parametrize("centered", FORMS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def bounds(x, dy, w, b, eps, centered, dtype):
    """Returns the allowed errors of y, dx, dw and db: 16 roundings of the terms of each result."""
    n, deviation = ref.pixels_normalized(x, eps, centered)
    size, g, unit = 1 + np.abs(n), np.abs(w[:, None] * dy), 16 * np.finfo(dtype).eps
    reach = g.max(axis=1, keepdims=True, initial=0)
    dw, db = (np.abs(dy * factor).sum(axis=(0, 2)) for factor in (size, 1))
    y = np.abs(w[:, None]) * size + np.abs(b[:, None])
    return [unit * y, unit * reach * size**2 / deviation, unit * dw, unit * db]


class Norm:
    """Calls of the kernel for one geometry, with parameters."""

    def __init__(self, rng, channels, pixels, centered=True, eps=1e-5, affine=True, dtype="float32"):
        self.shape, self.centered, self.eps, self.dtype = (channels, pixels), centered, eps, dtype
        self.op = LayerNormOp(self.shape, channels, eps, centered, affine, dtype)
        self.w, self.b = (rng.standard_normal(channels).astype(dtype) for _ in range(2))
        if not affine:
            self.w = np.ones_like(self.w)
        if not affine or not centered:
            self.b = np.zeros_like(self.b)
        self.params = (self.w, self.b)[: (2 if centered else 1) if affine else 0]

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
        exact = [ref.layernorm_forward(x, self.w, self.b, self.eps, self.centered)]
        exact += ref.layernorm_backward(dy, x, self.w, self.eps, self.centered)
        allowed = bounds(x, dy, self.w, self.b, self.eps, self.centered, self.dtype)
        found = [self.forward(check, x), *self.backward(check, dy, x)]
        for name, *compared in zip(("y", "dx", "dw", "db")[: len(found)], found, exact, allowed, strict=False):
            check.close(*compared, f"{name} {what}")
        check.count("layernorm", self.dtype)


def geometries(seed, count):
    """Draws channels and pixels: often few, and counts around the widths of the kernel's loops."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        channels = int(rng.choice([1, 2, 3, 15, 16, 17, 31, 32, 33, int(rng.integers(1, 100))]))
        yield channels, int(rng.choice([1, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, int(rng.integers(1, 60))]))


@each_dtype
@pytest.mark.parametrize("n", BATCHES)
def test_random_geometries(check, dtype, n):
    rng = np.random.default_rng(n)
    for geometry in geometries(n, 40):
        options = {"eps": float(rng.choice([1e-5, 1e-3, 1.0])), "affine": bool(rng.integers(4))}
        for centered in FORMS:
            norm = Norm(rng, *geometry, centered, dtype=dtype, **options)
            norm.compare(check, *norm.draw(check, rng, n), f"n={n} {geometry} {centered} {options} {dtype}")


@each_dtype
@each_form
@pytest.mark.parametrize("geometry", [(4096, 1), (1024, 2), (1025, 1), (1500, 3), (20000, 1), (5, 700)])
def test_many_channels_and_pixels(check, dtype, centered, geometry):
    rng = np.random.default_rng(0)
    norm = Norm(rng, *geometry, centered, dtype=dtype)
    norm.compare(check, *norm.draw(check, rng, 17), f"{geometry} {dtype}")


@each_dtype
@pytest.mark.parametrize("geometry", [(64, 3), (192, 1), (100, 20), (20000, 1)])
@pytest.mark.parametrize("mean", [1e3, -1e4, 1e5])
def test_values_far_from_zero(check, dtype, geometry, mean):
    """float32 resolves 1e5 to 0.008: E[x^2] - E[x]^2 has no correct digit, and a rounded mean is off by 0.004."""
    rng = np.random.default_rng(0)
    norm = Norm(rng, *geometry, dtype=dtype)
    norm.compare(check, *norm.draw(check, rng, 17, mean), f"{mean} {geometry} {dtype}")


@each_form
@pytest.mark.parametrize("deviation", [1e-18, 1e-4, 1e4, 1e15])
def test_small_and_large_values(check, centered, deviation):
    rng = np.random.default_rng(0)
    norm = Norm(rng, 20, 9, centered)
    norm.compare(check, *norm.draw(check, rng, 17, 0, deviation), f"{deviation}")


@each_dtype
@pytest.mark.parametrize("geometry", [(1, 1), (3, 1), (5, 4), (33, 20), (600, 1)])
@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, -1e4, 3e38])
def test_constant_pixels_become_the_bias(check, dtype, geometry, value):
    rng = np.random.default_rng(0)
    norm = Norm(rng, *geometry, dtype=dtype)
    x, dy = check.input(np.full((17, *norm.shape), value), dtype), norm.draw(check, rng, 17)[1]
    check.equal(norm.forward(check, x), np.broadcast_to(norm.b[:, None], x.shape), "y")
    norm.compare(check, x, dy, f"{value} {geometry} {dtype}")
    check.equal(norm.backward(check, dy, x)[1], np.zeros_like(norm.w), "dw")


@each_dtype
@pytest.mark.parametrize("geometry", [(1, 3), (5, 4), (33, 18)])
def test_zeros_stay_zeros_in_an_rms_norm(check, dtype, geometry):
    rng = np.random.default_rng(0)
    norm = Norm(rng, *geometry, False, dtype=dtype)
    x, dy = check.input(np.zeros((17, *norm.shape)), dtype), norm.draw(check, rng, 17)[1]
    check.equal(norm.forward(check, x), np.zeros(x.shape), "y")
    norm.compare(check, x, dy, f"{geometry} {dtype}")


@each_dtype
@each_form
@pytest.mark.parametrize("geometry", [(2, 5), (16, 3), (33, 20)])
@pytest.mark.parametrize("nonfinite", [np.nan, np.inf, -np.inf])
def test_non_finite_values_stay_in_their_pixel_and_example(check, dtype, centered, geometry, nonfinite):
    rng = np.random.default_rng(0)
    norm = Norm(rng, *geometry, centered, dtype=dtype)
    x, dy = norm.draw(check, rng, 17)
    clean = [norm.forward(check, x), norm.backward(check, dy, x)[0]]
    for example, channel in ((0, 0), (5, -1), (16, 1)):
        pixel = np.zeros(x.shape, bool)
        pixel[example, :, 1] = True
        bad = np.array(x)
        bad[example, channel, 1] = nonfinite
        for got, expected in zip([norm.forward(check, bad), norm.backward(check, dy, bad)[0]], clean, strict=True):
            check.equal(got[~pixel], expected[~pixel], f"{nonfinite} in x at {example}")
        assert np.isnan(norm.forward(check, bad)[example, channel, 1])
        bad = np.array(dy)
        bad[example, channel, 1] = nonfinite
        got = norm.backward(check, bad, x)[0]
        assert not np.isfinite(got[pixel]).any()
        check.equal(got[~pixel], clean[1][~pixel], f"{nonfinite} in dy at {example}")


@each_dtype
@each_form
@pytest.mark.parametrize("geometry", [(37, 1), (3, 2), (20, 17), (70, 5), (1, 40)])
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, centered, geometry):
    rng = np.random.default_rng(1)
    norm = Norm(rng, *geometry, centered, dtype=dtype)
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
@each_form
def test_gradients_without_dx(check, centered, threads):
    rng = np.random.default_rng(2)
    norm = Norm(rng, 10, 3, centered)
    x, dy = norm.draw(check, rng, 17)
    grads = [check.output(p.shape, "float32") for p in norm.params]
    backward_batch(norm.op, dy, x, None, norm.params, grads, threads)
    for got, expected in zip(grads, norm.backward(check, dy, x)[1:], strict=True):
        check.same_bits(got, expected, "grad")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": 0}, "channels.*from 1"),
        ({"channels": 4}, r"channels: expected a divisor of the size of \(6, 5\), got 4"),
        ({"channels": 60}, "channels: expected a divisor"),
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
        LayerNormOp((6, 5), **{"channels": 6} | arguments)


@pytest.mark.parametrize("arguments", [{"channels": "2"}, {"channels": 2.0}, {"channels": None}, {"eps": "a"}], ids=str)
def test_invalid_types_are_refused(arguments):
    with pytest.raises(TypeError):
        LayerNormOp((6, 5), **{"channels": 6} | arguments)
