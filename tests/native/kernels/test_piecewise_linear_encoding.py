"""piecewise_linear_encoding: y and dx bit for bit as NumPy computes them in the same dtype."""

import numpy as np
import pytest
import reference as ref
from plans import train

from minidl_c.kernels.piecewise_linear_encoding import PiecewiseLinearEncodingOp
from minidl_c.kernels.scale import ScaleOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 3e38, -3e38)
GEOMETRIES = 12

each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def geometry(rng):
    """Draws the edges of columns, some without bins, and which have an indicator; at least one output."""
    columns = int(rng.choice([1, 3, 16, 17, 40]))
    sizes = rng.choice([0, 2, 3, 9, 40], columns)
    sizes[rng.integers(columns)] = 5
    edges = [(np.cumsum(rng.uniform(0.01, 2, size)) - 3).tolist() for size in sizes]
    return edges, (rng.random(columns) < 0.4).tolist()


def draw(rng, n, edges, missing, dtype):
    """Draws x, with the edges themselves and special numbers among its elements, and dy."""
    numbers = [*rng.normal(0, 4, 30), *SPECIAL]
    x = [rng.choice([*numbers, *of_column], n) for of_column in edges]
    outputs = sum(max(len(of_column) - 1, 0) for of_column in edges) + sum(missing)
    return np.array(x, dtype).T.copy(), rng.standard_normal((n, outputs)).astype(dtype)


def both(check, x, dy, edges, missing, **options):
    """Returns (y, dx)."""
    op = PiecewiseLinearEncodingOp(x.shape[1:], edges, missing, x.dtype.name)
    y, dx = check.output(dy.shape, x.dtype), check.output(x.shape, x.dtype)
    forward_batch(op, x, y, **options)
    backward_batch(op, dy, x, dx, **options)
    return y, dx


@pytest.mark.parametrize("n", BATCHES)
@each_dtype
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # of NumPy
def test_matches_numpy(check, dtype, n):
    for seed in range(GEOMETRIES):
        rng = np.random.default_rng([n, seed])
        edges, missing = geometry(rng)
        x, dy = (check.input(a, dtype) for a in draw(rng, n, edges, missing, dtype))
        expected = ref.encoding_forward(x, edges, missing).reshape(dy.shape)
        for threads in THREADS:
            y, dx = both(check, x, dy, edges, missing, num_threads=threads)
            label = f"{dtype} {seed} {x.shape} {threads} threads"
            check.same_bits(y, expected, f"y {label}")
            check.same_bits(dx, ref.encoding_backward(dy, x, edges, missing), f"dx {label}")
        check.count("piecewise_linear_encoding", dtype)


@pytest.mark.parametrize("seed", range(GEOMETRIES))
@each_dtype
def test_the_blocked_layout_has_the_bits_of_tiles(dtype, seed):
    """The gradient of a Scale before it sums dx * x."""
    rng = np.random.default_rng(seed)
    edges, missing = geometry(rng)
    x, targets = draw(rng, 16, edges, missing, dtype)
    n_in, n_out = x.shape[1], targets.shape[1]
    op = PiecewiseLinearEncodingOp((n_in,), edges, missing, dtype)
    loss = ElementwiseLossOp((n_out,), "mean_squared_error", dtype=dtype)
    inference, training = Plan([op], [0]), Plan([ScaleOp((n_in,), False, dtype), op, loss], [0] * 3, True)
    param, finite = np.ones(n_in, dtype), np.where(np.abs(x) < 100, x, 1).astype(dtype)

    def run(n, threads, limit):
        inference.blocked_limit = training.blocked_limit = limit
        y, losses, grad = np.empty((n, n_out), dtype), np.empty(n, dtype), np.full(n_in, 7, dtype)
        inference.predict(x[:n], None, np.empty(0, dtype), y, threads)
        given = (finite[:n], None, n, targets[:n], np.ones(n, dtype), losses, None, np.full(1, 3.0), np.zeros(1))
        train(training, *given, param.copy(), grad, None, threads, 5, np.full(1, 9))
        return y.tobytes(), losses.tobytes(), grad.tobytes()

    for n in (1, 2, 7, 16):
        assert run(n, 1, 16) == run(n, 3, 16) == run(n, 1, 0), n


@each_dtype
def test_subnormal_numbers_are_zeros(dtype):
    tiny = np.finfo(dtype).tiny
    op = PiecewiseLinearEncodingOp((1,), [[tiny / 4, tiny, 3 * tiny]], [False], dtype)
    assert op.bins == [(0, 0.0, tiny), (0, tiny, 3 * tiny)]
    x, y = np.array([[tiny / 2], [tiny], [2 * tiny]], dtype), np.empty((3, 2), dtype)
    forward_batch(op, x, y)
    assert y.tolist() == [[0, 0], [1, 0], [1, 0.5]]


@pytest.mark.parametrize(
    ("in_shape", "edges", "missing", "message"),
    [
        ((2,), [[0, 1]], [False], "edges, missing: expected 2, one for each column, got 1 and 1"),
        ((1,), [[0, 1]], [False, True], "got 1 and 2"),
        ((1, 1), [[0, 1]], [False], "in_shape: expected 1 whole numbers"),
        ((2,), [[], []], [False, False], "edges: expected the edges of a bin, or missing values, .*, got none"),
        ((1,), [[1]], [True], r"edges\[0\]: expected a list of none, or at least two, got \[1.0\]"),
        ((1,), [[[1, 2]]], [True], r"edges\[0\]: expected a list of none, or at least two"),
        ((2,), [[], [1, 1]], [True, True], r"edges\[1\]: expected finite numbers that increase in float32, got \[1.0,"),
        ((1,), [[0, 2, 1]], [False], "increase in float32"),
        ((1,), [[1, 1 + 1e-9]], [False], "increase in float32"),
        ((1,), [[0, 1e-39]], [False], "increase in float32"),  # flushed to zero
        ((1,), [[1.2e-38, 1.5e-38]], [False], "increase in float32"),  # their difference is
        ((1,), [[0, np.nan]], [False], "increase in float32"),
        ((1,), [[-np.inf, 0]], [False], "increase in float32"),
        ((1,), [[0, 1e39]], [False], "increase in float32"),
        ((1,), [[-3e38, 3e38]], [False], "increase in float32"),  # their difference overflows
        ((1,), [["a", "b"]], [False], "could not convert string to float"),
        ((1,), None, [False], None),
        ((1,), [[0, 1]], None, None),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(in_shape, edges, missing, message):
    with pytest.raises((ValueError, TypeError), match=message):
        PiecewiseLinearEncodingOp(in_shape, edges, missing)
