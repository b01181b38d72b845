"""trainer.report() on labels of pixels: one class, rare ones and those that are never predicted."""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Flatten, Outputs, RandomCrop, ReLU
from minidl.losses import BinaryCrossEntropy, Dice, SoftmaxCrossEntropy
from minidl.metrics.counts import ACTUAL, PREDICTED, RIGHT
from minidl.optimizers import SGD, Adam
from minidl.training.report import thresholds
from minidl.training.report.probe import OutputTargets

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 1, 12, 12)).astype("f4")
RARE = (X[:, 0] > 2).astype("u1")  # 2 % of the pixels, which their brightness tells
NOISE = (RNG.random(RARE.shape) < 0.02).astype("u1")  # as many, of which the image tells nothing
STEPS = 200
SYMPTOMS = {"one class", "imbalanced labels", "unpredicted class"}


def make_trainer(loss=None, outputs=2, optimizer=None, layers=None):
    layers = [Conv2D(6, 3, padding=1), ReLU(), Conv2D(outputs, 1)] if layers is None else layers
    loss = SoftmaxCrossEntropy(ignore_index=255) if loss is None else loss
    return Trainer(Sequential(layers, (1, 12, 12), seed=0), loss, optimizer or Adam(0.01), ["iou"], seed=0)


def fitted(y, *arguments, steps=STEPS, X=X, **options):
    trainer = make_trainer(*arguments, **options)
    trainer.fit(X, y, epochs=-(-steps // (-(-len(X) // 16))), batch_size=16, verbose=0)
    return trainer


def findings_of(trainer, *examples):
    """Returns the findings about labels, by symptom."""
    return {finding.symptom: finding for finding in trainer.report(*examples) if finding.symptom in SYMPTOMS}


@pytest.mark.parametrize(
    ("loss", "outputs"),
    [
        (SoftmaxCrossEntropy(), 2),
        (BinaryCrossEntropy(), 1),
        (Dice(), 1),
        (Dice(), 2),
        (SoftmaxCrossEntropy(weight=[1.0, 30.0]), 2),
    ],
)
def test_a_rare_class_that_is_predicted_is_no_finding(loss, outputs):
    y = RARE.astype("f4") if isinstance(loss, BinaryCrossEntropy) else RARE
    trainer = fitted(y, loss, outputs, Adam(0.03), steps=300)
    assert trainer.history["iou"][-1] > 0.5
    assert trainer.report() == []


@pytest.mark.parametrize(("loss", "outputs"), [(None, 2), (BinaryCrossEntropy(ignore_index=255), 1)])
def test_a_rare_class_that_is_not_predicted(loss, outputs):
    y = NOISE.copy() if loss is None else NOISE.astype("f4")
    y[:, 0] = 255
    found = findings_of(fitted(y, loss, outputs))
    assert list(found) == ["imbalanced labels"]
    share = (y == 1).sum() / (y != 255).sum()
    assert found["imbalanced labels"].measured == pytest.approx(1 - share)
    message = f"{share:.2%} of the labels of pixels are 1, and 0.00% of the predictions, expected at least 10% as many"
    assert message in found["imbalanced labels"].message and "Dice()" in found["imbalanced labels"].message


@pytest.mark.parametrize(("predicted", "is_found"), [(0, True), (9, True), (11, False), (100, False)])
def test_a_rare_class_that_is_hardly_predicted(predicted, is_found):
    """The scores are the pixels: how many of them are above 0 is known."""
    x, y = np.full((16, 1, 12, 12), -1.0), np.zeros((16, 12, 12), "u1")
    y.flat[:100], x.flat[1000 : 1000 + predicted] = 1, 1.0
    trainer = make_trainer(Dice(), 1, layers=[Conv2D(1, 1, use_bias=False)], optimizer=SGD(1e-12))
    trainer.model.params["0.weight"].value[:] = 1.0
    for _ in range(STEPS):
        trainer.train_batch(x, y)
    assert findings_of(trainer, x, y).keys() == {"imbalanced labels"} & {"imbalanced labels" if is_found else ""}


def test_classes_before_training_ends_are_no_finding():
    assert findings_of(fitted(NOISE, steps=100)) == {}
    assert findings_of(make_trainer(), X, NOISE) == {}


def test_a_class_that_is_never_predicted():
    y = np.where(RNG.random(RARE.shape) < 0.1, 2, X[:, 0] > 0).astype("u1")
    finding = findings_of(fitted(y, outputs=3))["unpredicted class"]
    assert finding.measured == pytest.approx((y == 2).mean())
    assert f"{(y == 2).mean():.2%} of the labels of pixels are 2, and 0.00% of the predictions" in finding.message
    few = np.where(X[:, 0] > 0, 1, 0).astype("u1")
    few.flat[: thresholds.MIN_PIXELS - 1] = 2
    assert findings_of(fitted(few, outputs=3)) == {}


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("label", [0, 1])
def test_labels_of_one_class(label, ignored):
    y = np.full(RARE.shape, label, "u1")
    if ignored:
        y[:, 2:] = 255
    finding = findings_of(make_trainer(), X, y)["one class"]
    assert f"all {(y != 255).sum():,} labels of pixels looked at are {label}, expected" in finding.message
    y[0, 0, 0] = 1 - label
    assert findings_of(make_trainer(), X, y) == {}
    assert findings_of(make_trainer(), X[1:16], y[1:16]) == {}  # too few examples to tell


@pytest.mark.filterwarnings("error")
def test_pixels_that_are_all_ignored():
    finding = findings_of(make_trainer(), X, np.full(RARE.shape, 255, "u1"))["one class"]
    assert finding.message.startswith("all pixels looked at are ignored, expected at least two classes")


def test_one_class_of_a_single_score():
    for loss in (Dice(), BinaryCrossEntropy()):
        assert list(findings_of(make_trainer(loss, 1), X, np.zeros((64, 12, 12), "f4"))) == ["one class"]


def test_independent_labels_of_pixels():
    y = np.stack([X[:, 0] > 0, NOISE, NOISE * 0], axis=1).astype("f4")
    finding = findings_of(fitted(y, BinaryCrossEntropy(), 3))["imbalanced labels"]
    assert f"{NOISE.mean():.2%} of the labels of pixels of score 1 are 1, and" in finding.message


def test_one_of_several_outputs():
    layers = [Conv2D(6, 3, padding=1), ReLU(), Outputs(mask=[Conv2D(2, 1)], mean=[Flatten()])]
    model = Sequential(layers, (1, 12, 12), seed=0)
    trainer = Trainer(model, {"mask": SoftmaxCrossEntropy()}, Adam(0.01))
    trainer.fit(X, {"mask": NOISE}, epochs=50, batch_size=16, verbose=0)
    assert findings_of(trainer)["imbalanced labels"].layer == "output 'mask'"


def test_targets_that_are_cut_as_their_images():
    layers = [RandomCrop(10), Conv2D(6, 3, padding=1), ReLU(), Conv2D(2, 1)]
    assert list(findings_of(fitted(NOISE, layers=layers))) == ["imbalanced labels"]


def test_scores_that_are_not_finite_predict_nothing():
    trainer = fitted(NOISE)
    trainer.model.params["2.bias"].value[:] = np.nan
    assert findings_of(trainer) == {}


def test_counts_of_pixels():
    scores = np.array([[[[1.0, 2.0, 0.0]], [[0.0, 3.0, 1.0]], [[-1.0, 0.0, 9.0]]]])
    counts = OutputTargets("", SoftmaxCrossEntropy(ignore_index=9), np.array([[[0, 2, 9]]]), (3, 1, 3), scores).pixels
    assert counts.shape == (3, 1, 3)
    assert counts[RIGHT, 0].tolist() == [1, 0, 0]
    assert counts[PREDICTED, 0].tolist() == [1, 1, 0]
    assert counts[ACTUAL, 0].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("loss", "targets", "shape"),
    [
        (BinaryCrossEntropy(), np.full((1, 1, 1, 2), 0.5), (1, 1, 2)),  # probabilities
        (Trainer.__init__, np.ones((1, 1, 1, 2)), (1, 1, 2)),  # a function without `applies`
        (SoftmaxCrossEntropy(), np.array([1]), (2,)),  # of examples
    ],
)
def test_targets_that_are_no_labels_of_pixels(loss, targets, shape):
    assert OutputTargets("", loss, targets, shape, np.zeros((1, *shape))).pixels is None
