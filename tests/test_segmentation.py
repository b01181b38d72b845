"""Training on labels of positions, some of them ignored, and on probabilities."""

import functools
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics

from minidl import Sequential, Trainer
from minidl.layers import Conv2D, Dense, Flatten, ReLU, Rescale, Sigmoid, Softmax
from minidl.losses import SoftmaxCrossEntropy
from minidl.metrics import TopKAccuracy, accuracy
from minidl.optimizers import SGD

X = np.random.default_rng(0).integers(0, 256, (90, 1, 8, 8)).astype("u1")
Y = (X[:, 0] > 100).astype("u1") + (X[:, 0] > 200)
Y[:, :2][X[:, 0, :2] < 50] = 255
Y[7] = 255


def make_trainer(loss, dtype="float32", threads=None, metrics=("accuracy",)):
    layers = [Rescale(1 / 255), Conv2D(8, 3, padding=1), ReLU(), Conv2D(3, 1)]
    return Trainer(
        Sequential(layers, (1, 8, 8), dtype=dtype), loss, SGD(0.5, momentum=0.9), metrics, num_threads=threads
    )


def weights(trainer):
    return [param.value.tobytes() for param in trainer.model.params.values()]


def test_a_net_learns_the_labels_of_pixels():
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=255))
    history = trainer.fit(X, Y, 20, batch_size=16, validation_split=0.1, verbose=0)
    assert history["accuracy"][-1] > 0.9 and history["val_accuracy"][-1] > 0.9
    predicted = trainer.model.predict(X).argmax(axis=1)
    assert trainer.evaluate(X, Y)["accuracy"] == (predicted == Y)[Y != 255].mean()
    assert trainer.report(X, Y) == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [3, 90])
def test_dtypes_of_labels_and_threads_change_no_bit(n, dtype):
    loss, result = SoftmaxCrossEntropy(ignore_index=255), []
    for y, threads in ((Y, 1), (Y, 2), (Y, 3), (Y.astype(int), 2), (Y.astype(">i2"), 2), (Y.astype("i4"), 8)):
        trainer = make_trainer(loss, dtype, threads)
        result.append((weights(trainer), trainer.fit(X[:n], y[:n], 3, batch_size=32, verbose=0)["loss"]))
    assert all(other == result[0] for other in result)


def test_an_example_without_labels_has_no_gradient_and_no_part_in_a_mean():
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=255))
    gradients = trainer.per_example_gradients(X[6:8], Y[6:8])
    assert all(each[0].any() and not each[1].any() for each in gradients.values())
    alone, both = trainer.evaluate(X[6:7], Y[6:7]), trainer.evaluate(X[6:8], Y[6:8])
    assert both == alone


def test_weights_by_the_number_of_labels_give_the_mean_over_all_of_them():
    """As torch.nn.CrossEntropyLoss computes it."""
    counts = (Y != 255).sum(axis=(1, 2))
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=255), "float64")
    scores = np.moveaxis(trainer.model.predict(X), 1, -1)[Y != 255]
    expected = SoftmaxCrossEntropy()(scores, Y[Y != 255])[0].mean()
    assert trainer.evaluate(X, Y, sample_weight=counts)["loss"] == pytest.approx(expected, rel=1e-12)


def test_class_weights_are_for_examples():
    with pytest.raises(TypeError, match=r"class_weight: expected .* \(90, 8, 8\): it weighs examples; Softmax"):
        make_trainer(SoftmaxCrossEntropy(ignore_index=255)).fit(X, Y, class_weight="balanced", verbose=0)


def test_probabilities_train_as_labels_do():
    """One-hot rows give the bits of labels; accuracy compares with the most probable class."""
    y, result = (X[:, 0, 4, 4] > 100).astype(int) + (X[:, 0, 4, 4] > 200), []
    for targets in (y, np.eye(3)[y], np.eye(3, dtype=int)[y]):
        model = Sequential([Rescale(1 / 255), Flatten(), Dense(8), ReLU(), Dense(3)], (1, 8, 8))
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9), ["accuracy"])
        history = trainer.fit(X, targets, 5, batch_size=16, validation_data=(X, targets), verbose=0)
        result.append((weights(trainer), [history[name] for name in ("loss", "accuracy", "val_loss", "val_accuracy")]))
        trainer.report(X, targets)
    assert result[0] == result[1] == result[2]


def test_probabilities_of_pixels():
    masks = np.moveaxis(np.eye(3)[np.where(Y == 255, 0, Y)], -1, 1)
    one, other = make_trainer("softmax_cross_entropy"), make_trainer("softmax_cross_entropy")
    assert one.fit(X, masks, 3, verbose=0)["loss"] == other.fit(X, masks.argmax(axis=1), 3, verbose=0)["loss"]
    assert weights(one) == weights(other)
    blurred = make_trainer("softmax_cross_entropy", metrics=())
    assert blurred.fit(X, 0.5 * masks + 0.25, 3, verbose=0)["loss"][-1] > one.history["loss"][-1]


# ---- metrics leave ignored labels out
MACRO = {f"{name}_macro": getattr(sklearn.metrics, f"{name}_score") for name in ("precision", "recall", "f1")}
TOP_2 = functools.partial(sklearn.metrics.top_k_accuracy_score, k=2, labels=[0, 1, 2])
TOP_2.__name__ = "scikits_top_2"
ALL = ("accuracy", *MACRO, TopKAccuracy(2), "top_5_accuracy", TOP_2)


def expected_metrics(y, scores):
    """Returns the values of ALL, of scikit-learn on the pixels with a label."""
    labels, scores = y[y != 255], np.moveaxis(scores, 1, -1)[y != 255]
    found = {
        name: score(labels, scores.argmax(axis=1), average="macro", zero_division=0) for name, score in MACRO.items()
    }
    found["accuracy"] = sklearn.metrics.accuracy_score(labels, scores.argmax(axis=1))
    found["top_2_accuracy"] = found["scikits_top_2"] = TOP_2(labels, scores)
    return found | {"top_5_accuracy": 1.0}


def test_metrics_are_those_of_scikit_learn_on_labelled_pixels():
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=255), metrics=ALL)
    history = trainer.fit(X, Y, 3, validation_data=(X[:20], Y[:20]), verbose=0)
    found = trainer.evaluate(X, Y, sample_weight=np.arange(90) % 4)
    counted = np.arange(90) % 4 > 0  # metrics leave out rows of weight 0, and take no other weight into account
    expected = expected_metrics(Y[counted], trainer.predict(X[counted]))
    assert {name: found[name] for name in trainer.metrics} == pytest.approx(expected)
    expected = expected_metrics(Y[:20], trainer.predict(X[:20]))
    assert {name: history[f"val_{name}"][-1] for name in trainer.metrics} == pytest.approx(expected)


@pytest.mark.parametrize("in_batches", [False, True])
def test_metrics_of_an_epoch_leave_ignored_labels_out(in_batches):
    """In the first epoch of one step they are those of the initial weights."""
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=255), metrics=ALL)
    expected = expected_metrics(Y, trainer.predict(X))
    if in_batches:
        history = trainer.fit(iter([(X, Y)]), epochs=1, steps_per_epoch=1, verbose=0)
    else:
        history = trainer.fit(X, Y, 1, batch_size=90, verbose=0)
    assert {name: history[name][0] for name in trainer.metrics} == pytest.approx(expected)


def test_a_perfect_net_has_the_highest_metrics():
    """A single row of 255 took a class from each average, and was refused as a label of two."""
    model = Sequential([Conv2D(2, 1)], (1, 4, 4))
    model.load_state_dict(dict(zip(model.state_dict(), ([[[[0.0]]], [[[1.0]]]], [0.5, 0.0]), strict=True)))
    x = np.arange(32).reshape(2, 1, 4, 4) % 3 % 2
    y = x[:, 0].copy()
    y[:, 0] = 255
    names = ["accuracy", "precision", "recall", "f1", *MACRO, "top_5_accuracy"]
    trainer = Trainer(model, SoftmaxCrossEntropy(ignore_index=255), SGD(0.1), names)
    found = trainer.evaluate(x, y)
    assert [found[name] for name in names] == [1.0] * len(names)


def test_labels_of_examples_are_ignored_as_those_of_pixels_are():
    model = Sequential([Flatten(), Dense(3)], (1, 8, 8))
    trainer = Trainer(model, SoftmaxCrossEntropy(ignore_index=-1), SGD(0.1), ALL)
    y = np.arange(90) % 4 - 1
    found, without = trainer.evaluate(X, y), trainer.evaluate(X[y >= 0], y[y >= 0])
    assert all(found[name] == without[name] for name in trainer.metrics)


@pytest.mark.filterwarnings("error")
def test_metrics_without_any_label_are_nan():
    trainer = make_trainer(SoftmaxCrossEntropy(ignore_index=255), metrics=ALL)
    found = trainer.evaluate(X[7:8], Y[7:8])
    assert all(math.isnan(found[name]) for name in trainer.metrics)
    with pytest.warns(UserWarning, match="f1_macro.*got NaN in each"):
        history = trainer.fit([(X[7:8], Y[7:8])], verbose=0)  # a fit on arrays without any label is refused
    assert math.isnan(history["f1_macro"][0])


def test_an_own_function_gets_the_ignored_labels_as_well():
    seen = []

    def own(y, scores):
        seen.append((y, scores.shape))
        return accuracy(y, scores, ignore_index=255)

    found = make_trainer(SoftmaxCrossEntropy(ignore_index=255), metrics=["accuracy", own]).evaluate(X, Y)
    np.testing.assert_array_equal(seen[0][0], Y)
    assert seen[0][1] == (90, 3, 8, 8) and found["own"] == found["accuracy"]


def test_the_error_of_a_metric_names_ignore_index():
    """That of scikit-learn before the first step."""

    def own(y, scores):
        return sklearn.metrics.f1_score(y.ravel(), scores.argmax(axis=1).ravel())

    loss = SoftmaxCrossEntropy(ignore_index=255)
    m = (Y != 255).sum()
    message = (
        rf"f1_score\(y, scores\), with y of shape \({m},\) and scores .* without the labels of ignore_index=255, failed"
    )
    trainer = make_trainer(loss, metrics=[sklearn.metrics.f1_score])
    with pytest.raises(ValueError, match=message):
        trainer.fit(X, Y, verbose=0)
    assert trainer.step == 0
    with pytest.raises(
        ValueError, match=r"own\(y, scores\), with y of shape \(90, 8, 8\) .* including the labels of ignore"
    ):
        make_trainer(loss, metrics=[own]).evaluate(X, Y)
    with pytest.raises(ValueError, match="f1: expected scores of one or two classes, got 3"):
        make_trainer(loss, metrics=["f1"]).evaluate(X, Y)


def test_predict_proba_says_how_to_get_probabilities_of_pixels():
    model = make_trainer("softmax_cross_entropy").model
    with pytest.raises(
        ValueError, match=r"got \(3, 8, 8\); for each position: Sequential\(\[Softmax\(\)\], model\.output"
    ):
        model.predict_proba(X)
    found = Sequential([Softmax()], model.output_shape, dtype=model.dtype).predict(model.predict(X))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)
    one = Sequential([Conv2D(1, 1)], (1, 8, 8))
    with pytest.raises(ValueError, match=r"got \(1, 8, 8\); for each position: Sequential\(\[Sigmoid\(\)\]"):
        one.predict_proba(X)
    assert Sequential([Sigmoid()], one.output_shape).predict(one.predict(X)).shape == (90, 1, 8, 8)


# ---- the example
def run_example(name, *args):
    """Returns what an example prints."""
    path = Path(__file__).parents[1] / "examples" / name
    return subprocess.run([sys.executable, path, *args], capture_output=True, text=True, check=True).stdout


def test_the_example_has_one_hash_for_all_threads():
    outputs = [
        run_example("segmentation.py", "--images", "8", "--epochs", "2", "--num-threads", str(n)) for n in (1, 2)
    ]
    hashes = [re.search(r"^Weights (\w{16})$", output, re.M)[1] for output in outputs]
    assert hashes[0] == hashes[1]
    assert len(re.findall(r"^ +\d+ x +\d+: IoU 0\.\d{3}, Dice 0\.\d{3}$", outputs[0], re.M)) == 3


@pytest.mark.slow
def test_the_example_finds_cells_in_images_of_all_sizes():
    assert min(map(float, re.findall(r"IoU (0\.\d{3}), Dice", run_example("segmentation.py")))) > 0.95
