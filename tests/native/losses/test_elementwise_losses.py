"""elementwise_losses: compared with the reference; kinks, extreme values, bitwise reproducibility, errors."""

import numpy as np
import pytest
import reference as ref
from plans import train
from reference_losses import FUNCTIONS, mean_of, sigmoid

from minidl_c.kernels.conv2d import Conv2DOp
from minidl_c.losses.elementwise_losses import ElementwiseLossOp
from minidl_c.runtime.plan import Plan
from minidl_c.runtime.single_op import loss_batch

DTYPES = ("float32", "float64")
BATCHES = (0, 1, 2, 15, 16, 17, 33, 65)
SHAPES = ((1,), (2,), (3,), (4,), (5,), (16,), (67,), (3, 4, 5))
INF, NAN = np.inf, np.nan

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_loss = pytest.mark.parametrize("name", FUNCTIONS)


def op_for(scores, name, delta=1.0):
    return ElementwiseLossOp(scores.shape[1:], name, delta, scores.dtype.name)


def both(check, name, scores, targets, delta=1.0, **options):
    losses, dscores = check.output(scores.shape[:1], scores.dtype), check.output(scores.shape, scores.dtype)
    loss_batch(op_for(scores, name, delta), scores, targets, losses, dscores, **options)
    return losses, dscores


def draw(name, rng, shape):
    """Draws scores and targets from the range that the loss expects."""
    scores = (3 * rng.standard_normal(shape)).astype("f4")
    if name == "binary_cross_entropy":
        return scores, rng.choice([0, 1, 0.25], shape).astype("f4")
    if name == "poisson":
        return scores, rng.integers(0, 20, shape).astype("f4")
    return scores, (scores + rng.choice([0, 0.1, 10], shape) * rng.standard_normal(shape)).astype("f4")


def bounds(name, scores, targets, delta, dtype):
    """Returns the allowed errors of (losses, slopes): those of each term, plus n u of the mean for a mean of n."""
    x, t, size = scores.astype("f8"), targets.astype("f8"), int(np.prod(scores.shape[1:]))
    f, slope = FUNCTIONS[name]
    if name == "poisson":
        terms, slopes = np.exp(x) + np.abs(t * x), np.exp(x) + np.abs(t)
    elif name == "binary_cross_entropy":
        terms, slopes = np.abs(x) + np.abs(t * x) + np.log1p(np.exp(-np.abs(x))), sigmoid(x) + np.abs(t)
    else:
        terms, slopes = f(x, t, delta), np.abs(slope(x, t, delta))
    tiny = np.finfo(dtype).tiny  # smaller results may be flushed to zero
    mean = terms.reshape(len(x), size).mean(axis=1)
    return ref.rounding(10 + size, dtype) * mean + 10 * tiny, ref.rounding(10, dtype) * slopes / size + 10 * tiny


@each_loss
@each_dtype
def test_random_inputs(check, name, dtype):
    rng = np.random.default_rng(0)
    for n in BATCHES:
        for shape in SHAPES:
            scores, targets = draw(name, rng, (n, *shape))
            weights, delta = rng.random(n, "f4") * 3, float(rng.choice([0.5, 1, 3]))
            exact = mean_of(name, scores, targets, delta)
            allowed = bounds(name, scores, targets, delta, dtype)
            args = check.input(scores, dtype), check.input(targets, dtype)
            losses, dscores = both(check, name, *args, delta)
            what = f"{name} {dtype} n={n} shape={shape}"
            check.close(losses, exact[0], allowed[0], f"losses {what}")
            check.close(dscores, exact[1], allowed[1], f"dscores {what}")
            column = weights.reshape(-1, *[1] * len(shape))
            _, weighted = both(check, name, *args, delta, weights=check.input(weights, dtype))
            check.same_bits(weighted, column.astype(dtype) * dscores, f"weighted dscores {what}")
            check.count(name, dtype)


@each_dtype
def test_slopes_at_kinks(check, dtype):
    """The slope of |d| at 0 is +0; that of the Huber loss is continuous at delta."""
    d = np.tile(np.array([-2, -0.5, -0.0, 0, 0.5, 2, 1e-30, -1e-30], dtype), (17, 1))
    zero = np.zeros_like(d)
    losses, dscores = both(check, "mean_absolute_error", d, zero)
    check.equal(dscores * 8, np.sign(d), "slopes of |d|")
    losses, dscores = both(check, "huber", d, zero, 0.5)
    check.equal(dscores * 8, np.clip(d, -0.5, 0.5), "slopes of huber")
    check.equal(losses, np.full(17, (2 * (2 - 0.25) * 0.5 + 2 * 0.125) / 8), "huber")
    for name in ("mean_squared_error", "mean_absolute_error", "huber"):
        losses, dscores = both(check, name, d, d)
        check.equal(losses, np.zeros(17), f"{name} of nothing wrong")
        check.equal(dscores, zero, f"slopes of {name}, nothing wrong")


@each_dtype
@pytest.mark.parametrize("size", [30.0, 1e4, 3e38])
def test_binary_cross_entropy_is_finite_for_logits_of_any_size(check, dtype, size):
    scores = np.tile(np.array([size, size, -size, -size, size, -size], dtype), (17, 1))
    targets = np.tile(np.array([1, 0, 1, 0, 0.25, 0.25], dtype), (17, 1))
    losses, dscores = both(check, "binary_cross_entropy", scores, targets)
    exact = mean_of("binary_cross_entropy", scores, targets)
    check.close(losses, exact[0], ref.rounding(16, dtype) * exact[0], "losses")
    check.close(dscores, exact[1], ref.rounding(16, dtype), "dscores")


@each_dtype
def test_small_losses_keep_full_precision(check, dtype):
    """A naive log(1 + e) would lose the digits of a small e."""
    scores = np.linspace(1, 60, 33)[:, None].astype(dtype)
    losses, _ = both(check, "binary_cross_entropy", scores, np.ones_like(scores))
    exact = np.log1p(np.exp(-scores[:, 0].astype("f8")))
    check.close(losses, exact, ref.rounding(16, dtype) * exact, "losses")


@each_loss
@each_dtype
def test_nan_stays_in_its_row(check, name, dtype):
    scores, targets = (a.astype(dtype) for a in draw(name, np.random.default_rng(1), (33, 7)))
    clean = both(check, name, scores, targets)
    scores[5, 3] = NAN
    losses, dscores = both(check, name, scores, targets)
    assert np.isnan(losses[5]) and np.isnan(dscores[5, 3])
    others = np.arange(33) != 5
    check.same_bits(losses[others], clean[0][others], "losses of other rows")
    check.same_bits(dscores[others], clean[1][others], "dscores of other rows")
    rest = np.arange(7) != 3
    check.same_bits(dscores[5, rest], clean[1][5, rest], "dscores beside NaN")


@each_dtype
def test_infinite_scores_and_targets(check, dtype):
    scores, targets = np.array([[INF], [-INF]], dtype), np.zeros((2, 1), dtype)
    expected = {
        "mean_squared_error": ([INF, INF], [INF, -INF]),
        "mean_absolute_error": ([INF, INF], [1, -1]),
        "huber": ([INF, INF], [1, -1]),
        "binary_cross_entropy": ([NAN, NAN], [1, 0]),
        "poisson": ([NAN, NAN], [INF, 0]),
    }
    for name, (losses, slopes) in expected.items():
        found = both(check, name, scores, targets)
        check.equal(found[0], np.array(losses), f"losses of {name}")
        check.equal(found[1][:, 0], np.array(slopes), f"dscores of {name}")


@each_loss
@each_dtype
def test_threads_and_batch_neighbours_change_no_bit(check, name, dtype):
    scores, targets = (a.astype(dtype) for a in draw(name, np.random.default_rng(2), (277, 11)))
    whole = both(check, name, scores, targets)
    for threads in (2, 3, 8):
        for a, b in zip(both(check, name, scores, targets, num_threads=threads), whole, strict=True):
            check.same_bits(a, b, f"{threads} threads")
    for i in range(40):
        row = slice(i, i + 1)
        for a, b in zip(both(check, name, scores[row], targets[row]), whole, strict=True):
            check.same_bits(a, b[row], f"row {i}")


@each_loss
@each_dtype
@pytest.mark.parametrize("n", [1, 15, 17])
def test_lanes_without_an_example_contribute_no_gradient(name, dtype, n):
    """A bias makes the slopes of empty lanes infinite, and a convolution sums all lanes."""
    size = float(np.finfo(dtype).max) if name != "poisson" else 1e4
    x, param = np.full((n, 1), -size / 2, dtype), np.array([1, size], dtype)  # weight, bias: size / 2 for examples
    if name == "poisson":
        x, param = np.full((n, 1), -size, dtype), np.array([1, size + 1], dtype)
    losses, grad = np.empty(n, dtype), np.empty(2, dtype)
    targets = np.full((n, 1), (x[0] + param[1])[0] if name[:4] in ("mean", "hube") else 1, dtype)
    one = (1, 1, 1)
    ops = [Conv2DOp(one, 1, (1, 1), dtype=dtype), ElementwiseLossOp(one, name, 1.0, dtype)]
    plan = Plan(ops, [0, 0], has_loss=True)
    given = x, None, n, targets, None, losses, None, np.ones(1), np.zeros(1), param, grad, None, 1, 0, np.zeros(1, "i8")
    assert train(plan, *given) == 1
    assert np.isfinite(grad).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mse",), "function: expected one of mean_squared_error, .* got 'mse'"),
        (("huber", 0.0), "delta: expected a number above 0"),
        (("huber", -1.0), "delta: expected a number above 0"),
        (("huber", NAN), "delta: expected a number above 0"),
        (("huber", INF), "delta: expected a number above 0 that float32 can hold, got inf"),
        (("huber", 1e39), r"delta: expected .* float32 can hold, got 1e\+39"),
        (("huber", 1e-60), "delta: expected .* float32 can hold, got 1e-60"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ElementwiseLossOp((3,), *arguments)
    assert ElementwiseLossOp((3,), "huber", 1e39, "float64").dtype == "float64"


# ---- weights of channels
@each_dtype
def test_weights_of_channels(check, dtype):
    rng = np.random.default_rng(9)
    for n in BATCHES:
        for shape in ((1,), (3,), (17,), (3, 4, 5)):
            scores, targets = draw("binary_cross_entropy", rng, (n, *shape))
            positive, weight = rng.uniform(0, 3, (2, shape[0])).astype("f4").astype("f8")
            columns, size = (-1, *[1] * (len(shape) - 1)), int(np.prod(shape))
            x, t, pos = scores.astype("f8"), targets.astype("f8"), positive.reshape(columns)
            share = weight.reshape(columns) / size
            terms = share * (pos * t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x))
            slopes = share * ((1 - t) * sigmoid(x) - pos * t * sigmoid(-x))
            sizes = share * ((1 - t) * sigmoid(x) + pos * t * sigmoid(-x))
            op = ElementwiseLossOp(shape, "binary_cross_entropy", 1.0, dtype, positive, weight)
            losses, dscores = check.output((n,), dtype), check.output(scores.shape, dtype)
            loss_batch(op, check.input(scores, dtype), check.input(targets, dtype), losses, dscores)
            mean, tiny = terms.reshape(n, size).sum(axis=1), np.finfo(dtype).tiny
            what = f"{dtype} {scores.shape}"
            check.close(losses, mean, ref.rounding(14 + size, dtype) * mean + 10 * tiny, f"losses {what}")
            check.close(dscores, slopes, ref.rounding(14, dtype) * sizes + 10 * tiny, f"dscores {what}")
            check.count("weights of channels", dtype)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"pos_weight": [1, 2]}, "pos_weight: expected 3 numbers, one for each channel of the outputs, got 2"),
        ({"weight": [1, 2, -1]}, "weight: expected numbers of at least 0 that float32 can hold, got -1.0"),
        ({"weight": [1, NAN, 1]}, "weight: expected numbers of at least 0"),
        ({"pos_weight": [1, 1, 1e39]}, "pos_weight: expected numbers of at least 0 that float32 can hold"),
    ],
)
def test_invalid_weights_of_channels_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        ElementwiseLossOp((3,), "binary_cross_entropy", **weights)
    with pytest.raises(ValueError, match="pos_weight: expected none for huber"):
        ElementwiseLossOp((3,), "huber", pos_weight=[1, 1, 1])


# ---- quantiles of channels
def pinball(check, scores, targets, quantiles):
    """Returns (losses, dscores) of outputs (k,) for k quantiles."""
    op = ElementwiseLossOp(scores.shape[1:], "pinball", dtype=scores.dtype.name, quantiles=quantiles)
    losses, dscores = check.output(scores.shape[:1], scores.dtype), check.output(scores.shape, scores.dtype)
    loss_batch(op, scores, targets, losses, dscores)
    return losses, dscores


@each_dtype
def test_quantiles_of_channels(check, dtype):
    rng = np.random.default_rng(11)
    for n in BATCHES:
        for size in (1, 3, 17, 67):
            scores, targets = draw("mean_absolute_error", rng, (n, size))
            q = rng.uniform(0.01, 0.99, size).astype("f4").astype("f8")
            missing = targets.astype("f8") - scores.astype("f8")
            terms = np.maximum(q * missing, (q - 1) * missing)
            slopes = np.select([missing > 0, missing < 0], [-q, 1 - q], 0) / size
            losses, dscores = pinball(check, check.input(scores, dtype), check.input(targets, dtype), q)
            mean = terms.reshape(n, size).mean(axis=1)
            what = f"{dtype} {scores.shape}"
            check.close(losses, mean, ref.rounding(10 + size, dtype) * mean, f"losses {what}")
            check.close(dscores, slopes, ref.rounding(10, dtype) * abs(slopes), f"dscores {what}")
            check.count("quantiles of channels", dtype)


@each_dtype
def test_pinball_of_equal_infinite_and_missing_numbers(check, dtype):
    x = np.array([[2, 2, 2], [INF, INF, INF], [-INF, -INF, -INF], [NAN, 2, 2]], dtype)
    losses, dscores = pinball(check, x, np.full_like(x, 2), [0.25, 0.5, 0.75])
    check.equal(losses, np.array([0, INF, INF, NAN]), "losses")
    slopes = np.array([[0, 0, 0], [0.75, 0.5, 0.25], [-0.25, -0.5, -0.75], [NAN, 0, 0]], "f8") / 3
    check.close(dscores, slopes, ref.rounding(4, dtype), "dscores")


@pytest.mark.parametrize(
    ("quantiles", "message"),
    [
        ([0.5], "quantiles: expected 3 numbers, one for each channel of the outputs, got 1"),
        ([0, 0.5, 0.9], "quantiles: expected numbers that float32 can tell from 0 and 1, and between them, got 0.0"),
        ([0.1, 0.5, 1 - 1e-9], "quantiles: expected numbers that float32 can tell from 0 and 1, .* got 0.999999999"),
        ([0.1, 0.5, NAN], "quantiles: expected numbers"),
        (None, "quantiles: expected a number for each channel of pinball, got None"),
    ],
)
def test_invalid_quantiles_are_refused(quantiles, message):
    with pytest.raises(ValueError, match=message):
        ElementwiseLossOp((3,), "pinball", quantiles=quantiles)
    with pytest.raises(ValueError, match="quantiles: expected none for huber"):
        ElementwiseLossOp((3,), "huber", quantiles=[0.1, 0.5, 0.9])
    assert ElementwiseLossOp((1,), "pinball", dtype="float64", quantiles=[1 - 1e-9]).dtype == "float64"
