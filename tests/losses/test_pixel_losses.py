"""Losses of pixels: weights of classes, ignored targets, Dice, and masks as people have them."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Conv2D
from minidl.losses import BinaryCrossEntropy, Dice, SoftmaxCrossEntropy
from minidl.optimizers import SGD, Adam

MASKS = np.random.default_rng(0).integers(0, 2, (12, 5, 4)).astype("u1")
LOSSES = {
    "softmax": (SoftmaxCrossEntropy(ignore_index=255), 2),
    "weighted softmax": (SoftmaxCrossEntropy(weight=[1.0, 20.0], ignore_index=255), 2),
    "binary": (BinaryCrossEntropy(pos_weight=20.0, ignore_index=255), 1),
    "dice": (Dice(ignore_index=255), 2),
    "binary dice": (Dice(ignore_index=255), 1),
}
every_loss = pytest.mark.parametrize(("loss", "channels"), LOSSES.values(), ids=LOSSES)


def make_trainer(loss, channels, dtype="float64"):
    return Trainer(Sequential([Conv2D(channels, 3, padding=1)], (1, 5, 4), dtype=dtype), loss, SGD(0.1), ["accuracy"])


def weights(trainer):
    return [param.value.tobytes() for param in trainer.model.params.values()]


@pytest.fixture
def x(rng):
    return rng.normal(size=(12, 1, 5, 4))


# ---- what counts
@every_loss
def test_ignored_pixels_are_those_that_are_not_there(loss, channels, rng):
    """The loss and the slope of a row of pixels are those of its labelled pixels alone."""
    scores, y = rng.normal(size=(6, channels, 20)), rng.integers(0, 2, (6, 20))
    holes = np.where(rng.random(y.shape) < 0.4, 255, y)
    losses, dscores = loss(scores, holes)
    for k, known in enumerate(holes != 255):
        alone, slope = loss(scores[k : k + 1, :, known], y[k : k + 1, known])
        np.testing.assert_allclose(losses[k], alone[0], rtol=1e-12)
        np.testing.assert_allclose(dscores[k][:, known], slope[0], rtol=1e-12)
        assert not dscores[k][:, ~known].any()
    scores[:, :, :][np.broadcast_to((holes == 255)[:, np.newaxis], scores.shape)] = np.inf  # nor do they overflow
    assert np.array_equal(loss(scores, holes)[0], losses)


@every_loss
def test_an_image_without_a_label_is_not_there(loss, channels, x):
    """Neither in the mean of losses nor in the divisor of a step; nor in metrics."""
    y = MASKS.copy()
    y[[0, 5, 6]] = 255
    known = (y != 255).any(axis=(1, 2))
    one, other = make_trainer(loss, channels), make_trainer(loss, channels)
    assert one.evaluate(x, y) == other.evaluate(x[known], y[known])
    assert one.train_batch(x, y) == other.train_batch(x[known], y[known])
    for name, param in one.model.params.items():
        np.testing.assert_allclose(param.grad, other.model.params[name].grad, rtol=1e-10, atol=1e-14)
    assert one.train_batch(x, y) == pytest.approx(other.train_batch(x[known], y[known]), rel=1e-12)  # the short way
    history = make_trainer(loss, channels).fit(x, y, 1, batch_size=4, verbose=0)
    in_batches = [(x[k : k + 4], y[k : k + 4]) for k in range(0, 12, 4)]
    by_batches = make_trainer(loss, channels).fit(in_batches, epochs=1, verbose=0)
    in_order = make_trainer(loss, channels).fit(x, y, 1, batch_size=4, shuffle=False, verbose=0)
    assert by_batches["loss"] == in_order["loss"] and history["loss"][0] > 0
    assert np.isnan(one.evaluate(x[:1], y[:1])["loss"])


@every_loss
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_masks_of_any_dtype_give_the_same_bits(loss, channels, dtype, x):
    result = []
    for y in (MASKS, MASKS > 0, MASKS.astype(int), MASKS[::-1].copy()[::-1], (MASKS > 0)[..., ::-1].copy()[..., ::-1]):
        trainer = make_trainer(loss, channels, dtype)
        result.append((trainer.fit(x, y, 2, batch_size=5, verbose=0)["loss"], weights(trainer)))
    if channels == 1:
        trainer = make_trainer(loss, channels, dtype)
        result.append((trainer.fit(x, MASKS[:, np.newaxis], 2, batch_size=5, verbose=0)["loss"], weights(trainer)))
    assert all(other == result[0] for other in result)


def test_bool_labels_of_examples_are_labels(rng):
    scores, y = rng.normal(size=(20, 2)), rng.integers(0, 2, 20)
    for a, b in zip(SoftmaxCrossEntropy()(scores, y == 1), SoftmaxCrossEntropy()(scores, y), strict=True):
        np.testing.assert_array_equal(a, b)


# ---- weights
def test_a_weight_multiplies_the_loss_of_its_label(rng):
    scores, y = rng.normal(size=(30, 3)), rng.integers(0, 3, 30)
    plain, weighted = SoftmaxCrossEntropy()(scores, y), SoftmaxCrossEntropy(weight=[0.5, 0, 7])(scores, y)
    factor = np.array([0.5, 0, 7])[y]
    np.testing.assert_allclose(weighted[0], factor * plain[0], rtol=1e-12)
    np.testing.assert_allclose(weighted[1], factor[:, np.newaxis] * plain[1], rtol=1e-12, atol=1e-15)
    twice = SoftmaxCrossEntropy(weight=2.0)(scores, y)
    np.testing.assert_allclose(twice[0], 2 * plain[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("weight", "error"),
    [
        ([], ValueError),
        ([1, -1], ValueError),
        ("balanced", TypeError),
        ({0: 1, 1: 5}, TypeError),
        ([1, np.inf], ValueError),
    ],
)
def test_invalid_weights(weight, error):
    with pytest.raises(error, match="weight: expected"):
        SoftmaxCrossEntropy(weight=weight)


def test_another_number_of_weights_than_classes():
    with pytest.raises(ValueError, match=r"weight: expected a number, or 3 for outputs \(3,\), got 2"):
        SoftmaxCrossEntropy(weight=[1, 2])(np.zeros((1, 3)), [0])


def test_class_weight_names_the_remedy(x):
    with pytest.raises(TypeError, match=r"class_weight: .*SoftmaxCrossEntropy\(weight=\[\.\.\.\]\) or .* weighs"):
        make_trainer(SoftmaxCrossEntropy(), 2).fit(x, MASKS, class_weight="balanced", verbose=0)


# ---- refusals
@pytest.mark.parametrize("loss", [SoftmaxCrossEntropy(), Dice(), SoftmaxCrossEntropy(ignore_index=7)])
def test_masks_of_0_and_255(loss, x):
    with pytest.raises(ValueError, match=r"got labels from 0 to 255: a mask of 0 and 255\? perhaps y // 255"):
        make_trainer(loss, 2).fit(x, MASKS * 255, verbose=0)


@pytest.mark.parametrize("loss", [BinaryCrossEntropy(), BinaryCrossEntropy(ignore_index=-1)])
def test_binary_masks_of_0_and_255(loss, x):
    with pytest.raises(ValueError, match=r"got values from 0 to 255: a mask of 0 and 255\? perhaps y // 255"):
        make_trainer(loss, 1).fit(x, MASKS * 255, verbose=0)


def test_binary_masks_with_ignored_pixels(x):
    y = MASKS.copy()
    y[0, 0, 0] = 255
    with pytest.raises(ValueError, match=r"BinaryCrossEntropy\(ignore_index=255\) leaves out these positions"):
        make_trainer(BinaryCrossEntropy(), 1).fit(x, y, verbose=0)
    make_trainer(BinaryCrossEntropy(ignore_index=255), 1).fit(x, y, verbose=0)


@pytest.mark.parametrize("loss", [SoftmaxCrossEntropy(ignore_index=255), Dice(ignore_index=255)])
def test_probabilities_have_no_ignored_label(loss, x):
    y = np.full((12, 2, 5, 4), 0.5)
    with pytest.raises(ValueError, match=r"expected labels with ignore_index=255, \(n, 5, 4\), got probabilities"):
        make_trainer(loss, 2).fit(x, y, verbose=0)


@pytest.mark.parametrize(("smooth", "error"), [(-1, ValueError), (np.nan, ValueError), ("1", TypeError)])
def test_invalid_smooth(smooth, error):
    with pytest.raises(error, match="smooth: expected"):
        Dice(smooth)


def test_a_foreground_of_255_that_is_ignored_is_noticed(x):
    for loss, channels in ((SoftmaxCrossEntropy(ignore_index=255), 2), (BinaryCrossEntropy(ignore_index=255), 1)):
        with pytest.warns(UserWarning, match="all labels are 0 or the ignored 255: if 255"):
            make_trainer(loss, channels).fit(x, MASKS * 255, verbose=0)


# ---- Dice
@pytest.mark.parametrize("smooth", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("channels", [1, 3])
def test_dice_is_finite_for_an_empty_foreground(smooth, channels):
    scores = np.full((2, channels, 3, 3), -80.0)
    for y in (np.zeros((2, 3, 3), int), np.ones((2, 3, 3), int)):
        losses, dscores = Dice(smooth)(scores, y)
        assert np.isfinite(losses).all() and np.isfinite(dscores).all() and (losses >= 0).all() and (losses <= 1).all()
    if channels == 1 and smooth == 1:
        assert Dice()(scores, np.zeros((2, 3, 3), int))[0] == pytest.approx([0, 0])


def test_dice_learns_a_rare_foreground(rng):
    x = rng.normal(size=(40, 1, 5, 4))
    y = (x[:, 0] > 1.8).astype("u1")
    trainer = Trainer(Sequential([Conv2D(1, 1)], (1, 5, 4)), Dice(), Adam(0.1), ["dice"])
    assert trainer.fit(x, y, 60, batch_size=8, verbose=0)["dice"][-1] > 0.8


def test_labels_and_probabilities_are_the_same_targets(rng):
    for channels, y in ((1, MASKS[:, np.newaxis] * 1.0), (2, np.stack([1 - MASKS, MASKS], axis=1) * 1.0)):
        scores = rng.normal(size=(12, channels, 5, 4))
        for a, b in zip(Dice()(scores, MASKS), Dice()(scores, y), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "loss", [SoftmaxCrossEntropy(), Dice(), BinaryCrossEntropy()], ids=["softmax", "dice", "binary"]
)
def test_a_million_pixels_lose_few_digits(loss):
    """One running sum in float32 is off by a per cent where all terms are equal."""
    channels = 2 if isinstance(loss, SoftmaxCrossEntropy) else 1
    scores, y = np.full((1, channels, 1024, 1024), -2.2, np.float32), np.zeros((1, 1024, 1024), np.uint8)
    scores[:, :-1], y[0, ::7, ::3] = 0 if channels == 2 else -2.2, 1
    assert loss(scores, y)[0] == pytest.approx(loss(scores.astype(float), y)[0], rel=1e-4)
