"""Labels as floats 0.0 and 1.0 and as one-hot rows: split and weighted as integer labels are."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from minidl import Sequential, Trainer
from minidl.estimators import SequentialClassifier
from minidl.layers import Dense, Reshape
from minidl.losses import BinaryCrossEntropy
from minidl.optimizers import SGD
from minidl.training.labeled_data import LabeledData

X = np.random.default_rng(0).normal(size=(60, 4))
RARE = np.arange(60) % 10 == 3  # 6 of 60
THREE = np.array([0, 1, 2])[(np.arange(60) % 10 > 4) + (np.arange(60) % 10 > 7).astype(int)]  # 30, 18 and 12


def trainer_of(outputs, loss):
    return Trainer(Sequential([Dense(outputs)], input_shape=(4,), dtype="float64"), loss, SGD(0.5))


def eye(labels, dtype=float):
    return np.eye(3, dtype=dtype)[labels]


# for each: outputs, loss, y, and the same labels as integers
FORMS = {
    "floats": (1, "binary_cross_entropy", RARE.astype(float), RARE),
    "a column of floats": (1, "binary_cross_entropy", RARE.astype("f4")[:, None], RARE),
    "a list": (1, "binary_cross_entropy", RARE.astype(float).tolist(), RARE),
    "one-hot floats": (3, "softmax_cross_entropy", eye(THREE), THREE),
    "one-hot integers": (3, "softmax_cross_entropy", eye(THREE, int), THREE),
    "one-hot bools": (3, "softmax_cross_entropy", eye(THREE, bool), THREE),
    "one-hot labels": (3, "binary_cross_entropy", eye(THREE), THREE),
}


@pytest.mark.parametrize("outputs, loss, y, labels", FORMS.values(), ids=FORMS)
def test_a_split_is_stratified(outputs, loss, y, labels):
    trainer = trainer_of(outputs, loss)
    data = LabeledData.from_arrays(trainer.model, trainer.loss, X, y)
    for seed in range(20):
        train, held = data.split(1 / 6, seed)
        np.testing.assert_array_equal(np.bincount(labels[held]) * 6, np.bincount(labels))
        assert sorted([*train, *held]) == list(range(60))


@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.5, 1: 7.0}])
@pytest.mark.parametrize("outputs, loss, y, labels", FORMS.values(), ids=FORMS)
def test_class_weights_are_those_of_integer_labels(outputs, loss, y, labels, class_weight):
    weights = compute_sample_weight(class_weight, labels)
    by_class, by_row = trainer_of(outputs, loss), trainer_of(outputs, loss)
    first = by_class.fit(X, y, epochs=3, class_weight=class_weight, validation_split=1 / 6, verbose=0)
    second = by_row.fit(X, y, epochs=3, sample_weight=weights, validation_split=1 / 6, verbose=0)
    np.testing.assert_array_equal(by_class.predict(X), by_row.predict(X))
    assert first["loss"] == second["loss"] and first["val_loss"] == second["val_loss"]


NOT_LABELS = {
    "probabilities of a label": (1, "binary_cross_entropy", np.where(RARE, 0.9, 0.0)),
    "probabilities of classes": (3, "softmax_cross_entropy", eye(THREE) * 0.9 + 0.1 / 3),
    "twice a one": (3, "softmax_cross_entropy", 2 * eye(THREE)),
    "independent labels": (3, "binary_cross_entropy", np.stack([RARE, THREE > 0, THREE > 1], axis=1)),
    "numbers": (1, "mean_squared_error", RARE.astype(float)),
}


@pytest.mark.parametrize("outputs, loss, y", NOT_LABELS.values(), ids=NOT_LABELS)
def test_other_targets_have_no_classes(outputs, loss, y):
    trainer = trainer_of(outputs, loss)
    assert LabeledData.from_arrays(trainer.model, trainer.loss, X, y).labels is None
    with pytest.raises(TypeError, match=r"^class_weight: expected"):
        trainer.fit(X, y, class_weight="balanced", verbose=0)
    trainer.fit(X, y, epochs=1, validation_split=0.1, verbose=0)


def test_labels_of_positions_are_not_one_hot_rows():
    y = np.eye(4, dtype=int)[np.arange(60) % 4]  # of four positions each
    model = Sequential([Dense(8), Reshape((2, 4))], input_shape=(4,))
    assert LabeledData.from_arrays(model, Trainer(model, "softmax_cross_entropy", SGD(0.1)).loss, X, y).labels is None


# ---- estimators
@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.5, 1: 7.0}])
def test_an_estimators_one_hot_rows_have_the_weights_of_their_classes(class_weight):
    options = {"loss": BinaryCrossEntropy(), "epochs": 3, "random_state": 0}
    by_class = SequentialClassifier([Dense(3)], class_weight=class_weight, **options).fit(X, eye(THREE))
    by_row = SequentialClassifier([Dense(3)], **options)
    by_row.fit(X, eye(THREE), sample_weight=compute_sample_weight(class_weight, THREE))
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))
    online = SequentialClassifier([Dense(3)], class_weight={1: 7.0}, **options)
    assert online.partial_fit(X, eye(THREE)).n_iter_ == 1
    for each_label in ([{0: 1, 1: 5}] * 3, "balanced"):  # of independent labels, as before
        independent = np.stack([RARE, THREE > 0, THREE > 1], axis=1)
        weights = compute_sample_weight(each_label, independent)
        one = SequentialClassifier([Dense(3)], class_weight=each_label, **options).fit(X, independent)
        other = SequentialClassifier([Dense(3)], **options).fit(X, independent, sample_weight=weights)
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("y", [RARE.astype(float), eye(THREE)], ids=["floats", "one-hot"])
def test_early_stopping_of_an_estimator_is_stratified(y):
    labels = y.argmax(axis=1) if y.ndim == 2 else y.astype(int)
    for seed in range(5):
        fitted = SequentialClassifier(
            [Dense(3 if y.ndim == 2 else 2)],
            epochs=2,
            early_stopping=True,
            validation_fraction=1 / 6,
            random_state=seed,
        ).fit(X, y)
        data = LabeledData.from_arrays(
            fitted.model_, fitted.trainer_.loss, X, y.astype(bool) if y.ndim == 2 else labels
        )
        _, held = data.split(1 / 6, fitted.trainer_.seed)
        expected = (fitted.predict(X[held]) == y[held]).reshape(len(held), -1).all(axis=1).mean()
        assert fitted.best_validation_score_ == pytest.approx(expected)
        np.testing.assert_array_equal(np.bincount(labels[held]) * 6, np.bincount(labels))
