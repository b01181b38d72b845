"""color_jitter: compared with NumPy and PyTorch, statistics, bitwise reproducibility, errors."""

import numpy as np
import pytest
import reference as ref
import reference_augment as augment

from minidl_c.kernels.color_jitter import ColorJitterOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
LARGE = 2**63 - 1  # the largest seed and step


def geometries(rng, count):
    """Yields in_shape and the ranges of factors."""
    for number in range(count):
        channels = (1, 3)[number % 2]
        ranges = [tuple(float(v) for v in np.sort(rng.uniform(0, 2, 2))) for _ in range(3)]
        if channels == 1:
            ranges[2] = (1.0, 1.0)
        yield (channels, *(int(v) for v in rng.integers(1, 9, 2))), ranges


def forward(check, op, x, **run):
    y = check.output(x.shape, x.dtype)
    forward_batch(op, x, y, training=True, **run)
    return y


def backward(check, op, dy, **run):
    dx = check.output(dy.shape, dy.dtype)
    backward_batch(op, dy, np.zeros(dy.shape, dy.dtype), dx, **run)
    return dx


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_numpy(check, dtype, n):
    """Up to rounding; the sum over pixels has terms of at most 2 |x|."""
    rng = np.random.default_rng(n)
    for number, (shape, ranges) in enumerate(geometries(rng, 10)):
        what = {"seed": int(rng.integers(LARGE)), "step": int(rng.integers(2**40))}
        numbers = rng.integers(0, (10, 2**32, LARGE)[number % 3], n)
        factors = augment.jitter_factors(numbers, ranges, **what, path=f"{number}")
        x, dy = (check.input(rng.uniform(-1, 1, (n, *shape)), dtype) for _ in range(2))
        expected = augment.jitter_colors(x, factors), augment.jitter_colors_gradient(dy, factors)
        op, bound = ColorJitterOp(shape, *ranges, f"{number}", dtype), 32 * ref.rounding(30, dtype)
        for threads in THREADS:
            run = what | {"example_ids": numbers, "num_threads": threads}
            label = f"{dtype} {shape} {ranges} {threads} threads"
            check.close(forward(check, op, x, **run), expected[0], bound, f"y {label}")
            check.close(backward(check, op, dy, **run), expected[1], bound, f"dx {label}")
        check.count("color jitter", dtype)


@pytest.mark.oracle
@pytest.mark.parametrize("channels", [1, 3])
def test_agrees_with_pytorch(check, channels):
    """torchvision's formulas, differentiated by PyTorch."""
    import torch

    rng, n = np.random.default_rng(0), 33
    x, dy = (rng.uniform(-1, 1, (n, channels, 6, 7)) for _ in range(2))
    ranges = (0.5, 1.5), (0.0, 2.0), (0.2, 1.8) if channels == 3 else (1.0, 1.0)
    leaf, factors = torch.tensor(x, requires_grad=True), torch.tensor(augment.jitter_factors(range(n), ranges))
    brightness, contrast, saturation = factors.T[..., None, None, None]

    def grey(image):
        r, g, b = image.unbind(1) if channels == 3 else (image[:, 0], None, None)
        return (r if channels == 1 else 0.2989 * r + 0.587 * g + 0.114 * b)[:, None]

    y = brightness * leaf
    y = contrast * y + (1 - contrast) * grey(y).mean((1, 2, 3), keepdim=True)
    y = saturation * y + (1 - saturation) * grey(y)
    y.backward(torch.tensor(dy))
    op = ColorJitterOp(x.shape[1:], *ranges, dtype="float64")
    check.close(forward(check, op, x), y.detach().numpy(), 1e-13, "y")
    check.close(backward(check, op, dy), leaf.grad.numpy(), 1e-13, "dx")


@pytest.mark.parametrize("dtype", DTYPES)
def test_factors_of_1_and_inference_are_the_identity(check, dtype):
    rng = np.random.default_rng(0)
    plain, jittered = ColorJitterOp((3, 5, 4), dtype=dtype), ColorJitterOp((3, 5, 4), (0.0, 2.0), dtype=dtype)
    for n in BATCHES:
        x = check.input(rng.standard_normal((n, 3, 5, 4)), dtype)
        check.equal(forward(check, plain, x), x, "y")
        check.equal(backward(check, plain, x), x, "dx")
        for threads in THREADS:
            y = check.output(x.shape, dtype)
            forward_batch(jittered, x, y, num_threads=threads, seed=3, step=4)
            check.same_bits(y, x, f"{n} {threads}")


@pytest.mark.parametrize("which", range(3))
def test_each_factor_is_uniform(which):
    """Read off images of two pixels: the mean's and the grey's shares are known."""
    n, ranges = 2**14, [(1.0, 1.0)] * 3
    ranges[which] = (0.5, 1.5)
    x = np.zeros((n, 3, 1, 2))
    x[:, 0, 0, 0] = 1  # red; its grey is 0.2989, and half of it the mean
    y = np.empty_like(x)
    forward_batch(ColorJitterOp((3, 1, 2), *ranges, dtype="float64"), x, y, training=True)
    share = (0, 0.2989 / 2, 0.2989)[which]
    factors = (y[:, 0, 0, 0] - share) / (1 - share)
    counts = np.bincount(((factors - 0.5) * 16).astype(int), minlength=16)
    assert abs(((counts - n / 16) ** 2 / (n / 16)).sum() - 15) <= 4 * np.sqrt(30)
    np.testing.assert_allclose(factors, augment.jitter_factors(range(n), ranges)[:, which])


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype):
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((277, 3, 9, 8)).astype(dtype) for _ in range(2))
    op = ColorJitterOp((3, 9, 8), (0.5, 1.5), (0.5, 1.5), (0.0, 2.0), dtype=dtype)
    y, dx = forward(check, op, x), backward(check, op, dy)
    for threads in (2, 3, 8):
        check.same_bits(forward(check, op, x, num_threads=threads), y, f"y {threads} threads")
        check.same_bits(backward(check, op, dy, num_threads=threads), dx, f"dx {threads} threads")
    for i in range(40):
        row, numbers = slice(i, i + 1), np.array([i])
        check.same_bits(forward(check, op, x[row], example_ids=numbers), y[row], f"y row {i}")
        check.same_bits(backward(check, op, dy[row], example_ids=numbers), dx[row], f"dx row {i}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_shape": (2, 4, 5)}, "input shape: expected 1 or 3 channels, got 2"),
        ({"in_shape": (1, 4, 5), "saturation": (0.5, 1.0)}, "saturation: expected 3 channels, got 1"),
        ({"in_shape": (3, 2**13, 2**12)}, "input shape: expected at most 16777216 pixels"),
        ({"in_shape": (4, 4)}, "input shape: expected 3 whole numbers"),
        ({"brightness": (-0.1, 1.0)}, r"brightness: expected \(first, last\) from 0 to 3.4.*got \(-0.1, 1.0\)"),
        ({"contrast": (1.0, 0.5)}, "contrast: expected"),
        ({"contrast": (1.0, 1e39)}, "contrast: expected"),
        ({"saturation": (np.nan, 1.0)}, "saturation: expected"),
        ({"saturation": 1.0}, None),
        ({"path": 3}, "path: expected a string, got 3"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ColorJitterOp(**{"in_shape": (3, 4, 5)} | changes)
