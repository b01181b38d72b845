"""Sample weights: ones change nothing, zeros remove rows, integers repeat rows.

All bit for bit, except repetition, whose sums have more terms.
"""

import numpy as np
import pytest

from minidl import Sequential, Trainer
from minidl.datasets import load_digits
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import BatchNorm1D, Conv2D, Dense, Dropout, Flatten, MaxPool2D, RandomShift, ReLU
from minidl.optimizers import SGD

DIGITS = load_digits()
N = 203  # partial batches, partial tiles
X, Y = DIGITS.X_train[:N].reshape(N, 64) / 16, DIGITS.y_train[:N]
WEIGHTS = np.random.default_rng(0).integers(0, 4, N).astype(float)

CNN = [Conv2D(6, 3, padding=1), ReLU(), MaxPool2D(2), Flatten(), Dense(24), ReLU(), Dense(10)]
RANDOM = [RandomShift(1), Conv2D(6, 3), ReLU(), Flatten(), Dropout(0.4), Dense(16), BatchNorm1D(), ReLU(), Dense(10)]
NETS = {"cnn": CNN, "dropout, batch norm, random shifts": RANDOM}


def make_classifier(layers=CNN, **options):
    known = {"input_shape": (1, 8, 8), "epochs": 4, "batch_size": 32, "lr": 0.01, "random_state": 0, **options}
    return SequentialClassifier(layers, **known)


def fit_result(estimator, X, y, **weights):
    """Returns the result of a fit: weights and buffers, losses of its epochs, validation scores, predictions."""
    estimator.fit(X, y, **weights)
    held_back = estimator.validation_scores_ or []
    state = estimator.model_.state_dict()
    return [*state.values(), np.array(estimator.loss_curve_), np.array(held_back), estimator.model_.predict(X[:50])]


def same(left, right):
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.fixture(params=[False, True], ids=["fixed epochs", "early stopping"])
def stopping(request):
    return {"early_stopping": request.param, "validation_fraction": 0.2}


@pytest.fixture(params=NETS.values(), ids=NETS)
def layers(request):
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_of_one_change_nothing(layers, dtype, stopping):
    expected = fit_result(make_classifier(layers, dtype=dtype, **stopping), X, Y)
    assert same(fit_result(make_classifier(layers, dtype=dtype, **stopping), X, Y, sample_weight=np.ones(N)), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_weight_of_zero_removes_the_row(layers, dtype, stopping):
    """Also where random masks and shifts depend on the example id, and where rows are held out."""
    there = WEIGHTS > 0
    assert not there.all()
    weighted = fit_result(make_classifier(layers, dtype=dtype, **stopping), X, Y, sample_weight=WEIGHTS)[:-1]
    without = fit_result(
        make_classifier(layers, dtype=dtype, **stopping), X[there], Y[there], sample_weight=WEIGHTS[there]
    )
    assert same(weighted, without[:-1])


def test_a_weight_of_zero_removes_the_row_for_a_trainer():
    def state(X, y, **weights):
        model = Sequential(Sequential(RANDOM)[:].layers, input_shape=(1, 8, 8))
        trainer = Trainer(model, "softmax_cross_entropy", SGD(0.1, momentum=0.9))
        trainer.fit(X, y, epochs=3, verbose=0, **weights)
        trainer.train_batch(X, y, **weights)
        return list(trainer.model.state_dict().values())

    there = WEIGHTS > 0
    assert same(state(X, Y, sample_weight=WEIGHTS), state(X[there], Y[there], sample_weight=WEIGHTS[there]))


def test_a_class_whose_rows_all_have_weight_zero_does_not_exist():
    weights = (Y != 3).astype(float)
    layers = [Flatten(), Dense(9)]
    left, right = (
        make_classifier(layers).fit(X, Y, sample_weight=weights),
        make_classifier(layers).fit(X[Y != 3], Y[Y != 3]),
    )
    assert left.classes_.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert np.array_equal(left.predict_proba(X), right.predict_proba(X))


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("made", [SequentialClassifier, SequentialRegressor])
def test_all_zero_weights_are_refused(made, method):
    estimator = made()
    more = {"classes": range(10)} if (method, made) == ("partial_fit", SequentialClassifier) else {}
    with pytest.raises(ValueError, match=r"at least one (weight above 0|non-zero number)"):
        getattr(estimator, method)(X, Y, sample_weight=np.zeros(N), **more)
    assert not hasattr(estimator, "trainer_")


@pytest.mark.parametrize("negative", [[-1.0], [np.nan], [np.inf]])
def test_invalid_weights_are_refused(negative):
    with pytest.raises(ValueError, match=r"sample_weight|Negative values"):
        make_classifier().fit(X, Y, sample_weight=np.append(np.ones(N - 1), negative))


def test_integer_weights_repeat_rows():
    """In float64 with full batches, to 1e-9 of the largest value."""
    options = {"dtype": "float64", "batch_size": 1000, "epochs": 30, "optimizer": "sgd", "lr": 0.1}
    weighted = fit_result(make_classifier(**options), X, Y, sample_weight=WEIGHTS)
    rows = np.repeat(np.arange(N), WEIGHTS.astype(int))
    repeated = fit_result(make_classifier(**options), X[rows], Y[rows])
    for one, other in zip(weighted[:-1], repeated[:-1], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * np.abs(other).max(initial=1e-30))


def test_integer_weights_repeat_rows_for_a_regressor():
    options = {"epochs": 50, "batch_size": 1000, "random_state": 0}
    weighted = SequentialRegressor(**options).fit(X, Y, sample_weight=WEIGHTS)
    rows = np.repeat(np.arange(N), WEIGHTS.astype(int))
    repeated = SequentialRegressor(**options).fit(X[rows], Y[rows])
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-9)


@pytest.mark.parametrize(
    "class_weight", ["balanced", {0: 2.0, 3: 0.5}, {7: 0.0, 1: 3.0}], ids=["balanced", "some", "one class without"]
)
@pytest.mark.parametrize("names", [np.arange(10), np.array(list("qwertyuiop"))], ids=["numbers", "strings"])
def test_class_weights_multiply_sample_weights(class_weight, names):
    """With and without sample_weight; expected values are counted by hand."""
    y = names[Y]
    by_class = dict.fromkeys(range(10), 1.0)
    if class_weight == "balanced":
        by_class = {k: WEIGHTS.sum() / (10 * WEIGHTS[k == Y].sum()) for k in range(10)}
        options = class_weight
    else:
        by_class.update(class_weight)
        options = {names[k]: weight for k, weight in class_weight.items()}
    of_rows = np.array([by_class[k] for k in Y])
    layers = [Flatten(), Dense(24), ReLU(), Dense(10 - (class_weight == {7: 0.0, 1: 3.0}))]
    with_classes = fit_result(make_classifier(layers, class_weight=options), X, y, sample_weight=WEIGHTS)
    assert same(with_classes, fit_result(make_classifier(layers), X, y, sample_weight=WEIGHTS * of_rows))


def test_multilabel_class_weights_multiply():
    """As in scikit-learn, an example's weight for an indicator matrix is the product over its labels."""
    y = np.stack([Y % 2, Y > 4], axis=1)
    of_rows = np.where(Y % 2, 3.0, 1.0) * np.where(Y > 4, 0.5, 2.0)
    layers = [Flatten(), Dense(2)]
    with_classes = fit_result(make_classifier(layers, class_weight=[{0: 1.0, 1: 3.0}, {0: 2.0, 1: 0.5}]), X, y)
    assert same(with_classes, fit_result(make_classifier(layers), X, y, sample_weight=of_rows))


@pytest.mark.parametrize("anything", [0.5, np.nan])
def test_labels_of_rows_of_weight_zero_may_be_anything(anything):
    weights, labels = np.ones(N), Y.astype(float)
    weights[:5], labels[:5] = 0, anything
    estimator = make_classifier().fit(X, labels, sample_weight=weights)
    expected = make_classifier().fit(X[5:], labels[5:])
    np.testing.assert_array_equal(estimator.predict_proba(X), expected.predict_proba(X))


def test_a_label_found_only_in_rows_of_weight_zero_is_no_class():
    weights = np.ones(N)
    weights[:5] = 0
    labels = np.where(np.arange(N) < 5, 99, Y)
    fitted = make_classifier([Flatten(), Dense(len(np.unique(Y[5:])))]).fit(X, labels, sample_weight=weights)
    assert 99 not in fitted.classes_
