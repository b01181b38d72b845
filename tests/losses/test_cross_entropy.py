"""Softmax cross-entropy: against the reference, and its targets."""

import numpy as np
import pytest
import reference

from minidl.losses import SoftmaxCrossEntropy, softmax_cross_entropy

LABELS = np.array([2, 0, 1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 16, 33])
def test_agrees_with_the_reference(n, dtype, rng):
    scores, y = rng.normal(0, 5, (n, 7)).astype(dtype), rng.integers(0, 7, n)
    result, dscores = softmax_cross_entropy(scores, y)
    tolerance = {"rtol": 0, "atol": 20 * np.finfo(dtype).eps}
    expected = reference.softmax_cross_entropy_forward(scores, y)
    np.testing.assert_allclose(result, expected, **tolerance)
    expected = reference.softmax_cross_entropy_backward(scores, y, np.ones(n))
    np.testing.assert_allclose(dscores, expected, **tolerance)
    assert result.shape == (n,) and result.dtype == dscores.dtype == dtype


def test_accepts_scores_of_any_layout(rng):
    scores = rng.normal(size=(3, 4))
    expected = softmax_cross_entropy(scores, LABELS)
    for other in (np.asfortranarray(scores), np.repeat(scores, 2, axis=0)[::2]):
        for got, same in zip(softmax_cross_entropy(other, LABELS), expected, strict=True):
            np.testing.assert_array_equal(got, same)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", ">i4", "uint64"])
def test_any_integer_targets_become_int64(dtype):
    targets = softmax_cross_entropy.targets(LABELS.astype(dtype), (3,), "float32")
    assert targets.dtype == np.int64 and targets.flags.c_contiguous
    np.testing.assert_array_equal(targets, LABELS)
    np.testing.assert_array_equal(softmax_cross_entropy.targets([2, 0, 1], (3,), "float32"), LABELS)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (None, TypeError, "an array, got None"),
        ([0.0, 1.0], TypeError, "integer labels, got dtype float64"),
        (["a"], TypeError, "integer labels, got dtype"),
        (np.array([0, 1], object), TypeError, "integer labels, got dtype object"),
        ([[0], [1]], ValueError, r"one label per example, shape \(n,\), .* \(n, 3\), got \(2, 1\): y.ravel\(\)"),
        ([[[0]]], ValueError, r"one label per example, shape \(n,\), .* got \(1, 1, 1\)"),
        (np.zeros((2, 4)), ValueError, r"one label per example, shape \(n,\), .* got \(2, 4\)$"),
        ([[0, -0.5, 1]], ValueError, "probabilities of at least 0, got -0.5"),
        ([[0, np.nan, 1]], ValueError, r"finite values, got NaN or infinity \(first in example 0\)"),
        ([[0, np.inf, 1]], ValueError, "finite values, got NaN"),
        ([["a", "b", "c"]], TypeError, "integer labels, got dtype"),
        ([0, 3], ValueError, "labels from 0 to 2 .* got labels from 0 to 3"),
        ([-1, 2], ValueError, "labels from 0 to 2 .* got labels from -1 to 2"),
        (np.array([2**63], "u8"), ValueError, "labels from 0 to 2 .*9223372036854775808"),
    ],
)
def test_invalid_targets(y, error, message):
    with pytest.raises(error, match=f"^y: expected {message}"):
        softmax_cross_entropy.targets(y, (3,), "float32")
    if y is not None:
        with pytest.raises(error, match=f"^y: expected {message}"):
            softmax_cross_entropy(np.zeros((len(y), 3)), y)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (np.zeros((2, 4, 5)), TypeError, "integer labels, got dtype float64; perhaps y.astype"),
        (np.zeros((2, 1, 4, 5), int), ValueError, r"one label per position, shape \(n, 4, 5\), .*: y\[:, 0"),
        (np.zeros((2, 4, 5, 3)), ValueError, r"one .* probabilities of classes \(n, 3, 4, 5\), .* np.moveaxis\(y"),
        (np.zeros((2, 5, 4), int), ValueError, r"one label per position, .* got \(2, 5, 4\)"),
        (np.zeros(2, int), ValueError, r"one label per position, .* got \(2,\)"),
        (np.full((2, 4, 5), 3), ValueError, r"labels from 0 to 2 .* from 3 to 3: SoftmaxCrossEntropy\(ignore_index="),
    ],
)
def test_invalid_targets_of_positions(y, error, message):
    with pytest.raises(error, match=f"^y: expected {message}"):
        softmax_cross_entropy.targets(y, (3, 4, 5), "float32")


def test_targets_of_positions(rng):
    labels, loss = rng.integers(0, 3, (2, 4, 5)), SoftmaxCrossEntropy(ignore_index=255)
    for kind in (np.int64, np.uint8):  # are read as they are
        given = labels.astype(kind)
        assert loss.targets(given, (3, 4, 5), "float32") is given
    assert loss.targets(labels.astype(">i2"), (3, 4, 5), "float32").dtype == np.int64
    labels[0, 0, 0] = 255
    assert loss.targets(labels, (3, 4, 5), "float32") is labels
    assert loss.targets(np.full((2, 4, 5), 255), (3, 4, 5), "float32").min() == 255
    wide = SoftmaxCrossEntropy(ignore_index=65535).targets(np.full((2, 4, 5), 65535, "u2"), (3, 4, 5), "float32")
    assert wide.min() == 65535  # in uint8 it would be 255
    with pytest.raises(ValueError, match=r"labels from 0 to 2 .*, or 255, got labels from 0 to 3"):
        loss.targets(np.where(labels == 1, 3, labels), (3, 4, 5), "float32")
    loss = SoftmaxCrossEntropy()
    numbers = loss.targets(rng.random((2, 3, 4, 5)), (3, 4, 5), "float32")
    assert numbers.dtype == np.float32
    assert loss.targets(numbers, (3, 4, 5), "float32") is numbers


def test_one_hot_rows_are_labels(rng):
    """Bit for bit, also as integers or bools, and of a class that is impossible."""
    scores, y = rng.normal(0, 5, (33, 7)), rng.integers(0, 7, 33)
    scores[:, 3][y != 3] = -np.inf
    expected = softmax_cross_entropy(scores, y)
    for kind in (float, int, bool, "f4"):
        for got, same in zip(softmax_cross_entropy(scores, np.eye(7, dtype=kind)[y]), expected, strict=True):
            np.testing.assert_array_equal(got, same)


def test_positions_are_examples_whose_losses_are_averaged(rng):
    """An example's loss and gradient do not depend on what is ignored in another."""
    scores, y = rng.normal(0, 5, (6, 7, 4, 5)), rng.integers(0, 7, (6, 4, 5))
    y[0] = 255
    y[1, 0] = 255
    losses, dscores = SoftmaxCrossEntropy(ignore_index=255)(scores, y)
    for i in range(1, 6):
        counts = y[i] != 255
        alone, dalone = softmax_cross_entropy(scores[i][:, counts].T, y[i][counts])
        np.testing.assert_allclose(losses[i], alone.mean(), rtol=1e-14)
        np.testing.assert_allclose(dscores[i][:, counts].T, dalone / counts.sum(), rtol=1e-13, atol=1e-18)
        assert not dscores[i][:, ~counts].any()
    assert losses[0] == 0 and not dscores[0].any()


def test_labels_and_numbers():
    """What metrics and mixtures of examples take for targets."""
    loss, y = SoftmaxCrossEntropy(ignore_index=1), np.array([[0, 1], [2, 2]])
    numbers = loss.numbers(y, (3, 2))
    np.testing.assert_array_equal(numbers, [[[1, 0], [0, 0], [0, 0]], [[0, 0], [0, 0], [1, 1]]])
    assert loss.labels(y, (3, 2)) is y
    np.testing.assert_array_equal(loss.labels(numbers.astype(float), (3, 2)), [[0, 0], [2, 2]])


@pytest.mark.parametrize(
    ("index", "error"), [(1.5, TypeError), (True, TypeError), ("255", TypeError), (2**63, ValueError)]
)
def test_invalid_ignore_index(index, error):
    with pytest.raises(error, match="ignore_index: expected"):
        SoftmaxCrossEntropy(ignore_index=index)


@pytest.mark.parametrize("share", [0.1, 1, 0.5])
def test_labels_are_smoothed(share, rng):
    scores, y = rng.normal(0, 5, (20, 7)), rng.integers(0, 7, 20)
    losses, dscores = SoftmaxCrossEntropy(label_smoothing=share)(scores, y)
    np.testing.assert_allclose(losses, reference.softmax_cross_entropy_forward(scores, y, share), rtol=1e-13)
    expected = reference.softmax_cross_entropy_backward(scores, y, np.ones(20), share)
    np.testing.assert_allclose(dscores, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("share", "error"), [(-0.1, ValueError), (1.5, ValueError), (True, TypeError), ("0.1", TypeError)]
)
def test_invalid_label_smoothing(share, error):
    with pytest.raises(error, match="label_smoothing: expected"):
        SoftmaxCrossEntropy(share)
