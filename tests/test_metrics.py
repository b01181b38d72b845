"""Metrics: accuracy, and how metrics are given."""

import math

import numpy as np
import pytest
import sklearn.metrics

from minidl import Sequential, Trainer
from minidl.layers import Dense
from minidl.metrics import accuracy, get
from minidl.optimizers import SGD


def test_accuracy_counts_the_highest_scores(rng):
    scores, y = rng.normal(size=(200, 4)), rng.integers(0, 4, 200)
    hits = sum(row.tolist().index(max(row)) == label for row, label in zip(scores, y, strict=True))
    assert accuracy(y, scores) == hits / 200
    assert type(accuracy(y, scores)) is float


def test_accuracy_of_a_tie_goes_to_the_first():
    assert accuracy(np.array([0, 1]), np.zeros((2, 2))) == 0.5


def test_accuracy_of_no_examples_is_nan():
    assert math.isnan(accuracy(np.empty(0, int), np.empty((0, 3))))


def test_names_and_functions():
    def error_rate(y, scores):
        return 1 - accuracy(y, scores)

    assert get(["accuracy", error_rate]) == {"accuracy": accuracy, "error_rate": error_rate}
    assert get([]) == {}


def test_an_object_is_named_after_its_class():
    class Brier:
        def __call__(self, y, scores):
            return 0.0

    assert list(get([Brier()])) == ["Brier"]


@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        (["f1"], ValueError, r"metrics: .*'accuracy'.* got 'f1'"),
        ("accuracy", TypeError, r"metrics: expected a list .* got 'accuracy'"),
        ([3], TypeError, r"metrics: .* got 3"),
        ([None], TypeError, r"metrics: .* got None"),
    ],
)
def test_invalid_metrics_are_refused(chosen, error, message):
    with pytest.raises(error, match=message):
        get(chosen)


@pytest.mark.parametrize("value", [None, np.zeros(3), "0.5", [0.5]])
def test_a_metric_that_returns_no_number_is_named(value):
    def odd(y, scores):
        return value

    model = Sequential([Dense(2)], input_shape=(3,))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), [odd])
    with pytest.raises(TypeError, match="metrics: expected odd to return a number"):
        trainer.evaluate(np.ones((4, 3)), np.array([0, 1, 0, 1]))


def test_accuracy_needs_classes():
    for shape in ((4,), (4, 0), (4, 0, 2)):
        with pytest.raises(ValueError, match=r"accuracy: expected scores \(n, classes\), got"):
            accuracy(np.zeros(4), np.zeros(shape))


def test_accuracy_of_positions_counts_them_alike(rng):
    scores, y = rng.normal(size=(4, 3, 5, 2)), rng.integers(0, 3, (4, 5, 2))
    flat, labels = np.moveaxis(scores, 1, -1).reshape(-1, 3), y.ravel()
    assert accuracy(y, scores) == accuracy(labels, flat)
    y[0], y[1, 0] = 255, 255
    assert accuracy(y, scores, ignore_index=255) == accuracy(labels[y.ravel() != 255], flat[y.ravel() != 255])
    assert math.isnan(accuracy(y[:1], scores[:1], ignore_index=255))
    for binary in (y == 1, (y == 1)[:, np.newaxis]):
        assert accuracy(binary, scores[:, :1]) == ((scores[:, 0] > 0) == (y == 1)).mean()
    with pytest.raises(ValueError, match=r"expected y of shape \(4, 5, 2\), one label per position .* got \(4, 10\)"):
        accuracy(y.reshape(4, 10), scores)


@pytest.mark.parametrize("y", [[0, 1, 1, 0], [[0], [1], [1], [0]], [False, True, True, False], [0.0, 1.0, 1.0, 0.0]])
def test_accuracy_of_a_single_score_thresholds_at_zero(y):
    assert accuracy(np.array(y), np.array([[-1.0], [1e-9], [-3.0], [0.0]])) == 0.75
    assert math.isnan(accuracy(np.empty(0), np.empty((0, 1))))


def test_accuracy_of_a_single_score_needs_zeros_and_ones():
    for y in ([0, 2], [-1, 1], [0.5, 1], [np.nan, 1]):
        with pytest.raises(ValueError, match="accuracy: expected labels 0 and 1 with a single score"):
            accuracy(np.array(y), np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"accuracy: expected y of shape \(2,\)"):
        accuracy(np.zeros((1, 2)), np.zeros((2, 1)))


def test_accuracy_compares_row_by_row():
    """A column of labels would broadcast against every row."""
    scores = np.eye(3)
    assert accuracy(np.arange(3), scores) == 1
    for y in (np.arange(3)[:, None], np.arange(1), np.arange(4), 1):
        with pytest.raises(ValueError, match=r"accuracy: expected y of shape \(3,\)"):
            accuracy(y, scores)


# ---- third-party functions, which may need labels
def label_accuracy(y, predicted):
    if predicted.ndim != 1:
        raise ValueError("expected labels")
    return (y == predicted).mean()


NEEDS = r"\(y, scores\), with y of shape \(60,\) and scores of shape \(60, 3\), failed: .*not labels: .*scores\.argmax"


def fitted_with(metric, y, outputs=3, loss="softmax_cross_entropy", **how):
    trainer = Trainer(Sequential([Dense(outputs)], (4,)), loss, SGD(0.1), [metric])
    trainer.fit(np.random.default_rng(0).normal(size=(len(y), 4)), y, verbose=0, **how)
    return trainer


def test_the_error_of_a_label_metric_says_that_it_gets_scores():
    with pytest.raises(ValueError, match=r"^metrics: label_accuracy" + NEEDS):
        fitted_with(label_accuracy, np.arange(60) % 3)


@pytest.mark.parametrize("name", ["accuracy_score", "f1_score", "balanced_accuracy_score"])
def test_label_metrics_of_scikit_learn_are_refused_before_the_first_step(name):
    steps = []
    watch = type("Watch", (), {"on_step_end": lambda self, trainer, step, loss: steps.append(step)})()
    with pytest.raises(ValueError, match=f"^metrics: {name}" + NEEDS):
        fitted_with(getattr(sklearn.metrics, name), np.arange(60) % 3, callbacks=[watch])
    assert steps == []


def test_score_metrics_of_scikit_learn_work(rng):
    y = np.arange(600) // 200  # sorted: the first rows are of one class
    assert len(fitted_with(sklearn.metrics.top_k_accuracy_score, y).history["top_k_accuracy_score"]) == 1
    trainer = fitted_with(sklearn.metrics.r2_score, rng.normal(size=(50, 2)), 2, "mean_squared_error")
    assert len(trainer.history["r2_score"]) == 1
    trainer = fitted_with(sklearn.metrics.roc_auc_score, np.arange(600) // 300, 1, "binary_cross_entropy")
    assert len(trainer.history["roc_auc_score"]) == 1


def test_accuracy_with_multilabel_targets_suggests_an_alternative():
    y = np.arange(60).reshape(20, 3) % 2
    with pytest.raises(
        ValueError, match=r"accuracy: .*got \(20, 3\): for several labels .* \(\(scores > 0\) == y\)\.mean\(\)"
    ):
        fitted_with("accuracy", y, loss="binary_cross_entropy")
