"""affine: rotation and zoom compared with NumPy, PyTorch and exact turns, statistics, reproducibility, errors."""

import numpy as np
import pytest
import reference as ref
import reference_augment as augment

from minidl_c.kernels.affine import AffineOp
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
LARGE = 2**63 - 1  # the largest seed and step


def geometries(rng, count):
    """Yields in_shape and options."""
    for _ in range(count):
        degrees, zoom = np.sort(rng.uniform(-360, 360, 2)), np.sort(2 ** rng.uniform(-3, 3, 2))
        value = float(rng.choice([0.0, 1.5]))
        options = {"degrees": tuple(map(float, degrees)), "zoom": tuple(map(float, zoom)), "value": value}
        yield tuple(int(v) for v in rng.integers(1, 9, 3)), options


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
    """Up to rounding: a weight is the product of two, with errors relative to 1; positions are in float64."""
    rng = np.random.default_rng(n)
    for number, (shape, options) in enumerate(geometries(rng, 8)):
        what = {"seed": int(rng.integers(LARGE)), "step": int(rng.integers(2**40))}
        numbers = rng.integers(0, (10, 2**32, LARGE)[number % 3], n)
        draws = augment.affine_draws(numbers, options["degrees"], options["zoom"], **what, path=f"{number}")
        matrices = augment.affine_matrices(shape, draws)
        x, dy = (check.input(rng.standard_normal((n, *shape)), dtype) for _ in range(2))
        op = AffineOp(shape, **options, path=f"{number}", dtype=dtype)
        expected = augment.affine_forward(x, matrices, options["value"]), augment.affine_backward(dy, matrices)
        error = ref.rounding(12, dtype)
        touched = augment.affine_backward(np.abs(dy), matrices > 0)
        bounds = error * 8 + 1e-12, error * touched + 1e-12
        for threads in THREADS:
            run = what | {"example_ids": numbers, "num_threads": threads}
            label = f"{dtype} {shape} {options} {threads} threads"
            check.close(forward(check, op, x, **run), expected[0], bounds[0], f"y {label}")
            check.close(backward(check, op, dy, **run), expected[1], bounds[1], f"dx {label}")
        check.count("affine", dtype)


@pytest.mark.parametrize("quarters", range(-4, 5))
@pytest.mark.parametrize("dtype", DTYPES)
def test_quarter_turns_are_exact(check, dtype, quarters):
    """Counter-clockwise, as numpy.rot90; of images that are not square, what turns out of them is lost."""
    rng = np.random.default_rng(0)
    degrees = (90.0 * quarters,) * 2
    for size in (1, 2, 5, 8):
        x, dy = (check.input(rng.standard_normal((17, 3, size, size)), dtype) for _ in range(2))
        op = AffineOp((3, size, size), degrees, dtype=dtype)
        check.equal(forward(check, op, x), np.rot90(x, quarters, (2, 3)), f"y {size}")
        check.equal(backward(check, op, dy), np.rot90(dy, -quarters, (2, 3)), f"dx {size}")
    wide = check.input(rng.standard_normal((3, 1, 3, 7)), dtype)
    turned = np.rot90(wide, quarters, (2, 3))
    if quarters % 2:
        turned = np.pad(turned[:, :, 2:5], ((0, 0), (0, 0), (0, 0), (2, 2)), constant_values=9)
    check.equal(forward(check, AffineOp((1, 3, 7), degrees, value=9.0, dtype=dtype), wide), turned, "wide")


@pytest.mark.parametrize("dtype", DTYPES)
def test_zoom_enlarges_the_centre(check, dtype):
    """Pixels of an image of odd size, zoomed by 2 or 1/2, that fall on pixels."""
    x = check.input(np.random.default_rng(0).standard_normal((3, 2, 9, 9)), dtype)
    y = forward(check, AffineOp((2, 9, 9), zoom=(2.0, 2.0), dtype=dtype), x)
    check.equal(y[:, :, ::2, ::2].copy(), x[:, :, 2:7, 2:7], "enlarged")
    y = forward(check, AffineOp((2, 9, 9), zoom=(0.5, 0.5), value=5.0, dtype=dtype), x)
    inside = np.full_like(y, 5)
    inside[:, :, 2:7, 2:7] = x[:, :, ::2, ::2]
    check.equal(y, inside, "reduced")


@pytest.mark.parametrize("dtype", DTYPES)
def test_nearest_takes_the_pixel_of_the_largest_weight(check, dtype):
    """An op for labels, on images that number their pixels from 1, with 0 outside; backward is its transpose."""
    rng = np.random.default_rng(1)
    for shape, options in geometries(rng, 8):
        op = AffineOp(shape, **options | {"value": 0.0}, dtype=dtype, nearest=True)
        matrices = augment.affine_matrices(shape, augment.affine_draws(range(17), options["degrees"], options["zoom"]))
        size = shape[1] * shape[2]
        numbers = np.broadcast_to(np.arange(1.0, size + 1).reshape(shape[1:]), (17, *shape))
        y = forward(check, op, check.input(np.ascontiguousarray(numbers), dtype))
        found = y[:, 0].reshape(17, size).astype(int)
        assert (y == found.reshape(17, 1, *shape[1:])).all()
        weights = np.concatenate([(1 - matrices.sum(axis=2))[:, :, None], matrices], axis=2)  # outside first
        chosen = np.take_along_axis(weights, found[:, :, None], axis=2)[:, :, 0]
        whole = weights[:, :, 0] < 1e-9  # all four pixels around the point are inside
        assert (chosen[whole] >= weights.max(axis=2)[whole] - 1e-6).all()
        assert (found[weights[:, :, 0] > 1 - 1e-9] == 0).all()
        dy = check.input(rng.standard_normal((17, *shape)), dtype)
        picked = np.zeros((17, size, size + 1))
        np.put_along_axis(picked, found[:, :, None], 1, axis=2)
        expected = augment.affine_backward(dy, picked[:, :, 1:])
        check.close(backward(check, op, dy), expected, ref.rounding(12, dtype) * size + 1e-12, "dx")


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(3, 7, 7), (1, 5, 12), (2, 9, 4)])
def test_agrees_with_pytorch(check, shape):
    """grid_sample with zeros outside, as torchvision's rotate; its counter-clockwise angles."""
    import torch
    from torch.nn import functional

    rng = np.random.default_rng(0)
    _, height, width = shape
    x, dy = (rng.standard_normal((33, *shape)) for _ in range(2))
    op = AffineOp(shape, (-180.0, 180.0), (0.5, 2.0), dtype="float64")
    theta = []
    for degrees, zoom in augment.affine_draws(range(33), (-180, 180), (0.5, 2)):
        a, b = np.cos(np.radians(degrees)) / zoom, np.sin(np.radians(degrees)) / zoom
        theta.append([[a, -b * height / width, 0], [b * width / height, a, 0]])
    leaf = torch.tensor(x, requires_grad=True)
    grid = functional.affine_grid(torch.tensor(np.array(theta)), (33, *shape), align_corners=False)
    y = functional.grid_sample(leaf, grid, align_corners=False)
    y.backward(torch.tensor(dy))
    check.close(forward(check, op, x), y.detach().numpy(), 1e-12, "y")
    check.close(backward(check, op, dy), leaf.grad.numpy(), 1e-12, "dx")


@pytest.mark.parametrize("dtype", DTYPES)
def test_inference_is_the_identity(check, dtype):
    rng, op = np.random.default_rng(0), AffineOp((3, 5, 4), (30.0, 60.0), dtype=dtype)
    for n in BATCHES:
        x = check.input(rng.choice([np.nan, np.inf, -0.0, *rng.standard_normal(20)], (n, 3, 5, 4)), dtype)
        for threads in THREADS:
            y = check.output(x.shape, dtype)
            forward_batch(op, x, y, num_threads=threads, seed=3, step=4)
            check.same_bits(y, x, f"{n} {threads}")


def test_angles_and_zooms_are_uniform_and_independent():
    """Read off an image whose values are the pixels' places, which are interpolated exactly."""
    n, size = 2**12, 21
    places = np.arange(size) - size // 2
    x = np.stack(np.broadcast_arrays(places[:, None], places))[None].repeat(n, axis=0).astype("f8")
    y = np.empty_like(x)
    op = AffineOp((2, size, size), (-40.0, 40.0), (1.0, 3.0), dtype="float64")
    forward_batch(op, x, y, training=True)
    down, right = y[:, :, size // 2, size // 2 + 1].T  # shown by the pixel right of the centre
    found = np.degrees(np.arctan2(down, right)) / 80 + 0.5, (1 / np.hypot(down, right) - 1) / 2
    for values in found:
        counts = np.bincount((values * 16).astype(int), minlength=16)
        assert abs(((counts - n / 16) ** 2 / (n / 16)).sum() - 15) <= 4 * np.sqrt(30)
    assert abs(np.corrcoef(*found)[0, 1]) * np.sqrt(n) <= 4
    np.testing.assert_allclose(found[0] * 80 - 40, [angle for angle, _ in augment.affine_draws(range(n), (-40, 40))])


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype):
    rng = np.random.default_rng(1)
    x, dy = (rng.standard_normal((277, 3, 9, 8)).astype(dtype) for _ in range(2))
    op = AffineOp((3, 9, 8), (-50.0, 90.0), (0.5, 2.0), dtype=dtype)
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
        ({"degrees": (1.0, 0.0)}, r"degrees: expected \(first, last\) from -360 to 360, got \(1.0, 0.0\)"),
        ({"degrees": (0.0, 361.0)}, "degrees: expected"),
        ({"degrees": (np.nan, 0.0)}, "degrees: expected"),
        ({"degrees": 3}, None),
        ({"zoom": (0.0, 1.0)}, r"zoom: expected \(first, last\) from 0.0009765625 to 1024"),
        ({"zoom": (1.0, np.inf)}, "zoom: expected"),
        ({"zoom": (1.0,)}, None),
        ({"value": "1"}, None),
        ({"in_shape": (1, 2**13, 2**12)}, "input shape: expected at most 16777216 pixels"),
        ({"in_shape": (4, 4)}, "input shape: expected 3 whole numbers"),
        ({"path": 3}, "path: expected a string, got 3"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        AffineOp(**{"in_shape": (2, 4, 5)} | changes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_between_two_pixels_a_label_is_that_below_or_to_the_right(dtype):
    """A quarter turn of 5 x 8 pixels shows points halfway between them, in both directions."""
    labels, op = np.arange(1.0, 41).reshape(5, 8), AffineOp((1, 5, 8), (90.0, 90.0), dtype=dtype, nearest=True)
    y = np.empty((1, 1, 5, 8), dtype)
    forward_batch(op, labels.reshape(1, 1, 5, 8).astype(dtype), y, training=True)
    down, right = np.indices((5, 8)) - np.array([2, 3.5]).reshape(2, 1, 1)
    h, w = np.floor(2 + right + 0.5).astype(int), np.floor(3.5 - down + 0.5).astype(int)
    inside = (h >= 0) & (h < 5)  # columns are
    assert 0 < inside.sum() < 40
    np.testing.assert_array_equal(y[0, 0], np.where(inside, labels[h.clip(0, 4), w], 0))
