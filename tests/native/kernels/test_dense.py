"""dense: random sizes compared with the reference, finite differences, bitwise reproducibility, errors."""

import numpy as np
import pytest
import reference as ref

from minidl_c.functional import dense_backward, dense_forward

DTYPES = ("float32", "float64")
THREADS = (1, 1, 2, 1, 3)  # thread counts that the random sizes cycle through
BATCHES = (0, 1, 2, 15, 16, 17, 31, 33, 64, 257)
WIDTHS = (1, 2, 3, 7, 8, 10, 15, 16, 17, 23, 24, 25, 47, 84, 120, 193, 400)
SHAPES = [(277, 33, 25), (33, 17, 10), (16, 120, 84), (5, 1, 1)]  # n, inputs, outputs


def draw(rng, n, inputs, outputs, whole=False):
    """Draws x, w, b and dy, exact in float32; integers if `whole`, whose sums are exact in any order."""
    shapes = (n, inputs), (inputs, outputs), (outputs,), (n, outputs)
    if whole:
        return [rng.integers(-4, 5, shape).astype("f4") for shape in shapes]
    return [rng.standard_normal(shape, "f4") for shape in shapes]


def forward(check, x, w, b, **options):
    y = check.output((len(x), w.shape[1]), x.dtype)
    dense_forward(x, w, b, y, **options)
    return y


def backward(check, dy, x, w, **options):
    dx, dw, db = (check.output(s, x.dtype) for s in (x.shape, w.shape, w.shape[1:]))
    dense_backward(dy, x, w, dx, dw, db, **options)
    return dx, dw, db


def both(check, x, w, b, dy, **options):
    return forward(check, x, w, b, **options), *backward(check, dy, x, w, **options)


def oracle(x, w, b, dy):
    return ref.dense_forward(x, w, b), *ref.dense_backward(dy, x, w)


@pytest.mark.parametrize("seed", range(20))
def test_random_sizes(check, seed):
    rng = np.random.default_rng(seed)
    for index in range(15):
        n = int(rng.choice(BATCHES))
        inputs, outputs = (int(v) for v in rng.choice(WIDTHS, 2))
        whole = index % 2 == 0
        values = draw(rng, n, inputs, outputs, whole)
        exact, magnitude = oracle(*values), oracle(*(np.abs(v) for v in values))
        for dtype in DTYPES:
            arrays = [check.input(v, dtype) for v in values]
            got = both(check, *arrays, num_threads=THREADS[index % 5])
            terms = (inputs + 1, outputs, n, n)
            names = ("y", "dx", "dw", "db")
            for name, a, e, m, t in zip(names, got, exact, magnitude, terms, strict=True):
                bound = 0 if whole else ref.rounding(t, dtype) * m
                check.close(a, e, bound, f"{name} {dtype} n={n} {inputs}->{outputs}")
            check.count("dense", dtype)


@pytest.mark.parametrize(("n", "inputs", "outputs"), [(17, 5, 3), (33, 3, 4), (1, 7, 2)])
def test_gradients_match_finite_differences(check, n, inputs, outputs):
    """Differentiates sum(y * dy) by every entry of every row; the layer is linear, so the step may be 1."""
    values = draw(np.random.default_rng(n), n, inputs, outputs)
    x, w, b, dy = (v.astype("f8") for v in values)
    y = np.empty(dy.shape)

    def value():
        dense_forward(x, w, b, y)
        return np.sum(y * dy)

    largest = ref.dense_forward(*(np.abs(v) + 1 for v in (x, w, b)))
    bound = ref.rounding(inputs + 2 + y.size, "f8") * np.sum(largest * np.abs(dy))
    for name, gradient, array in zip("xwb", backward(check, dy, x, w), (x, w, b), strict=True):
        expected = ref.finite_differences(value, array, step=1.0)
        check.close(gradient, expected, bound, f"d{name} n={n} {inputs}->{outputs}")


@pytest.mark.parametrize(("n", "inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_thread_count_changes_no_bit(check, dtype, n, inputs, outputs):
    values = [v.astype(dtype) for v in draw(np.random.default_rng(1), n, inputs, outputs)]
    first = both(check, *values)
    for threads in (2, 3, 8):
        again = both(check, *values, num_threads=threads)
        for name, a, e in zip(("y", "dx", "dw", "db"), again, first, strict=True):
            check.same_bits(a, e, f"{name} {dtype} {threads} threads {n, inputs, outputs}")


@pytest.mark.parametrize(("n", "inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_do_not_depend_on_the_rest_of_the_batch(check, dtype, n, inputs, outputs):
    values = draw(np.random.default_rng(2), n, inputs, outputs)
    x, w, b, dy = (v.astype(dtype) for v in values)
    y, dx = forward(check, x, w, b), backward(check, dy, x, w)[0]
    for i in range(min(n, 40)):
        row = slice(i, i + 1)
        check.same_bits(forward(check, x[row], w, b), y[row], f"y row {i}")
        check.same_bits(backward(check, dy[row], x[row], w)[0], dx[row], f"dx row {i}")
    x[n // 2], dy[n // 2] = np.nan, np.inf
    others = np.arange(n) != n // 2
    check.same_bits(forward(check, x, w, b)[others], y[others], "y beside a row of NaN")
    beside = backward(check, dy, np.zeros_like(x), w)[0]
    check.same_bits(beside[others], dx[others], "dx beside a row of inf")


@pytest.mark.parametrize("tiles", [1, 2, 3, 5, 11, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_weight_gradient_is_the_tree_sum_of_its_slots(check, dtype, tiles):
    """With up to 16 tiles each slot is one tile; node k of a level adds nodes 2k and 2k + 1 of the level below."""
    x, w, _, dy = (v.astype(dtype) for v in draw(np.random.default_rng(tiles), 16 * tiles, 9, 11))
    tile_rows = [slice(16 * t, 16 * t + 16) for t in range(tiles)]
    level = [backward(check, dy[rows], x[rows], w)[1] for rows in tile_rows]
    while len(level) > 1:
        level = [sum(level[k : k + 2]) for k in range(0, len(level), 2)]
    check.equal(backward(check, dy, x, w)[1], level[0], f"dw of {tiles} tiles {dtype}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_dx_can_be_left_out(check, dtype):
    x, w, _, dy = (v.astype(dtype) for v in draw(np.random.default_rng(3), 33, 17, 10))
    _, dw, db = backward(check, dy, x, w)
    dw_alone, db_alone = check.output(dw.shape, dtype), check.output(db.shape, dtype)
    dense_backward(dy, x, w, None, dw_alone, db_alone)
    check.same_bits(dw_alone, dw, "dw without dx")
    check.same_bits(db_alone, db, "db without dx")


def test_gradients_of_an_empty_batch_are_zero(check):
    x, w, _, dy = draw(np.random.default_rng(4), 0, 5, 3)
    _, dw, db = backward(check, dy, x, w)
    assert not dw.any() and not db.any()


# ---- what is refused -----------------------------------------------------------------------------
ARRAYS = [*(("forward", name) for name in "xwby")]
ARRAYS += [("backward", name) for name in ("dy", "x", "w", "dx", "dw", "db")]


def valid_call(check, kernel):
    x, w, b, y = draw(np.random.default_rng(5), 17, 5, 3)
    if kernel == "forward":
        return check.call(dense_forward, ("y",), x=x, w=w, b=b, y=y)
    gradients = {"dx": x.copy(), "dw": w.copy(), "db": b}
    return check.call(dense_backward, ("dx", "dw", "db"), dy=y, x=x, w=w, **gradients)


@pytest.mark.parametrize(("kernel", "name"), ARRAYS)
def test_invalid_arrays_are_refused(check, kernel, name):
    check.refuses_invalid_shapes(valid_call(check, kernel), name)
    check.refuses_invalid_arrays(valid_call(check, kernel), name, optional=name == "dx")


@pytest.mark.parametrize("kernel", ["forward", "backward"])
@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_invalid_thread_counts_are_refused(check, kernel, threads):
    check.refused(valid_call(check, kernel), {"num_threads": threads}, match="num_threads|int")
