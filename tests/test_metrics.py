"""Metrics by name, and how metrics are given."""

import copy
import functools
import math

import numpy as np
import pytest
import sklearn.metrics
from sklearn.metrics import f1_score, precision_score, recall_score

from minidl import Sequential, Trainer
from minidl.callbacks import EarlyStopping
from minidl.layers import Dense
from minidl.losses import SoftmaxCrossEntropy
from minidl.metrics import (
    NAMES,
    TopKAccuracy,
    accuracy,
    average_precision,
    binary_accuracy,
    f1,
    get,
    r2,
    roc_auc,
    subset_accuracy,
)
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
        (["auc"], ValueError, r"metrics: .*'accuracy'.*'top_5_accuracy'\] or a function, got 'auc'"),
        (["f1", f1], ValueError, "metrics: expected a unique name for each, got 'f1'"),
        (["top_5_accuracy", TopKAccuracy()], ValueError, "expected a unique name for each, got 'top_5_accuracy'"),
        ("accuracy", TypeError, r"metrics: expected a list .* got 'accuracy'"),
        ([3], TypeError, r"metrics: .* got 3"),
        ([None], TypeError, r"metrics: .* got None"),
    ],
)
def test_invalid_metrics_are_refused(chosen, error, message):
    with pytest.raises(error, match=message):
        get(chosen)


@pytest.mark.parametrize(
    "value", [None, np.zeros(3), "0.5", [0.5], 1j, np.complex64(1), np.array("0.5"), np.array(None)]
)
def test_a_metric_that_returns_no_number_is_named(value):
    def odd(y, scores):
        return value

    model = Sequential([Dense(2)], input_shape=(3,))
    trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1), [odd])
    with pytest.raises(TypeError, match="metrics: expected odd to return a number"):
        trainer.evaluate(np.ones((4, 3)), np.array([0, 1, 0, 1]))


@pytest.mark.parametrize("value", [True, np.True_, np.array(True), np.float16(1), np.int8(1), np.array(1.0)])
def test_a_metric_may_return_any_real_number_or_a_bool(value):
    def odd(y, scores):
        return value

    trainer = Trainer(Sequential([Dense(2)], input_shape=(3,)), "softmax_cross_entropy", SGD(0.1), [odd])
    history = trainer.fit(np.ones((4, 3)), np.array([0, 1, 0, 1]), epochs=2, verbose=0)
    assert history["odd"] == [1.0, 1.0] and type(history["odd"][0]) is float


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
    with pytest.raises(ValueError, match=r"expected y of shape \(4, 5, 2\), one label per pixel, got \(4, 10\)"):
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
    with pytest.raises(ValueError, match=r'accuracy: .*got \(20, 3\): for several labels .*"binary_accuracy" counts'):
        fitted_with("accuracy", y, loss="binary_cross_entropy")


# ---- metrics by name
FOR_CLASSES = ("accuracy", "top_5_accuracy", "f1_macro", "precision_macro", "recall_macro")
SKLEARN = {"precision": precision_score, "recall": recall_score, "f1": f1_score}


@pytest.mark.parametrize("shape", [(7, 5), (1, 1), (6, 4)])
def test_accuracy_of_pixels(shape, rng):
    scores, y = rng.normal(size=(9, 4, *shape)), rng.integers(0, 4, (9, *shape))
    assert accuracy(y, scores) == np.mean(
        [scores[i, :, a, b].argmax() == y[i, a, b] for i, a, b in np.ndindex(y.shape)]
    )
    masks = y > 1
    for given in (masks, masks[:, np.newaxis]):
        assert accuracy(given, scores[:, :1]) == ((scores[:, 0] > 0) == masks).mean()
    with pytest.raises(
        ValueError, match=rf"accuracy: expected y of shape \(9, {shape[0]}, {shape[1]}\), one label per pixel"
    ):
        accuracy(np.zeros((9, 4)), scores)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
def test_top_k_accuracy(k, rng):
    scores, y = rng.normal(size=(300, 7)), rng.integers(0, 7, 300)
    found = TopKAccuracy(k)(y, scores)
    assert found == np.mean([label in row.argsort()[::-1][:k] for row, label in zip(scores, y, strict=True)])
    if k < 7:
        assert found == pytest.approx(sklearn.metrics.top_k_accuracy_score(y, scores, k=k))
    ties = rng.integers(0, 3, (300, 7))
    assert TopKAccuracy(1)(y, ties) == accuracy(y, ties)
    assert TopKAccuracy(k)(y, ties) == np.mean(
        [label in np.argsort(-row, kind="stable")[:k] for row, label in zip(ties, y, strict=True)]
    )
    pixels = rng.normal(size=(5, 7, 3, 2)), rng.integers(0, 7, (5, 3, 2))
    rows = pixels[0].transpose(0, 2, 3, 1).reshape(-1, 7), pixels[1].ravel()
    assert TopKAccuracy(k)(*pixels[::-1]) == TopKAccuracy(k)(*rows[::-1])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("top_3_accuracy", r"use TopKAccuracy\(3\) of minidl\.metrics"),
        ("top_1_accuracy", "use 'accuracy'"),
        ("f1_score", "use 'f1' for two classes, 'f1_macro' for more"),
        ("mean_absolute_error", "use 'mae'"),
        ("mean_squared_error", "use 'mse'"),
        ("auc", "use 'roc_auc'"),
        ("roc_auc_score", "use 'roc_auc'"),
    ],
)
def test_an_unknown_name_has_a_hint(name, meant):
    with pytest.raises(ValueError, match=f"got '{name}'; {meant}$"):
        get([name])


@pytest.mark.parametrize("name", ["f1", "precision", "recall"])
def test_multilabel_targets_suggest_the_macro_average(name):
    y = np.arange(60).reshape(20, 3) % 2
    with pytest.raises(
        ValueError, match=rf'{name}: .*got \(20, 3\): for several .*"{name}_macro" averages over labels'
    ):
        fitted_with(name, y, loss="binary_cross_entropy")
    assert f"{name}_macro" in fitted_with(f"{name}_macro", y, loss="binary_cross_entropy").history


def test_top_k_accuracy_is_named_after_k():
    assert get(["top_5_accuracy", TopKAccuracy(3)]).keys() == {"top_5_accuracy", "top_3_accuracy"}
    assert repr(TopKAccuracy(3)) == "TopKAccuracy(k=3)"
    assert math.isnan(TopKAccuracy()(np.empty(0, int), np.empty((0, 3))))
    assert TopKAccuracy(1)(np.array([0]), np.full((1, 3), np.nan)) == 0
    for k, error in ((0, ValueError), (1.5, TypeError), (True, TypeError), ("5", TypeError)):
        with pytest.raises(error, match="k: expected"):
            TopKAccuracy(k)
    for y, scores in (([0, 3], np.zeros((2, 3))), ([0, -1], np.zeros((2, 3))), ([0, 0.5], np.zeros((2, 3)))):
        with pytest.raises(ValueError, match=r"top_5_accuracy: expected scores of at least two .* got other labels"):
            TopKAccuracy()(np.array(y), scores)
    with pytest.raises(ValueError, match=r"top_5_accuracy: .* got a single score"):
        TopKAccuracy()(np.array([0, 1]), np.zeros((2, 1)))


@pytest.mark.parametrize("name", SKLEARN)
def test_precision_recall_and_f1_are_scikit_learns(name, rng):
    y, scores = rng.integers(0, 2, 200), rng.normal(size=(200, 2))
    predicted = scores.argmax(axis=1)
    expected = SKLEARN[name](y, predicted)
    assert NAMES[name](y, scores) == expected
    assert NAMES[name](y.astype(float), scores) == expected
    single = scores[:, 1:] - scores[:, :1]
    assert NAMES[name](y[:, np.newaxis] == 1, single) == expected == NAMES[name](y, single)
    macro = NAMES[f"{name}_macro"]
    assert macro(y, scores) == SKLEARN[name](y, predicted, average="macro")
    y, scores = rng.integers(0, 5, 200), rng.normal(size=(200, 6))
    expected = SKLEARN[name](y, scores.argmax(axis=1), average="macro", zero_division=0)
    assert macro(y, scores) == macro(y.astype(float), scores) == expected
    labels, scores = rng.integers(0, 2, (100, 3)), rng.normal(size=(100, 3))
    assert macro(labels, scores) == SKLEARN[name](labels, scores > 0, average="macro")
    pixels, masks = rng.normal(size=(4, 3, 5, 5)), rng.integers(0, 3, (4, 5, 5))
    assert macro(masks, pixels) == SKLEARN[name](masks.ravel(), pixels.argmax(axis=1).ravel(), average="macro")


@pytest.mark.parametrize("name", [*SKLEARN, *(f"{name}_macro" for name in SKLEARN)])
def test_precision_recall_and_f1_without_examples_or_hits(name):
    assert math.isnan(NAMES[name](np.empty(0, int), np.empty((0, 2))))
    assert NAMES[name](np.ones(3, int), np.array([[1.0, 0]] * 3)) == 0  # nothing found, and no warning
    assert NAMES[name](np.ones(3, int), np.array([[0, 1.0]] * 3)) == 1
    with pytest.raises(ValueError, match=rf"{name}: expected y of shape \(3,\)"):
        NAMES[name](np.zeros(2), np.zeros((3, 2)))
    with pytest.raises(ValueError, match=rf"{name}: expected labels (0 and 1|from 0 to 1), got other values"):
        NAMES[name](np.array([0, 0.5]), np.zeros((2, 2)))


@pytest.mark.parametrize("name", SKLEARN)
def test_scores_of_more_classes_need_the_macro_average(name):
    with pytest.raises(
        ValueError, match=f'{name}: expected scores of one or two classes, got 3: for more, "{name}_macro"'
    ):
        fitted_with(name, np.arange(60) % 3)
    assert f"{name}_macro" in fitted_with(f"{name}_macro", np.arange(60) % 3).history


def test_an_epochs_f1_is_not_the_mean_of_its_batches(rng):
    y = np.arange(90) % 9 == 0
    history = fitted_with("f1", y, 1, "binary_cross_entropy", batch_size=10, validation_split=0.5).history
    assert len(history["f1"]) == len(history["val_f1"]) == 1
    scores = rng.normal(size=(90, 1))
    batches = [f1(y[i : i + 10], scores[i : i + 10]) for i in range(0, 90, 10)]
    assert f1(y, scores) != pytest.approx(np.mean(batches))


@pytest.mark.parametrize("shape", [(50, 4), (50, 1), (6, 2, 4, 3)])
def test_independent_labels(shape, rng):
    y, scores = rng.integers(0, 2, shape), rng.normal(size=shape)
    right = (y == 1) == (scores > 0)
    assert binary_accuracy(y, scores) == right.mean()
    assert subset_accuracy(y, scores) == np.mean([row.all() for row in right])
    if len(shape) == 2:
        assert subset_accuracy(y, scores) == sklearn.metrics.accuracy_score(y, scores > 0)
    if shape[1:] == (1,):
        assert binary_accuracy(y[:, 0], scores) == accuracy(y, scores) == subset_accuracy(y[:, 0] > 0, scores)
    for metric in (binary_accuracy, subset_accuracy):
        assert math.isnan(metric(y[:0], scores[:0]))
        with pytest.raises(ValueError, match=f"{metric.__name__}: expected y of the shape of scores"):
            metric(np.zeros(7), scores)
        with pytest.raises(ValueError, match=f"{metric.__name__}: expected labels 0 and 1, one for each score"):
            metric(y + 1, scores)


@pytest.mark.parametrize("shape", [(50, 4), (50, 1), (6, 2, 4, 3)])
def test_errors_of_numbers(shape, rng):
    y, scores = rng.normal(size=shape), rng.normal(size=shape).astype("f4")
    rows = y.reshape(len(y), -1), scores.reshape(len(y), -1).astype("f8")
    expected = {
        "mae": sklearn.metrics.mean_absolute_error(*rows),
        "mse": sklearn.metrics.mean_squared_error(*rows),
        "rmse": np.sqrt(sklearn.metrics.mean_squared_error(*rows)),
        "r2": sklearn.metrics.r2_score(*rows),
    }
    for name, value in expected.items():
        assert NAMES[name](y, scores) == pytest.approx(value, rel=1e-12)
        if shape[1:] == (1,):
            assert NAMES[name](y[:, 0], scores) == NAMES[name](y, scores)
        assert math.isnan(NAMES[name](y[:0], scores[:0])) and math.isnan(NAMES[name](y, np.full(shape, np.nan)))
        with pytest.raises(
            ValueError, match=rf"{name}: expected y of the shape of scores, \({shape[0]}, .*got \(50, 2\)"
        ):
            NAMES[name](np.zeros((50, 2)), scores)
    assert math.isnan(r2(y[:1], scores[:1]))


@pytest.mark.parametrize("name", ["mae", "mse", "rmse", "r2"])
def test_a_wrong_metric_is_refused_before_the_first_step(name):
    with pytest.raises(ValueError, match=f"^{name}: expected y of the shape of scores"):
        fitted_with(name, np.arange(60) % 3)


def test_metrics_survive_a_checkpoint_and_a_copy(tmp_path):
    y = np.arange(60) % 3
    trainer = Trainer(Sequential([Dense(3)], (4,)), "softmax_cross_entropy", SGD(0.1), [*FOR_CLASSES, TopKAccuracy(2)])
    trainer.fit(np.random.default_rng(0).normal(size=(60, 4)), y, verbose=0)
    trainer.save_checkpoint(tmp_path / "c")
    for other in (Trainer.resume(tmp_path / "c"), copy.deepcopy(trainer)):
        assert list(other.metrics) == list(trainer.metrics) == [*FOR_CLASSES, "top_2_accuracy"]
        assert other.metrics["top_2_accuracy"].k == 2
        assert other.history.keys() == trainer.history.keys()
    assert all(trainer.history[name][0] > 0 for name in trainer.metrics)


def test_the_most_probable_class_is_the_label_in_all_metrics_of_labels():
    """One-hot targets measure what their labels do."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((60, 4)), rng.integers(0, 7, 60)
    names = ["accuracy", "f1_macro", "precision_macro", "recall_macro", "top_5_accuracy", TopKAccuracy(2)]
    trainer = Trainer(Sequential([Dense(7)], (4,)), "softmax_cross_entropy", SGD(0.1), names)
    expected = trainer.evaluate(X, y)
    assert trainer.evaluate(X, np.eye(7)[y]) == pytest.approx(expected)
    assert 0 < expected["f1_macro"] < 1
    two = Trainer(Sequential([Dense(2)], (4,)), "softmax_cross_entropy", SGD(0.1), ["f1", "precision", "recall"])
    assert two.evaluate(X, np.eye(2)[y % 2]) == pytest.approx(two.evaluate(X, y % 2))


RANKINGS = {roc_auc: sklearn.metrics.roc_auc_score, average_precision: sklearn.metrics.average_precision_score}


@pytest.mark.parametrize("metric", RANKINGS)
@pytest.mark.parametrize("outputs", [1, 2])
def test_rankings_are_scikit_learns(metric, outputs, rng):
    for levels in (2, 5, 1000):  # of which the first have many ties
        n = int(rng.integers(10, 400))
        y, scores = rng.permutation(np.arange(n) % 3 == 0), rng.integers(0, levels, (n, outputs)).astype(np.float32)
        expected = RANKINGS[metric](y, scores[:, -1] - (scores[:, 0] if outputs == 2 else 0))
        assert metric(y, scores) == pytest.approx(expected, rel=1e-12)
        # the same scores, of pixels
        pixels = scores[: n // 2 * 2].reshape(n // 2, 2, 1, outputs).transpose(0, 3, 1, 2)
        assert metric(y[: n // 2 * 2].reshape(n // 2, 2, 1), pixels) == metric(y[: n // 2 * 2], scores[: n // 2 * 2])


@pytest.mark.parametrize("metric", RANKINGS)
def test_rankings_that_are_not_defined(metric):
    assert math.isnan(metric(np.zeros(3, int), np.ones((3, 1)))) and math.isnan(metric(np.empty(0), np.empty((0, 2))))
    assert math.isnan(metric([0, 1], [[np.nan], [1.0]]))
    assert math.isnan(roc_auc([1, 1], [[0.0], [1.0]])) and average_precision([1, 1], [[0.0], [1.0]]) == 1
    assert metric([0, 1], [[-np.inf], [np.inf]]) == 1
    for y, scores in (([0, 1], np.zeros((2, 3))), ([0, 2], np.zeros((2, 2))), ([0, 1, 1], np.zeros((2, 1)))):
        with pytest.raises(ValueError, match=metric.__name__):
            metric(y, scores)


def test_rankings_of_a_fit_leave_ignored_labels_out(rng):
    X, y = rng.normal(size=(40, 4)), np.arange(40) % 2
    y[::5] = 9
    model = Sequential([Dense(2)], input_shape=(4,), dtype="float64")
    trainer = Trainer(model, SoftmaxCrossEntropy(ignore_index=9), SGD(0.1), ["roc_auc", "average_precision"])
    trainer.fit(X, y, validation_data=(X, y), callbacks=[EarlyStopping("val_roc_auc", 2)], epochs=2, verbose=0)
    known, found = y != 9, trainer.evaluate(X, y)
    for metric, oracle in RANKINGS.items():
        p = model.predict_proba(X)[:, 1]
        assert found[metric.__name__] == pytest.approx(oracle(y[known], p[known]), rel=1e-12)


def test_a_partial_has_the_name_of_its_function():
    halved = functools.partial(functools.partial(sklearn.metrics.fbeta_score, beta=0.5), average="macro")
    assert list(get([halved])) == ["fbeta_score"]
    other = functools.partial(sklearn.metrics.fbeta_score, beta=2)
    with pytest.raises(ValueError, match="'fbeta_score': set the __name__ of the function"):
        get([halved, other])
    other.__name__ = "f2"
    assert list(get([halved, other])) == ["fbeta_score", "f2"]
