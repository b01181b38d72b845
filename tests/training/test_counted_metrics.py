"""Metrics of labels are counted in each step, and need no scores of the whole epoch."""

import json
import math
import pickle
import re

import numpy as np
import pytest
import sklearn.metrics
from batch_fits import Crash

from minidl import Sequential, Trainer
from minidl.callbacks import Checkpoint
from minidl.layers import Conv2D, Dense, Flatten, RandomFlip, ReLU, Rescale
from minidl.losses import BinaryCrossEntropy, SoftmaxCrossEntropy
from minidl.metrics import COUNTINGS, NAMES, counting_of, dice, f1_macro, iou
from minidl.optimizers import SGD
from minidl.saving import safetensors_file

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (60, 1, 8, 8), dtype=np.uint8)
Y = (X[:, 0] > 100).astype("u1") + (X[:, 0] > 200)
Y[:, :2][X[:, 0, :2] < 50] = 255
COUNTED = [name for name in NAMES if counting_of(NAMES[name])]
OF_CLASSES = ["accuracy", "f1_macro", "iou", "dice", "precision_macro", "recall_macro", "top_5_accuracy"]


def make_trainer(metrics=OF_CLASSES, loss=None, channels=3, augment=()):
    layers = [Rescale(1 / 255), *augment, Conv2D(4, 3, padding=1), ReLU(), Conv2D(channels, 1)]
    loss = loss or SoftmaxCrossEntropy(ignore_index=255)
    return Trainer(Sequential(layers, (1, 8, 8)), loss, SGD(0.5, momentum=0.9), metrics)


def keeping(name, ignore_index=255):
    """Returns the metric as a function of a user's, which gets the scores of the whole epoch."""

    def kept(y, scores):
        return NAMES[name](y, scores, ignore_index)

    kept.__name__ = f"kept_{name}"
    return kept


# ---- values
@pytest.mark.parametrize("classes", [1, 2, 5])
def test_iou_and_dice_are_scikit_learns(classes):
    scores, y = RNG.normal(size=(6, classes, 5, 4)), RNG.integers(0, max(2, classes - 1), (6, 5, 4))
    predicted = scores.argmax(axis=1) if classes > 1 else (scores[:, 0] > 0).astype(int)
    kind = "macro" if classes > 1 else "binary"
    flat = y.ravel(), predicted.ravel()
    assert iou(y, scores) == pytest.approx(sklearn.metrics.jaccard_score(*flat, average=kind))
    assert dice(y, scores) == pytest.approx(sklearn.metrics.f1_score(*flat, average=kind))
    if classes == 1:
        assert iou(y[:, np.newaxis], scores) == iou(y, scores)
    holes = np.where(RNG.random(y.shape) < 0.3, 255, y)
    flat = y[holes != 255], predicted[holes != 255]
    assert iou(holes, scores, ignore_index=255) == pytest.approx(sklearn.metrics.jaccard_score(*flat, average=kind))


def test_iou_of_independent_labels_is_the_mean_of_those_that_occur():
    scores, y = RNG.normal(size=(6, 4, 5, 3)), RNG.integers(0, 2, (6, 4, 5, 3))
    scores[:, 3], y[:, 3] = -1, 0  # a label that is neither there nor predicted
    each = [sklearn.metrics.jaccard_score(y[:, k].ravel(), scores[:, k].ravel() > 0) for k in range(3)]
    assert iou(y, scores) == pytest.approx(np.mean(each))
    assert dice(y, scores) == pytest.approx(np.mean([2 * one / (1 + one) for one in each]))


def test_classes_that_do_not_occur_are_left_out():
    y, scores = np.zeros((1, 2, 2), int), np.zeros((1, 3, 2, 2))
    assert iou(y, scores) == 1.0  # of class 0 alone
    assert math.isnan(iou(y, np.full((1, 1, 2, 2), -1.0)))  # no foreground, none predicted
    assert iou(y, np.full((1, 1, 2, 2), 1.0)) == 0.0
    assert math.isnan(iou(y[:0], scores[:0])) and math.isnan(iou(y, scores, ignore_index=0))


@pytest.mark.parametrize("name", ["iou", "dice", "f1_macro", "precision_macro", "recall_macro"])
@pytest.mark.parametrize("y", [[3, 0], [-1, 0], [0.5, 0]])
def test_labels_of_no_class_are_refused(name, y):
    with pytest.raises(ValueError, match=f"^{name}: expected labels from 0 to 2, got other values"):
        NAMES[name](y, np.zeros((2, 3)))


@pytest.mark.parametrize("name", COUNTED)
def test_counts_of_parts_add_up(name):
    classes = 2 if name in ("f1", "precision", "recall") else 7
    scores, counting = RNG.normal(size=(50, classes)), COUNTINGS.get(NAMES[name]) or NAMES[name].counting
    independent = name in ("binary_accuracy", "subset_accuracy")
    y = RNG.integers(0, 2, scores.shape) if independent else RNG.integers(0, classes, 50)
    parts = [counting.count(name, y[k : k + 7], scores[k : k + 7], None) for k in range(0, 50, 7)]
    whole = counting.count(name, y, scores, None)
    assert whole.dtype == np.int64 and np.array_equal(sum(parts), whole)
    assert counting.value(name, sum(parts)) == NAMES[name](y, scores)


def test_ignored_elements_of_independent_labels():
    scores, y = RNG.normal(size=(40, 3)), RNG.integers(0, 2, (40, 3))
    holes = np.where(RNG.random(y.shape) < 0.3, -1, y)
    known, right = holes >= 0, (scores > 0) == (y == 1)
    assert NAMES["binary_accuracy"](holes, scores, -1) == right[known].mean()
    assert NAMES["subset_accuracy"](holes, scores, -1) == (right | ~known)[known.any(axis=1)].all(axis=1).mean()
    each = [sklearn.metrics.f1_score(y[known[:, k], k], scores[known[:, k], k] > 0) for k in range(3)]
    assert f1_macro(holes, scores, -1) == pytest.approx(np.mean(each))


# ---- in a fit
@pytest.mark.parametrize("augment", [(), (RandomFlip(True, True),)], ids=["", "moving"])
@pytest.mark.parametrize("in_batches", [False, True])
def test_a_fit_counts_what_a_function_of_all_scores_returns(augment, in_batches):
    augment = [type(layer)(**layer.config()) for layer in augment]
    trainer = make_trainer([*OF_CLASSES, *map(keeping, OF_CLASSES)], augment=augment)
    data = [(X[k : k + 16], Y[k : k + 16]) for k in range(0, 60, 16)] if in_batches else X
    options = {} if in_batches else {"batch_size": 16, "y": Y}
    history = trainer.fit(data, epochs=3, validation_data=(X[:20], Y[:20]), verbose=0, **options)
    for name in OF_CLASSES:
        assert history[name] == history[f"kept_{name}"] and history[f"val_{name}"] == history[f"val_kept_{name}"]
    assert list(history)[2 : 2 + len(trainer.metrics)] == list(trainer.metrics)


def test_scores_are_kept_only_for_metrics_that_need_them():
    for metrics, kept in ((OF_CLASSES, False), (["accuracy", keeping("accuracy")], True), (["accuracy", "mae"], True)):
        assert make_trainer(metrics).keeps_scores is kept
    assert make_trainer(()).outputs == "float32 loss"
    assert make_trainer(["accuracy", "iou"]).outputs == "float32 loss, counts of accuracy, iou"


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("metrics", [OF_CLASSES, [*OF_CLASSES, "mae"], ()], ids=["counted", "both", "none"])
def test_an_epoch_that_was_interrupted_has_the_same_metrics(in_batches, metrics, tmp_path):
    if "mae" in metrics:
        loss, y = BinaryCrossEntropy(ignore_index=255), np.where(Y == 255, 255, Y > 0)[:, np.newaxis]
        metrics, channels = [*{*OF_CLASSES} - {"top_5_accuracy"}, "binary_accuracy", "mae"], 1
    else:
        loss, y, channels = SoftmaxCrossEntropy(ignore_index=255), Y, 3
    data = [(X[k : k + 8], y[k : k + 8]) for k in range(0, 60, 8)] if in_batches else X
    options = {"epochs": 2, "verbose": 0, **({} if in_batches else {"batch_size": 8, "y": y})}
    whole = make_trainer(metrics, loss, channels)
    whole.fit(data, **options)

    path = tmp_path / "c"
    with pytest.raises(KeyboardInterrupt):
        callbacks = [Checkpoint(path, every_n_steps=1), Crash(11)]
        make_trainer(metrics, loss, channels).fit(data, callbacks=callbacks, **options)
    tensors = safetensors_file.read(path, "checkpoint")[1]
    assert all(tensor.size < 24 * 64 * channels for tensor in tensors.values()) or "mae" in metrics
    resumed = Trainer.resume(path)
    history = resumed.fit(data, **options)
    for name in ("loss", *whole.metrics):
        assert history[name] == whole.history[name]


@pytest.mark.parametrize(
    "change",
    [
        lambda counts: counts.pop("iou"),
        lambda counts: counts.update(iou=counts["iou"].astype(float)),
        lambda counts: counts.update(iou=-counts["iou"]),
        lambda counts: counts.update(iou=counts["iou"][:2]),
    ],
)
def test_counts_of_another_fit_are_refused(change, tmp_path):
    trainer = make_trainer(["accuracy", "iou"])
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, 2, batch_size=8, callbacks=[Checkpoint(tmp_path / "d", every_n_steps=1), Crash(3)], verbose=0)
    change(trainer.interrupted.counts)
    trainer.save_checkpoint(tmp_path / "c")
    with pytest.raises(ValueError, match="counts of"):
        Trainer.resume(tmp_path / "c").fit(X, Y, 2, batch_size=8, verbose=0)


def test_a_net_may_be_pickled_with_counted_metrics():
    trainer = make_trainer()
    trainer.fit(X, Y, 1, verbose=0)
    assert pickle.loads(pickle.dumps(trainer)).evaluate(X, Y) == trainer.evaluate(X, Y)


def test_evaluating_does_not_depend_on_the_size_of_a_chunk(monkeypatch):
    """Also of no examples, and of some that have no label."""
    trainer = make_trainer()
    expected = trainer.evaluate(X, Y)
    monkeypatch.setattr("minidl.utils.data.CHUNK_BYTES", 5 * 64 * 4)
    assert trainer.evaluate(X, Y) == expected
    assert all(math.isnan(value) for value in trainer.evaluate(X[:0], Y[:0]).values())


def test_classes_of_examples_count_as_well():
    model = Sequential([Rescale(1 / 255), Flatten(), Dense(3)], (1, 8, 8))
    y = np.arange(60) % 3
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), ["accuracy", keeping("accuracy", None)])
    history = trainer.fit(X, y, 3, batch_size=7, verbose=0)
    assert history["accuracy"] == history["kept_accuracy"]


def test_what_a_metric_refuses_is_raised_at_the_end_of_the_epoch():
    """The steps are done: a fit that completes this one does not repeat them."""
    model = Sequential([Flatten(), Dense(1)], (1, 8, 8))
    trainer, y = Trainer(model, BinaryCrossEntropy(), SGD(1e-4), ["binary_accuracy"]), np.ones((20, 1))
    good, bad = (X[:20], y), (X[20:40], y / 2)
    with pytest.raises(ValueError, match=r"^binary_accuracy: expected labels 0 and 1"):
        trainer.fit([good, bad, good], verbose=0)
    assert trainer.step == trainer.interrupted.step == 3


def test_many_small_steps_are_counted_together(monkeypatch):
    found = []
    for pending in (0, 100, 2**18):
        monkeypatch.setattr("minidl.training.seen_examples.PENDING", pending)
        trainer = make_trainer()
        found.append(trainer.fit([(X[k : k + 3], Y[k : k + 3]) for k in range(0, 60, 3)], verbose=0)["iou"])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("step", [5, 8])
def test_a_checkpoint_of_an_earlier_version(step, tmp_path):
    """Between two epochs its fit is completed; in the middle of one, it was not counted, and the trainer goes on."""
    path, options = tmp_path / "c", {"epochs": 2, "batch_size": 8, "verbose": 0}
    with pytest.raises(KeyboardInterrupt):
        checkpoint = Checkpoint(path) if step == 8 else Checkpoint(path, every_n_steps=1)
        make_trainer().fit(X, Y, callbacks=[checkpoint, Crash(step)], **options)
    config, tensors, _ = safetensors_file.read(path, "checkpoint")
    fit = config["fit"]["dict"]
    counts = json.dumps([pair for pair in fit if pair[0] == "counts"])
    fit[:] = [pair for pair in fit if pair[0] != "counts"]
    for name in re.findall(r"array/\d+", counts):
        del tensors[name]
    safetensors_file.write(path, "checkpoint", config, tensors)
    whole = make_trainer().fit(X, Y, **options)
    if step == 8:
        assert Trainer.resume(path).fit(X, Y, **options)["iou"] == whole["iou"]
    else:
        with pytest.warns(UserWarning, match="the fit in the checkpoint, of another version, cannot be completed"):
            resumed = Trainer.resume(path)
        assert resumed.step == step and resumed.fit(X, Y, **options)["iou"] != whole["iou"]


def test_a_state_with_an_unknown_name_is_no_older_one(tmp_path):
    """It is refused, rather than taken for a file without counts, which loses what it has counted."""
    path = tmp_path / "c"
    with pytest.raises(KeyboardInterrupt):
        make_trainer().fit(
            X, Y, epochs=2, batch_size=8, callbacks=[Checkpoint(path, every_n_steps=1), Crash(3)], verbose=0
        )
    config, tensors, _ = safetensors_file.read(path, "checkpoint")
    for pair in config["fit"]["dict"]:
        pair[0] = "count" if pair[0] == "counts" else pair[0]
    safetensors_file.write(path, "checkpoint", config, tensors)
    with pytest.raises(ValueError, match="count"):
        Trainer.resume(path)
