"""dropout: known answers of the generator, masks compared with NumPy, statistics, bitwise reproducibility, errors."""

import itertools

import numpy as np
import pytest
import reference as ref
from plans import train

from minidl_c.kernels.dropout import DropoutOp
from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
RATES = (0.1, 0.5, 0.9)
LARGE = 2**63 - 1  # the largest seed and step
NOTHING = {dtype: np.empty(0, dtype) for dtype in DTYPES}


def dropout_forward(x, y, rate, path="", group=1, **options):
    forward_batch(DropoutOp(x.shape[1:], rate, path, x.dtype.name, group), x, y, training=True, **options)


def dropout_backward(dy, dx, rate, path="", group=1, **options):
    backward_batch(DropoutOp(dy.shape[1:], rate, path, dy.dtype.name, group), dy, dy, dx, **options)


def forward(check, x, rate, **options):
    y = check.output(x.shape, x.dtype)
    dropout_forward(x, y, rate, **options)
    return y


def backward(check, dy, rate, **options):
    dx = check.output(dy.shape, dy.dtype)
    dropout_backward(dy, dx, rate, **options)
    return dx


def kept(n, size, rate, **options):
    """Returns the float32 mask of n examples."""
    y = np.empty((n, size), "f4")
    dropout_forward(np.ones((n, size), "f4"), y, rate, **options)
    return y != 0


# ---- the generator -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "counter", "answer"),
    [  # Random123, tests/kat_vectors: threefry2x32 20
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ref.WORD, ref.WORD), (ref.WORD, ref.WORD), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_the_reference_generator_has_the_known_answers(key, counter, answer):
    assert ref.threefry(key, counter) == answer


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 0, "step": 0, "path": ""},
        {"seed": 7, "step": 123_456, "path": "3"},
        {"seed": 2**32, "step": 2**40 + 5, "path": "3.body.0"},
        {"seed": LARGE, "step": LARGE, "path": "ä" * 300},
    ],
    ids=str,
)
def test_thresholds_use_all_32_bits(options):
    """A draw of b is kept at a threshold of b + 1 and dropped at b; both rates are exact."""
    bits = ref.dropout_bits(5, range(19), **options)
    for row, i in itertools.product((0, 3, 15, 16, 18), range(5)):
        b = int(bits[row, i])
        assert kept(19, 5, 1 - (b + 1) / 2**32, **options)[row, i]
        assert not kept(19, 5, 1 - b / 2**32, **options)[row, i]


# ---- masks -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("rate", [0.0, 1e-9, *RATES, 1 - 2**-32])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_numpy(check, dtype, rate, n):
    rng = np.random.default_rng(n)
    for size in (1, 2, 3, 16, 33, int(rng.integers(100, 1000))):
        x, dy = (check.input(rng.standard_normal((n, size)), dtype) for _ in range(2))
        what = {"seed": int(rng.integers(LARGE)), "step": int(rng.integers(2**40)), "path": f"{size}.body"}
        label = f"{dtype} n={n} size={size} rate={rate} {what}"
        expected = [ref.dropout(a, rate, rows=range(n), **what) for a in (x, dy)]
        for threads in THREADS:
            y, dx = (way(check, a, rate, **what, num_threads=threads) for way, a in ((forward, x), (backward, dy)))
            check.same_bits(y, expected[0], f"y {label}")
            check.same_bits(dx, expected[1], f"dx {label}")
        check.count("dropout", dtype)


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_match_numpy(check, dtype, n):
    """Elements in groups: channels of images, and whole examples."""
    rng = np.random.default_rng(n)
    for shape in ((5, 3, 4), (4, 1, 1), (2, 7), (35, 2, 2), (1, 6, 5)):
        x, dy = (check.input(rng.standard_normal((n, *shape)), dtype) for _ in range(2))
        what = {"seed": int(rng.integers(LARGE)), "step": int(rng.integers(2**40)), "path": "1"}
        for group in (int(np.prod(shape[1:])), int(np.prod(shape)), shape[-1]):
            flat = (a.reshape(n, int(np.prod(shape))) for a in (x, dy))
            expected = [ref.dropout(a, 0.4, group, rows=range(n), **what).reshape(x.shape) for a in flat]
            for threads in THREADS:
                options, label = what | {"group": group, "num_threads": threads}, f"{shape} {group} {threads} threads"
                check.same_bits(forward(check, x, 0.4, **options), expected[0], f"y {label}")
                check.same_bits(backward(check, dy, 0.4, **options), expected[1], f"dx {label}")
            check.count("dropout", dtype)


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mask_depends_on_the_id_of_its_example(check, dtype, n):
    """The position in the batch does not matter. Ids have 64 bits, as have seed and step."""
    rng = np.random.default_rng(n)
    x = check.input(rng.standard_normal((n, 37)), dtype)
    for most in (10, 2**32, LARGE):
        numbers = rng.integers(0, most, n, endpoint=True)
        expected = ref.dropout(x, 0.3, rows=numbers, seed=5, step=6, path="2")
        for threads in THREADS:
            options = {"seed": 5, "step": 6, "path": "2", "example_ids": numbers, "num_threads": threads}
            check.same_bits(forward(check, x, 0.3, **options), expected, f"y {most} {threads}")
            check.same_bits(backward(check, x, 0.3, **options), expected, f"dx {most} {threads}")


@pytest.mark.parametrize("batch", [1, 3, 15, 16, 17, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_training_plan_advances_the_step(dtype, batch):
    """Three steps in one call, with shuffled rows: the scores are the rows after dropout."""
    rng = np.random.default_rng(batch)
    x, rows, first = rng.standard_normal((200, 37)).astype(dtype), rng.integers(0, 200, 3 * batch), 2**32 - 1
    steps = enumerate(rows.reshape(3, batch))
    expected = [ref.dropout(x[here], 0.3, rows=here, seed=5, step=first + k, path="2") for k, here in steps]
    ops = [DropoutOp((37,), 0.3, "2", dtype), SoftmaxCrossEntropyOp((37,), dtype=dtype)]
    for threads in THREADS:
        scores, losses, count = np.empty((3 * batch, 37), dtype), np.empty(3 * batch, dtype), np.array([first])
        done = train(
            Plan(ops, [0, 0], has_loss=True), x, rows, batch, np.zeros(200, "i8"), None, losses, scores, np.ones(3),
            np.zeros(3), NOTHING[dtype], NOTHING[dtype], None, threads, 5, count,
        )  # fmt: skip
        assert done == 3
        assert scores.tobytes() == np.concatenate(expected).tobytes(), threads


@pytest.mark.parametrize("dtype", DTYPES)
def test_inference_is_the_identity(dtype):
    """For a single op and for several in a plan."""
    ops = [DropoutOp((3, 5), rate, str(rate), dtype) for rate in RATES]
    x = np.random.default_rng(0).standard_normal((33, 15)).astype(dtype)
    x[4], x[20, 3] = np.nan, -np.inf
    for count, threads in itertools.product((1, 3), THREADS):
        for n in BATCHES:
            y = np.empty((n, 15), dtype)
            Plan(ops[:count], [0] * count).predict(x, np.arange(n), NOTHING[dtype], y, threads)
            assert y.tobytes() == x[:n].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nonfinite", [np.nan, np.inf, -np.inf])
def test_dropped_values_are_zero_even_if_not_finite(check, dtype, nonfinite):
    mask = kept(33, 21, 0.5)
    x = check.input(np.full(mask.shape, nonfinite), dtype)
    for array in (forward(check, x, 0.5), backward(check, x, 0.5)):
        check.same_bits(array, np.where(mask, x, x.dtype.type(0)), "kept as it is, dropped +0")


def test_two_dropouts_in_one_plan_equal_two_plans():
    x = np.random.default_rng(0).standard_normal((40, 30)).astype("f4")
    ops = [DropoutOp((30,), 0.4, path) for path in ("0", "1")]
    y, dx, both = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    plan, nothing = Plan(ops, [0, 0]), NOTHING["float32"]
    plan.backward(plan.forward(x, nothing, y, 2), x, dx, nothing, nothing)
    dropout_forward(x, both, 0.4, path="0")
    dropout_forward(both.copy(), both, 0.4, path="1")
    assert y.tobytes() == both.tobytes()
    assert dx.tobytes() == both.tobytes()  # the same two factors, applied in turn


# ---- statistics ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("rate", RATES)
def test_the_kept_fraction_matches_the_rate(rate):
    """Within 4 standard deviations for 2**20 values, overall and for every row, column and lane of the tiles."""
    mask = kept(1024, 1024, rate)
    deviation = np.sqrt(rate * (1 - rate))
    assert abs(mask.mean() - (1 - rate)) <= 4 * deviation / 1024
    for means in (mask.mean(axis=0), mask.mean(axis=1)):  # 5 sigma for these: one value in 1.7 million exceeds it
        assert np.abs(means - (1 - rate)).max() <= 5 * deviation / 32
    lanes = mask.reshape(64, 16, 1024).mean(axis=(0, 2))
    assert np.abs(lanes - (1 - rate)).max() <= 4 * deviation / 256
    assert abs(np.std(mask.sum(axis=1)) / (32 * deviation) - 1) <= 4 / np.sqrt(2 * 1024)


def correlation(a, b):
    """Returns the correlation in standard deviations of that of independent masks."""
    return abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) * np.sqrt(a.size)


@pytest.mark.parametrize("rate", RATES)
def test_masks_are_independent(rate):
    """Between steps, seeds and layers, and between adjacent rows and values: within 4 standard deviations."""
    mask = kept(512, 512, rate, seed=1, step=1, path="1")
    others = [{"step": 2}, {"step": 1 + 2**32}, {"seed": 2}, {"seed": 1 + 2**32}, {"path": "2"}, {"path": "1.0"}]
    others += [{"seed": 2, "step": 0}, {"seed": 0, "step": 2}]
    for other in others:
        assert correlation(mask, kept(512, 512, rate, **{"seed": 1, "step": 1, "path": "1"} | other)) <= 4, other
    for apart in (1, 2, 16):
        assert correlation(mask[apart:], mask[:-apart]) <= 4
        assert correlation(mask[:, apart:], mask[:, :-apart]) <= 4
    assert correlation(mask, mask.T) <= 4


def test_seed_step_and_row_are_not_interchangeable():
    masks = [kept(2, 256, 0.5, seed=a, step=b, path=c) for a in range(3) for b in range(3) for c in ("", "0", "1")]
    rows = {row.tobytes() for mask in masks for row in mask}
    assert len(rows) == 2 * len(masks)


# ---- refusals ------------------------------------------------------------------------------------------
def valid_call(check, kernel):
    a, b = np.ones((17, 5), "f4"), np.ones((17, 5), "f4")
    if kernel == "forward":
        return check.call(dropout_forward, ("y",), x=a, y=b, rate=0.5)
    return check.call(dropout_backward, ("dx",), dy=a, dx=b, rate=0.5)


@pytest.mark.parametrize("kernel", ["forward", "backward"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": -0.1}, "rate: expected at least 0 and less than 1 .*got -0.1"),
        ({"rate": 1.0}, "rate.*got 1.0"),
        ({"rate": 1 - 2**-33}, r"rate.*at most 1 - 2\*\*-32"),
        ({"rate": np.nan}, "rate.*got nan"),
        ({"rate": None}, None),
        ({"rate": "0.5"}, None),
        ({"group": 0}, "group: expected a divisor of 5 elements, got 0"),
        ({"group": 2}, "group: expected a divisor of 5 elements, got 2"),
        ({"group": "2"}, None),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"step": 0.5}, "step"),
        ({"step": -1}, "step"),
        ({"path": 3}, "path: expected a string, got 3"),
        ({"example_ids": range(17)}, "example_ids: expected an array, got range"),
        ({"example_ids": np.arange(16)}, "example_ids: expected 17 rows"),
        ({"example_ids": np.arange(17).reshape(1, 17)}, "example_ids: expected 17 rows"),
        ({"example_ids": np.arange(17.0)}, "example_ids: expected int64, got float64"),
        ({"num_threads": 0}, None),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(check, kernel, changes, message):
    check.refused(valid_call(check, kernel), changes, message)
