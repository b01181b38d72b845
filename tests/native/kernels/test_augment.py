"""augment: random draws, crops and quarter turns compared with NumPy, statistics, bitwise reproducibility, errors."""

import itertools

import numpy as np
import pytest
import reference_images as images

from minidl_c.kernels.augment import MODES, AugmentOp, QuarterTurnOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import backward_batch, forward_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 15, 16, 17, 33)
THREADS = (1, 2, 3, 8)
LARGE = 2**63 - 1  # the largest seed and step
SPECIAL = (-np.inf, -0.0, 0.0, np.inf, np.nan, 3e38)
OPTIONS = ("first", "last", "flips", "alternate_every")


def crops(rng, mode, extent):
    """Returns size, first and last along an axis; those of "reflect" and "circular" reach no further than they may."""
    border = {"reflect": extent - 1, "circular": extent}.get(mode, 9)
    size = int(rng.integers(1, min(9, extent + 2 * border + 1)))
    first = int(rng.integers(-border, min(5, extent + border - size + 1)))
    return size, first, int(rng.integers(first, min(first + 7, extent + border - size + 1)))


def geometries(rng, count):
    """Yields in_shape and options: crops, shifts, flips, and all of them combined, in each mode."""
    for number in range(count):
        shape, mode = tuple(int(v) for v in rng.integers(1, 9, 3)), MODES[number % 4]
        size, first, last = zip(*(crops(rng, mode, extent) for extent in shape[1:]), strict=True)
        flips, every = tuple(bool(v) for v in rng.integers(0, 2, 2)), int(rng.choice([0, 1, 2, 7, 2**40, LARGE]))
        options = {"size": size, "first": first, "last": last, "flips": flips, "mode": mode, "alternate_every": every}
        yield shape, options


def op_for(x, path="", **options):
    return AugmentOp(x.shape[1:], **options, path=path, dtype=x.dtype.name)


def forward(check, op, x, **run):
    y = check.output((len(x), *op.out_shape), x.dtype)
    forward_batch(op, x, y, training=True, **run)
    return y


def backward(check, op, dy, **run):
    shape = (len(dy), *op.in_shape)
    dx = check.output(shape, dy.dtype)
    backward_batch(op, dy, np.zeros(shape, dy.dtype), dx, **run)
    return dx


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_numpy(check, dtype, n):
    rng = np.random.default_rng(n)
    for number, (shape, options) in enumerate(geometries(rng, 40)):
        path, run = f"{number}.body", {"seed": int(rng.integers(LARGE)), "step": int(rng.integers(2**40))}
        numbers = rng.integers(0, (10, 2**32, LARGE)[number % 3], n)
        draws = images.augment_draws(numbers, *(options[k] for k in OPTIONS), **run, path=path)
        x = check.input(rng.choice([*SPECIAL, *rng.standard_normal(20)], (n, *shape)), dtype)
        dy = check.input(rng.standard_normal((n, shape[0], *options["size"])), dtype)
        expected = images.pieces(x, options["size"], draws, options["mode"]) if n else dy
        gradient = images.pieces_backward(dy, shape, draws, options["mode"])
        op = op_for(x, path, **options)
        for threads in THREADS:
            label = f"{dtype} {shape} {options} {threads} threads"
            y = forward(check, op, x, **run, example_ids=numbers, num_threads=threads)
            check.same_bits(y, expected, f"y {label}")
            dx = backward(check, op, dy, **run, example_ids=numbers, num_threads=threads)
            check.same_bits(dx, gradient, f"dx {label}")
        check.count("augment", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inference_takes_the_center_crop_without_random_draws(check, dtype):
    rng = np.random.default_rng(0)
    for (shape, options), n in itertools.product(geometries(rng, 20), BATCHES):
        x = check.input(rng.choice([*SPECIAL, *rng.standard_normal(20)], (n, *shape)), dtype)
        centre = [(have - want) // 2 for have, want in zip(shape[1:], options["size"], strict=True)]
        op = op_for(x, **options)
        draws, mode = [(*centre, 0, 0)] * n, options["mode"]
        expected = images.pieces(x, options["size"], draws, mode) if n else np.empty((0, *op.out_shape))
        for threads in THREADS:
            y = check.output((n, *op.out_shape), dtype)
            forward_batch(op, x, y, num_threads=threads, seed=3, step=4)
            check.same_bits(y, expected, f"y {shape} {options}")


@pytest.mark.oracle
@pytest.mark.parametrize("mode", MODES)
def test_borders_agree_with_pytorch(check, mode):
    import torch
    from torch.nn import functional

    rng, shape, size = np.random.default_rng(0), (3, 6, 5), (8, 7)
    x, dy = rng.standard_normal((33, *shape)), rng.standard_normal((33, 3, *size))
    draws = images.augment_draws(range(33), (-3, -4), (1, 2), (True, True))
    leaf = torch.tensor(x, requires_grad=True)
    padded = functional.pad(leaf, (4, 4, 3, 3), mode=mode)
    parts = [one[:, 3 + i : 11 + i, 4 + j : 11 + j] for one, (i, j, _, _) in zip(padded, draws, strict=True)]
    turned = [part.flip([1] * v + [2] * h) for part, (_, _, v, h) in zip(parts, draws, strict=True)]
    y = torch.stack(turned)
    y.backward(torch.tensor(dy))
    op = op_for(x, size=size, first=(-3, -4), last=(1, 2), flips=(True, True), mode=mode)
    check.same_bits(forward(check, op, x), y.detach().numpy(), "y")
    check.close(backward(check, op, dy), leaf.grad.numpy(), 1e-13, "dx")


def test_a_border_far_away_takes_no_time():
    """The work is that of the outputs, not of the border."""
    x = np.arange(12, dtype="f4").reshape(1, 1, 3, 4)
    op = op_for(x, size=(2, 2), first=(-(2**24), 2**24), last=(-(2**24), 2**24), mode="replicate")
    y, dx = np.empty((1, 1, 2, 2), "f4"), np.empty_like(x)
    forward_batch(op, x, y, training=True)
    assert (y == x[0, 0, 0, 3]).all()
    backward_batch(op, np.ones_like(y), x, dx)
    assert dx[0, 0, 0, 3] == dx.sum() == 4


def test_two_augmentations_in_one_plan_equal_two_plans():
    rng = np.random.default_rng(0)
    x, nothing = rng.standard_normal((40, 2 * 6 * 5)).astype("f4"), np.empty(0, "f4")
    ops = [AugmentOp((2, 6, 5), (6, 5), (-1, -1), (1, 1), path=path) for path in "01"]
    y, dx, dy = np.empty_like(x), np.empty_like(x), rng.standard_normal(x.shape).astype("f4")
    plan = Plan(ops, [0, 0])
    plan.backward(plan.forward(x, nothing, y, 2), dy, dx, nothing, nothing)
    draws = [images.augment_draws(range(40), (-1, -1), (1, 1), (0, 0), path=path) for path in "01"]
    once = images.pieces(x.reshape(40, 2, 6, 5), (6, 5), draws[0])
    assert y.tobytes() == images.pieces(once, (6, 5), draws[1]).tobytes()
    back = images.pieces_backward(dy.reshape(once.shape), (2, 6, 5), draws[1])
    assert dx.tobytes() == images.pieces_backward(back, (2, 6, 5), draws[0]).tobytes()


@pytest.mark.parametrize("n", BATCHES[1:])
@pytest.mark.parametrize("dtype", DTYPES)
def test_quarter_turns_match_numpy(check, dtype, n):
    rng = np.random.default_rng(n)
    for size in (1, 2, 3, 8, 17):
        shape, run = (int(rng.integers(1, 5)), size, size), {"seed": int(rng.integers(LARGE)), "step": 5}
        numbers = rng.integers(0, LARGE, n)
        quarters = images.quarter_turns(numbers, **run, path="2.body")
        x, dy = (check.input(rng.choice([*SPECIAL, *rng.standard_normal(20)], (n, *shape)), dtype) for _ in range(2))
        op = QuarterTurnOp(shape, "2.body", dtype)
        for threads in THREADS:
            what = run | {"example_ids": numbers, "num_threads": threads}
            check.same_bits(forward(check, op, x, **what), images.turned(x, quarters), f"y {shape}")
            check.same_bits(backward(check, op, dy, **what), images.turned(dy, [-q for q in quarters]), f"dx {shape}")
            y = check.output(x.shape, dtype)
            forward_batch(op, x, y, **what)
            check.same_bits(y, x, f"inference {shape}")
        check.count("quarter turns", dtype)


# ---- statistics ------------------------------------------------------------------------------------
def drawn(n, choices=(9, 7), **run):
    """Returns (top, left, vertical flip, horizontal flip) of n examples, read off a marked image."""
    path = run.pop("path", "")
    height, width = choices[0] + 1, choices[1] + 1
    x = np.tile(np.arange(1, height * width + 1, dtype="f4").reshape(1, 1, height, width), (n, 1, 1, 1))
    op = AugmentOp((1, height, width), (2, 2), (0, 0), (choices[0] - 1, choices[1] - 1), (True, True), path)
    y = np.empty((n, 1, 2, 2), "f4")
    forward_batch(op, x, y, training=True, **run)
    low = y.reshape(n, 4).min(axis=1).astype(int) - 1
    return low // width, low % width, y[:, 0, 0, 0] > y[:, 0, 1, 0], y[:, 0, 0, 0] > y[:, 0, 0, 1]


def chi_squared_deviation(counts, expected):
    """Returns the distance of chi squared from its mean, in standard deviations."""
    counts = np.asarray(counts)
    return abs(((counts - expected) ** 2 / expected).sum() - (counts.size - 1)) / np.sqrt(2 * (counts.size - 1))


@pytest.mark.parametrize("choices", [(9, 7), (2, 3), (16, 5)])
def test_all_choices_are_equally_likely(choices):
    """Within 4 standard deviations for 2**16 examples, alone and jointly with every other choice."""
    n = 2**16
    draws = drawn(n, choices)
    sizes = (*choices, 2, 2)
    for values, size in zip(draws, sizes, strict=True):
        assert chi_squared_deviation(np.bincount(values.astype(int), minlength=size), n / size) <= 4
    for (a, size_a), (b, size_b) in itertools.combinations(zip(draws, sizes, strict=True), 2):
        together = np.bincount(a.astype(int) * size_b + b.astype(int), minlength=size_a * size_b)
        assert chi_squared_deviation(together, n / (size_a * size_b)) <= 4


def test_all_quarter_turns_are_equally_likely():
    n = 2**16
    x, y = np.tile(np.arange(4, dtype="f4").reshape(1, 1, 2, 2), (n, 1, 1, 1)), np.empty((n, 1, 2, 2), "f4")
    forward_batch(QuarterTurnOp((1, 2, 2)), x, y, training=True)
    assert chi_squared_deviation(np.bincount(y[:, 0, 0, 0].astype(int), minlength=4), n / 4) <= 4


@pytest.mark.parametrize(("flips", "sides"), [((False, True), 2), ((True, False), 2), ((True, True), 4)])
def test_alternating_flips_show_each_side_once_in_as_many_epochs(flips, sides):
    x = np.tile(np.arange(4, dtype="f4").reshape(1, 1, 2, 2), (64, 1, 1, 1))
    op, shown = AugmentOp((1, 2, 2), (2, 2), flips=flips, alternate_every=5), []
    for step in range(3 * sides * 5):
        y = np.empty_like(x)
        forward_batch(op, x, y, training=True, step=step, seed=1)
        shown.append(y[:, 0, 0, 0])  # 2 if flipped vertically, plus 1 if horizontally
    epochs = np.stack(shown).reshape(3, sides, 5, 64)
    assert (epochs == epochs[:1, :, :1]).all()  # in all steps of an epoch, and again in later ones
    once = np.stack(shown[::5][:sides])
    assert all(len(set(example)) == sides for example in once.T)
    assert np.unique(once[0], return_counts=True)[1].min() > 4  # the first sides are drawn
    fast = once % 2 if flips[1] else once // 2
    assert (fast[1:] != fast[:-1]).all()


def correlation(a, b):
    """Returns the correlation in standard deviations of that of independent draws."""
    return abs(np.corrcoef(a, b)[0, 1]) * np.sqrt(len(a))


def test_draws_are_independent():
    """Between steps, seeds, layers and adjacent rows: within 4 standard deviations."""
    what = {"seed": 1, "step": 1, "path": "1"}
    draws = drawn(2**14, **what)
    others = [{"step": 2}, {"step": 1 + 2**32}, {"seed": 2}, {"seed": 1 + 2**32}, {"path": "2"}, {"path": "1.0"}]
    others += [{"seed": 2, "step": 0}, {"example_ids": np.arange(2**14) + 2**32}]
    for other in others:
        for values, again in zip(draws, drawn(2**14, **what | other), strict=True):
            assert correlation(values, again) <= 4, other
    for values, apart in itertools.product(draws, (1, 2, 16)):
        assert correlation(values[apart:], values[:-apart]) <= 4


# ---- bits ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["constant", "reflect"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype, mode):
    rng = np.random.default_rng(1)
    x, dy = rng.standard_normal((277, 3, 9, 8)).astype(dtype), rng.standard_normal((277, 3, 7, 8)).astype(dtype)
    op = op_for(x, size=(7, 8), first=(-2, -2), last=(3, 2), flips=(True, True), mode=mode)
    y, dx = forward(check, op, x), backward(check, op, dy)
    for threads in (2, 3, 8):
        check.same_bits(forward(check, op, x, num_threads=threads), y, f"y {threads} threads")
        check.same_bits(backward(check, op, dy, num_threads=threads), dx, f"dx {threads} threads")
    for i in range(40):
        row, numbers = slice(i, i + 1), np.array([i])
        check.same_bits(forward(check, op, x[row], example_ids=numbers), y[row], f"y row {i}")
        check.same_bits(backward(check, op, dy[row], example_ids=numbers), dx[row], f"dx row {i}")


# ---- refusals --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": (0, 2)}, "size: expected numbers from 1"),
        ({"first": (1, 0)}, r"first: expected at most \(0, 0\), got \(1, 0\)"),
        ({"last": (0, -1)}, r"first: expected at most \(0, -1\)"),
        ({"last": (0, 2**24 + 1)}, "size: expected at most 16777216 pixels"),
        ({"first": (-(2**24) - 1, 0)}, "first: expected numbers from -16777216"),
        ({"size": (2**13, 2**12)}, "size: expected at most 16777216 pixels"),
        ({"in_shape": (1, 2**13, 2**12)}, "size: expected at most 16777216 pixels"),
        ({"in_shape": (2**40, 4, 4)}, "shape: expected at most"),
        ({"in_shape": (4, 4)}, "input shape: expected 3 whole numbers"),
        ({"flips": (True,)}, None),
        ({"flips": None}, None),
        ({"path": 3}, "path: expected a string, got 3"),
        ({"dtype": "float16"}, "dtype"),
        ({"mode": "edge"}, r"mode: expected one of \('constant', 'reflect', 'replicate', 'circular'\), got 'edge'"),
        ({"mode": "reflect", "first": (-4, 0)}, "size: expected at most 3 for mode 'reflect' and a height of 4, got 4"),
        ({"mode": "reflect", "last": (0, 7)}, "size: expected at most 4 for mode 'reflect' and a width of 5, got 5"),
        ({"mode": "circular", "size": (9, 3)}, "size: expected at most 4 for mode 'circular' and a height of 4, got 5"),
        ({"alternate_every": -1}, "alternate_every: expected numbers from 0"),
        ({"alternate_every": 2**63}, "alternate_every: expected numbers from 0"),
        ({"alternate_every": 1.5}, "alternate_every: expected 1 whole numbers"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        AugmentOp(**{"in_shape": (2, 4, 5), "size": (3, 3)} | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_shape": (2, 4, 5)}, "input shape: expected a square image, got 4 x 5"),
        ({"in_shape": (1, 2**13, 2**13)}, "input shape: expected at most 16777216 pixels"),
        ({"in_shape": (4, 4)}, "input shape: expected 3 whole numbers"),
        ({"path": 3}, "path: expected a string, got 3"),
        ({"dtype": "float16"}, "dtype"),
    ],
    ids=str,
)
def test_invalid_arguments_of_quarter_turns_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        QuarterTurnOp(**{"in_shape": (2, 4, 4)} | changes)
