"""embedding: y and the weight gradient compared with NumPy, and bit for bit with a dense layer on one-hot inputs."""

import numpy as np
import pytest
import reference as ref
from per_example_checks import check_alone, check_sums
from plans import train

from minidl_c.kernels.dense import DenseOp
from minidl_c.kernels.embedding import EmbeddingOp
from minidl_c.kernels.flatten import FlattenOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

BATCHES = (0, 1, 15, 16, 17, 33, 277)  # 277: slots of two tiles
GEOMETRIES = [(1, 1, 1), (7, 3, 1), (3, 16, 4), (40, 17, 2), (9, 33, 5), (300, 5, 3)]  # categories, dim, length
THREADS = (1, 2, 3, 8)
INVALID = (np.nan, np.inf, -np.inf, -1.0, 0.5, 7.0, 1e30, -1e30)  # of 7 categories

each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def draw(rng, n, geometry, dtype):
    """Draws x, dy and the weight."""
    categories, dim, length = geometry
    x = rng.integers(0, categories, (n, length))
    return [a.astype(dtype) for a in (x, rng.standard_normal((n, dim, length)), rng.standard_normal((categories, dim)))]


def make(x, weight):
    return EmbeddingOp(x.shape[1:], *weight.shape, x.dtype.name)


def forward(check, x, weight, **options):
    y = check.output((len(x), weight.shape[1], x.shape[1]), x.dtype)
    forward_batch(make(x, weight), x, y, (weight,), **options)
    return y


def backward(check, dy, x, weight, want_dx=True, **options):
    """Returns (dx, dweight)."""
    dx, dweight = check.output(x.shape, x.dtype) if want_dx else None, check.output(weight.shape, x.dtype)
    backward_batch(make(x, weight), dy, x, dx, (weight,), (dweight,), **options)
    return dx, dweight


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@each_dtype
def test_matches_numpy(check, dtype, geometry, n):
    x, dy, weight = (check.input(a, dtype) for a in draw(np.random.default_rng(n), n, geometry, dtype))
    what, places = f"{dtype} n={n} {geometry}", x.astype(int)
    check.same_bits(forward(check, x, weight), weight[places].transpose(0, 2, 1), f"y {what}")
    dx, dweight = backward(check, dy, x, weight)
    check.same_bits(dx, np.zeros_like(x), f"dx {what}")
    total, magnitude = np.zeros(weight.shape), np.zeros(weight.shape)
    np.add.at(total, places, dy.astype("f8").transpose(0, 2, 1))
    np.add.at(magnitude, places, np.abs(dy).astype("f8").transpose(0, 2, 1))
    check.close(dweight, total, ref.rounding(x.size, dtype) * magnitude, f"dweight {what}")
    check.same_bits(backward(check, dy, x, weight, want_dx=False)[1], dweight, f"dweight without dx {what}")
    check.count("embedding", dtype)


@pytest.mark.parametrize("n", (*BATCHES, 256, 600))
@each_dtype
def test_the_gradient_has_the_bits_of_a_dense_layer_on_one_hot_inputs(check, dtype, n):
    for categories, dim in ((7, 3), (40, 33)):
        x, dy, weight = draw(np.random.default_rng(n), n, (categories, dim, 1), dtype)
        dy = np.where(np.random.default_rng(n).random(dy.shape) < 0.2, -0.0, dy).astype(dtype)
        expected, one_hot = np.empty_like(weight), np.eye(categories, dtype=dtype)[x[:, 0].astype(int)]
        dense = DenseOp((categories,), dim, dtype, use_bias=False)
        backward_batch(dense, dy[:, :, 0].copy(), one_hot, None, (weight,), (expected,))
        check.same_bits(backward(check, dy, x, weight)[1], expected, f"{categories} {dim}")


@each_dtype
def test_threads_and_batch_neighbours_change_no_bit(check, dtype):
    for n, geometry in ((5, (9, 33, 5)), (37, (40, 17, 2)), (600, (300, 5, 3))):
        x, dy, weight = draw(np.random.default_rng(n), n, geometry, dtype)
        y, (dx, dweight) = forward(check, x, weight), backward(check, dy, x, weight)
        for threads in THREADS:
            check.same_bits(forward(check, x, weight, num_threads=threads), y, f"y {threads} threads")
            again = backward(check, dy, x, weight, num_threads=threads)
            check.same_bits(again[0], dx, f"dx {threads} threads")
            check.same_bits(again[1], dweight, f"dweight {threads} threads")
    for i in range(20):
        check.same_bits(forward(check, x[i : i + 1], weight), y[i : i + 1], f"y row {i}")


@pytest.mark.parametrize("n", [1, 16, 33])
@each_dtype
def test_other_numbers_give_nan_and_no_gradient(check, dtype, n):
    for limit in (0, 16):  # tiles, and the blocked layout
        x, dy, weight = draw(np.random.default_rng(0), n, (7, 19, len(INVALID) + 2), dtype)
        x[:, 1:-1] = INVALID
        x[:, 0] = -0.0  # a whole number
        plan, y = Plan([EmbeddingOp(x.shape[1:], 7, 19, dtype)], [0]), np.empty((n, dy[0].size), dtype)
        plan.blocked_limit = limit
        plan.predict(x, None, weight.ravel(), y, 2)
        y = y.reshape(dy.shape)
        assert np.isnan(y[:, :, 1:-1]).all() and np.isfinite(y[:, :, [0, -1]]).all()
        check.same_bits(y[0, :, 0], weight[0], "y of -0")
        valid = backward(check, dy[:, :, [0, -1]].copy(), x[:, [0, -1]].copy(), weight)[1]
        check.same_bits(backward(check, dy, x, weight)[1], valid, "dweight")


@pytest.mark.parametrize("geometry", GEOMETRIES)
@each_dtype
def test_the_blocked_layout_has_the_bits_of_tiles(dtype, geometry):
    categories, dim, length = geometry
    n_out, rng = dim * length, np.random.default_rng(1)
    x, _, weight = draw(rng, 16, geometry, dtype)
    targets, weights = rng.standard_normal((16, n_out)).astype(dtype), rng.uniform(0, 2, 16).astype(dtype)
    ops = EmbeddingOp((length,), categories, dim, dtype), FlattenOp((dim, length), dtype)
    training = Plan([*ops, ElementwiseLossOp((n_out,), "mean_squared_error", dtype=dtype)], [0] * 3, True)
    inference = Plan(ops, [0] * 2)

    def run(n, threads, limit):
        inference.blocked_limit = training.blocked_limit = limit
        y, losses, grad = np.empty((n, n_out), dtype), np.empty(n, dtype), np.full(weight.size, 7, dtype)
        inference.predict(x[:n], None, weight.ravel(), y, threads)
        given = (x[:n], None, n, targets[:n], weights[:n], losses, None, np.full(1, 3.0), np.zeros(1))
        train(training, *given, weight.ravel().copy(), grad, None, threads, 5, np.full(1, 9))
        return y.tobytes(), losses.tobytes(), grad.tobytes()

    for n in (1, 2, 7, 16):
        assert run(n, 1, 16) == run(n, 3, 16) == run(n, 1, 0), n


@pytest.mark.parametrize("n", [1, 5, 19])
@each_dtype
def test_gradients_of_examples(dtype, n):
    for geometry in GEOMETRIES:
        x, dy, weight = draw(np.random.default_rng(n), n, geometry, dtype)
        op, dx, dweight = make(x, weight), np.empty_like(x), np.empty_like(weight)
        for threads in (1, 3):
            backward_batch(op, dy, x, dx, (weight,), (dweight,), threads)
            check_sums(op, dy, x, dx, (weight,), (dweight,), threads)
        check_alone(op, dy, x, (weight,))


@pytest.mark.parametrize(
    ("make_op", "message"),
    [
        (lambda: EmbeddingOp((3,), 0, 2), "length, categories and dim: expected numbers from 1"),
        (lambda: EmbeddingOp((3,), 2, -1), "length, categories and dim: expected numbers from 1"),
        (lambda: EmbeddingOp((3, 2), 2, 1), "length, categories and dim: expected 3 whole numbers"),
        (lambda: EmbeddingOp((3,), 2.0, 1), "length, categories and dim: expected 3 whole numbers"),
        (lambda: EmbeddingOp((1,), 2**24 + 1, 1), "categories: expected at most 16777216, up to which float32 has all"),
        (lambda: EmbeddingOp((1,), 2**54, 1, "float64"), "categories: expected at most 9007199254740992"),
        (lambda: EmbeddingOp((1,), 2**53, 2, "float64"), "weight: expected at most 1099511627776 numbers"),
        (lambda: EmbeddingOp((3,), 2, 1, "float16"), "dtype"),
    ],
)
def test_invalid_arguments_are_refused(make_op, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make_op()
