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
        ([True, False], TypeError, "integer labels, got dtype bool"),
        (["a"], TypeError, "integer labels, got dtype"),
        (np.array([0, 1], object), TypeError, "integer labels, got dtype object"),
        ([[0], [1]], ValueError, r"one label per example, shape \(n,\), got \(2, 1\)"),
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


def test_scores_must_be_vectors():
    with pytest.raises(ValueError, match=r"outputs \(classes,\), got \(3, 2, 2\)"):
        softmax_cross_entropy.targets([0], (3, 2, 2), "float32")


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
