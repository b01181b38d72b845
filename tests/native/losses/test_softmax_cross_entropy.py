"""softmax_cross_entropy: compared with the reference; extreme scores, bitwise reproducibility, errors."""

import numpy as np
import pytest
import reference as ref
import reference_losses

from minidl_c.losses.softmax_cross_entropy import SoftmaxCrossEntropyOp
from minidl_c.runtime.single_op import loss_batch

DTYPES = ("float32", "float64")
CLASSES = (1, 2, 3, 10, 15, 16, 17, 100)
SMOOTHING = (0.0, 0.0, 0.1, 0.5, 1.0)


def draw(rng, n, classes, spread):
    scores = (rng.standard_normal((n, classes)) * spread).astype("f4")
    return scores, rng.integers(0, classes, n), rng.random(n, "f4") * 3


def op_for(scores, smoothing=0.0):
    return SoftmaxCrossEntropyOp(scores.shape[1:], smoothing, scores.dtype.name)


def forward(check, scores, labels, smoothing=0.0, **options):
    losses = check.output(labels.shape, scores.dtype)
    loss_batch(op_for(scores, smoothing), scores, labels, losses, **options)
    return losses


def backward(check, scores, labels, weights, smoothing=0.0, **options):
    losses, dscores = check.output(labels.shape, scores.dtype), check.output(scores.shape, scores.dtype)
    loss_batch(op_for(scores, smoothing), scores, labels, losses, dscores, weights, **options)
    check.same_bits(losses, forward(check, scores, labels, smoothing), "losses beside dscores")
    return dscores


def bounds(scores, labels, dtype, smoothing=0.0):
    """Returns the allowed errors of (losses, probabilities), in units of rounding.

    d = s - max is off by u|d|, so exp(d), itself good to 4 u, is off by u(|d| + 4) of its value; of
    the sum's value by the mean of that, weighted by p, and u for each addition. log adds 4 u of its
    value, the last subtraction u of its own; a division u.
    """
    distance = scores.max(axis=1, keepdims=True).astype("f8") - scores
    p, losses = ref.softmax(scores), ref.softmax_cross_entropy_forward(scores, labels, smoothing)
    total = np.sum(p * (distance + 4), axis=1) + scores.shape[1]
    label = (ref.smoothed(labels, scores.shape[1], smoothing) * distance).sum(axis=1)
    log_sum = np.abs(losses - label)
    label *= 1 + (smoothing > 0) * (2 + scores.shape[1])  # plus the smoothed part, a mean over the classes
    tiny = np.finfo(dtype).tiny  # smaller results may be flushed to zero
    unit = ref.rounding(1, dtype)
    return unit * (total + 5 * log_sum + 2 * label + losses), (
        unit * p * (distance + 6 + total[:, None]) + scores.shape[1] * tiny
    )


@pytest.mark.parametrize("seed", range(12))
def test_random_scores(check, seed):
    rng = np.random.default_rng(seed)
    for n in (0, 1, 2, 15, 16, 17, 33, 65):
        for classes in (*CLASSES, int(rng.integers(1, 60))):
            spread = rng.choice([1e-3, 1.0, 10.0, 100.0, 1e4])
            scores, labels, weights = draw(rng, n, classes, spread)
            for dtype in DTYPES:
                args, smoothing = (check.input(scores, dtype), check.input(labels, "i8")), float(rng.choice(SMOOTHING))
                w = check.input(weights, dtype)
                what = f"{dtype} n={n} classes={classes} spread={spread} smoothing={smoothing}"
                loss_bound, p_bound = bounds(scores, labels, dtype, smoothing)
                exact = ref.softmax_cross_entropy_forward(scores, labels, smoothing)
                check.close(forward(check, *args, smoothing), exact, loss_bound, f"losses {what}")
                exact = ref.softmax_cross_entropy_backward(scores, labels, weights, smoothing)
                bound = (p_bound + ref.rounding(4, dtype)) * weights[:, None]
                check.close(backward(check, *args, w, smoothing), exact, bound, f"dscores {what}")
                check.count("softmax_cross_entropy", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1e4, 1e30])
def test_losses_and_gradients_are_finite_for_large_scores(check, dtype, size):
    scores = np.array([[1, -1, 0], [-1, 1, 1], [1, 1, 1], [-1, -1, -1]], dtype) * size
    labels = np.array([1, 0, 2, 0])
    losses, dscores = forward(check, scores, labels), backward(check, scores, labels, None)
    log3 = np.log(3.0)
    expected = np.array([2 * size, 2 * size + np.log(2.0), log3, log3])
    check.close(losses, expected, ref.rounding(8, dtype) * expected, "losses")
    third = 1 / 3
    expected = [[1, -1, 0], [-1, 0.5, 0.5], [third, third, third - 1], [third - 1, third, third]]
    check.close(dscores, np.array(expected), ref.rounding(16, dtype), "dscores")


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_scores(check, dtype):
    inf, nan = np.inf, np.nan
    scores = np.array([[0, -inf, 0], [0, -inf, 0], [nan, 0, 0], [0, 0, nan], [1, 2, 3]], dtype)
    labels = np.array([0, 1, 0, 0, 2])
    losses = forward(check, scores, labels)
    check.close(losses[0], np.log(2.0), ref.rounding(8, dtype), "a class that is impossible")
    assert losses[1] == inf
    assert np.isnan(losses[2:4]).all()
    alone = forward(check, scores[4:], labels[4:])
    check.same_bits(losses[4:], alone, "the loss of a row beside NaN")
    dscores = backward(check, scores, labels, None)
    check.close(dscores[0], np.array([-0.5, 0, 0.5]), ref.rounding(8, dtype), "dscores")
    assert np.isnan(dscores[2:4]).any(axis=1).all()
    alone = backward(check, scores[4:], labels[4:], None)
    check.same_bits(dscores[4:], alone, "the gradient of a row beside NaN")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_single_class_has_zero_loss(check, dtype):
    scores, labels = np.linspace(-50, 50, 17).astype(dtype)[:, None], np.zeros(17, "i8")
    check.equal(forward(check, scores, labels), np.zeros(17), "losses")
    check.equal(backward(check, scores, labels, None), np.zeros((17, 1)), "dscores")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_gradient_matches_finite_differences(check, dtype, spread):
    """Compares the gradient of sum(weights * losses) with finite differences of the reference, for every score."""
    rng = np.random.default_rng(1)
    scores, labels, weights = draw(rng, 17, 5, spread)
    wide, step = scores.astype("f8"), 1e-4

    def value():
        return np.sum(weights * ref.softmax_cross_entropy_forward(wide, labels))

    expected = ref.finite_differences(value, wide, step)
    # the error of a central difference is step^2 / 6 times a third derivative below 1
    error = step**2 * weights.max() + np.finfo("f8").eps * 32 * value() / step
    p_bound = bounds(scores, labels, dtype)[1] + ref.rounding(2, dtype)
    bound = error + p_bound * weights[:, None]
    got = backward(check, scores.astype(dtype), labels, weights.astype(dtype))
    check.close(got, expected, bound, f"dscores {dtype}")


def test_forward_and_backward_of_the_kernel_agree(check):
    """Compares with finite differences of the kernel's own float64 losses."""
    scores, labels, weights = draw(np.random.default_rng(2), 17, 6, 3.0)
    scores, weights, losses = scores.astype("f8"), weights.astype("f8"), np.empty(17)

    def value():
        loss_batch(op_for(scores), scores, labels, losses)
        return np.sum(weights * losses)

    step = 1e-4
    expected = ref.finite_differences(value, scores, step)
    error = step**2 * weights.max() + np.finfo("f8").eps * 32 * value() / step
    check.close(backward(check, scores, labels, weights), expected, error, "dscores")


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_of_ones_equal_no_weights_bit_for_bit(check, dtype):
    scores, labels, _ = draw(np.random.default_rng(3), 33, 10, 3.0)
    scores = scores.astype(dtype)
    ones = backward(check, scores, labels, np.ones(33, dtype))
    check.same_bits(backward(check, scores, labels, None), ones, "dscores without weights")


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit(check, dtype):
    values = draw(np.random.default_rng(4), 277, 11, 5.0)
    scores, labels, weights = values[0].astype(dtype), values[1], values[2].astype(dtype)
    calls = (
        lambda rows, **o: forward(check, scores[rows], labels[rows], **o),
        lambda rows, **o: backward(check, scores[rows], labels[rows], weights[rows], **o),
        lambda rows, **o: backward(check, scores[rows], labels[rows], weights[rows], 0.1, **o),
    )
    for call, what in zip(calls, ("losses", "dscores", "smoothed dscores"), strict=True):
        whole = call(slice(None))
        for threads in (2, 3, 8):
            again = call(slice(None), num_threads=threads)
            check.same_bits(again, whole, f"{what} {threads} threads")
        for i in range(40):
            check.same_bits(call(slice(i, i + 1)), whole[i : i + 1], f"{what} row {i}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_label_smoothing_makes_the_loss_of_an_impossible_class_infinite(check, dtype):
    scores = np.array([[0, -np.inf, 0]], dtype)
    assert forward(check, scores, np.array([0]), 0.1)[0] == np.inf


# ---- probabilities and positions ----------------------------------------------------------------
def draw_positions(rng, n, classes, positions, spread=3.0):
    """Draws scores, and labels of which some are 255."""
    scores = (rng.standard_normal((n, classes, *positions)) * spread).astype("f4")
    labels = rng.integers(0, classes, (n, *positions))
    return scores, np.where(rng.random(labels.shape) < 0.3, 255, labels)


def both(check, scores, targets, smoothing=0.0, ignored=None, **options):
    losses, dscores = check.output(scores.shape[:1], scores.dtype), check.output(scores.shape, scores.dtype)
    op = SoftmaxCrossEntropyOp(scores.shape[1:], smoothing, scores.dtype.name, ignored)
    loss_batch(op, scores, targets, losses, dscores, **options)
    return losses, dscores


def position_bounds(scores, q, counts, dtype):
    """Returns the allowed errors of (losses, dscores): those of `bounds` for each position, and of their mean."""
    axes, unit = tuple(range(1, scores.ndim - 1)), ref.rounding(1, dtype)
    distance, p = scores.max(axis=1, keepdims=True).astype("f8") - scores, ref.softmax(scores)
    share, classes = q.sum(axis=1, keepdims=True), scores.shape[1]
    total = np.sum(p * (distance + 4), axis=1, keepdims=True) + classes
    terms = (share * (total + (5 + classes) * np.log(classes + 1)))[:, 0] + (4 + classes) * (q * distance).sum(axis=1)
    slopes = share * p * (distance + 10 + total + classes) + 6 * q
    number = np.maximum(counts.astype(int).sum(axis=axes, keepdims=True), 1)
    mean = (np.where(counts, terms, 0) / number).sum(axis=axes) * (1 + np.prod(scores.shape[2:]))
    return unit * mean, unit * slopes / number[:, None] + classes * np.finfo(dtype).tiny


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("positions", [(), (1,), (5,), (4, 7), (33,)])
def test_positions_and_probabilities_agree_with_the_reference(check, positions, dtype):
    rng = np.random.default_rng(6)
    for n in (0, 1, 15, 16, 17, 33):
        for classes in (1, 2, 5, 17):
            scores, labels = draw_positions(rng, n, classes, positions)
            smoothing, counts = float(rng.choice(SMOOTHING)), labels != 255
            one_hot = np.moveaxis(np.eye(classes)[np.where(counts, labels, 0)], -1, 1)
            soft = rng.random(scores.shape, "f4") * rng.choice([0, 1, 2], (n, 1, *positions))
            x, weights = check.input(scores, dtype), rng.random(n).astype(dtype)
            for targets, t, used, ignored in (
                (labels, one_hot, counts, 255),
                (labels.astype("u1"), one_hot, counts, 255),
                (soft.astype(dtype), soft, None, None),
            ):
                q = (1 - smoothing) * t + smoothing / classes
                exact = reference_losses.softmax_cross_entropy(scores, q, used)
                allowed = position_bounds(scores, q, np.ones_like(counts) if used is None else used, dtype)
                got = both(check, x, check.input(targets, targets.dtype), smoothing, ignored)
                what = f"{dtype} {targets.dtype} n={n} {scores.shape} smoothing={smoothing}"
                check.close(got[0], exact[0], allowed[0], f"losses {what}")
                check.close(got[1], exact[1], allowed[1], f"dscores {what}")
                weighted = both(check, x, targets, smoothing, ignored, weights=weights)[1]
                column = weights.reshape(-1, *[1] * (scores.ndim - 1))
                check.same_bits(weighted, column * got[1], f"weighted dscores {what}")
                check.count("softmax_cross_entropy of positions", dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_batch_neighbours_change_no_bit_of_positions(check, dtype):
    scores, labels = draw_positions(np.random.default_rng(7), 150, 5, (3, 4))
    scores, soft = scores.astype(dtype), np.abs(scores).astype(dtype)
    for targets, ignored in ((labels, 255), (labels.astype("u1"), 255), (soft, None)):
        whole = both(check, scores, targets, 0.1, ignored)
        for threads in (2, 3, 8):
            for got, same in zip(both(check, scores, targets, 0.1, ignored, num_threads=threads), whole, strict=True):
                check.same_bits(got, same, f"{threads} threads")
        for i in range(20):
            for got, same in zip(both(check, scores[i : i + 1], targets[i : i + 1], 0.1, ignored), whole, strict=True):
                check.same_bits(got, same[i : i + 1], f"row {i}")


@pytest.mark.parametrize("kind", ["i8", "u1"])
def test_labels_of_positions_outside_the_classes_are_refused(check, kind):
    scores, _ = draw_positions(np.random.default_rng(8), 17, 3, (4,))
    labels = np.zeros((17, 4), kind)
    labels[5, 2] = 255
    both(check, scores, labels, ignored=255)
    for ignored, also in ((None, ""), (7, " or 7")):
        with pytest.raises(ValueError, match=f"targets: expected numbers from 0 to 2{also}, got 255 at position 22"):
            both(check, scores, labels, ignored=ignored)
    with pytest.raises(ValueError, match="targets: expected 17 rows of 4"):
        both(check, scores, labels[:, :2].copy())
    with pytest.raises(TypeError, match="targets: expected float32, got float64"):
        both(check, scores, np.zeros((17, 3, 4)))


# ---- what is refused -----------------------------------------------------------------------------
@pytest.mark.parametrize("label", [-1, 10, 11, 2**31, 2**32, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("place", [0, 7, 16])
def test_labels_outside_the_classes_are_refused(check, label, place):
    scores, labels, weights = draw(np.random.default_rng(5), 17, 10, 1.0)
    op = SoftmaxCrossEntropyOp((10,))
    call = check.call(
        lambda **arguments: loss_batch(op, **arguments), ("losses", "dscores"),
        scores=scores, targets=labels.copy(), losses=weights, dscores=scores.copy(),
    )  # fmt: skip
    labels[place] = label
    check.refused(call, {"targets": labels}, match=f"targets: .* from 0 to 9, got {label} at position {place}")


@pytest.mark.parametrize("share", [-0.1, 1.1, np.nan, np.inf])
def test_label_smoothing_outside_0_to_1_is_refused(share):
    with pytest.raises(ValueError, match=r"label_smoothing: expected a number in \[0, 1\]"):
        SoftmaxCrossEntropyOp((3,), share)
