"""SequentialClassifier: labels of every kind are restored, probabilities match the scores, invalid input is refused."""

import numpy as np
import pytest
import scipy.sparse
from scipy.special import expit, softmax
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.metrics import accuracy_score

from minidl.estimators import SequentialClassifier
from minidl.layers import Dense, ReLU
from minidl.losses import BinaryCrossEntropy, Pinball, SoftmaxCrossEntropy

X, NUMBERS = load_iris(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
MANY_X, MANY_Y = make_multilabel_classification(120, 6, n_classes=4, random_state=0)


def make_classifier(model=None, **options):
    return SequentialClassifier(model, **{"epochs": 40, "lr": 0.02, "tol": None, "random_state": 0, **options})


def zero_weights(fitted):
    for param in fitted.model_.params.values():
        param.value = np.zeros(param.value.shape)


def two(outputs):
    return [Dense(8), ReLU(), Dense(outputs)]


@pytest.fixture(scope="module")
def plain():
    """A classifier fitted to labels 0, 1, 2."""
    return make_classifier().fit(X, NUMBERS)


# ---- labels
LABELS = {
    "texts": np.array(["setosa", "versicolor", "virginica"]),
    "objects": np.array(["b", "c", "d"], dtype=object),
    "negative": np.array([-7, 0, 3]),
    "integral floats": np.array([-1.0, 0.0, 5.0]),
    "small": np.array([1, 2, 250], np.uint8),
    "big-endian": np.array([1, 2, 300], ">i4"),
    "large": np.array([-(2**62), 0, 2**62]),
    "long strings": np.array(["a" * 50, "b", "ä"]),
}


@pytest.mark.parametrize("names", LABELS.values(), ids=LABELS)
def test_labels_are_restored(plain, names):
    """Labels in the same sorted order as 0, 1, 2 give the same model, bit for bit."""
    fitted = make_classifier().fit(X, names[NUMBERS])
    np.testing.assert_array_equal(fitted.classes_, names)
    assert fitted.classes_.dtype == names.dtype and fitted.predict(X).dtype == names.dtype
    np.testing.assert_array_equal(fitted.predict(X), names[plain.predict(X)])
    np.testing.assert_array_equal(fitted.predict_proba(X), plain.predict_proba(X))
    assert fitted.score(X, names[NUMBERS]) == plain.score(X, NUMBERS) > 0.95


def test_labels_in_a_list(plain):
    fitted = make_classifier().fit(X.tolist(), NUMBERS.tolist())
    np.testing.assert_array_equal(fitted.predict_proba(X), plain.predict_proba(X))


def test_labels_are_sorted_and_columns_follow_them(plain):
    names = np.array(["z", "a", "m"])
    fitted = make_classifier(epochs=100).fit(X, names[NUMBERS])
    assert fitted.classes_.tolist() == ["a", "m", "z"]
    assert fitted.score(X, names[NUMBERS]) > 0.95
    np.testing.assert_array_equal(fitted.classes_[fitted.predict_proba(X).argmax(axis=1)], fitted.predict(X))


def test_a_column_is_flattened_with_a_warning(plain):
    with pytest.warns(DataConversionWarning, match="column-vector"):
        fitted = make_classifier().fit(X, NUMBERS[:, np.newaxis])
    assert fitted.predict(X).shape == (150,)
    np.testing.assert_array_equal(fitted.predict_proba(X), plain.predict_proba(X))


def test_a_label_that_occurs_once_is_learned():
    """It cannot be stratified."""
    y = NUMBERS.copy()
    y[17] = 9
    fitted = make_classifier().fit(X, y)
    assert fitted.classes_.tolist() == [0, 1, 2, 9] and fitted.predict_proba(X).shape == (150, 4)


def test_two_examples_of_two_classes_are_enough():
    fitted = make_classifier().fit(X[[0, 140]], ["a", "b"])
    assert fitted.predict(X[[0, 140]]).tolist() == ["a", "b"]


# ---- two classes
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("labels", [(False, True), ("no", "yes"), (-1, 1), (0, 1)], ids=str)
def test_two_classes_with_one_or_two_scores(labels, outputs):
    labels = np.array(labels)
    y = labels[(NUMBERS == 2).astype(int)]
    fitted = make_classifier(two(outputs), epochs=100).fit(X, y)
    loss = BinaryCrossEntropy if outputs == 1 else SoftmaxCrossEntropy
    assert isinstance(fitted.trainer_.loss, loss)
    assert fitted.predict(X).dtype == labels.dtype and fitted.score(X, y) > 0.93

    scores = fitted.model_.predict(X)
    one = expit(scores[:, 0]) if outputs == 1 else softmax(scores, axis=1)[:, 1]
    np.testing.assert_allclose(fitted.predict_proba(X), np.stack([1 - one, one], axis=1), 1e-12, 1e-12)
    np.testing.assert_array_equal(fitted.predict(X), labels[(one > 0.5).astype(int)])
    zero_weights(fitted)
    assert (fitted.predict(X) == labels[0]).all()  # a tie


@pytest.mark.parametrize("loss", ["binary_cross_entropy", BinaryCrossEntropy()], ids=str)
def test_a_loss_of_one_score_gives_a_model_with_one(loss):
    """If the model is not a list and there are two classes."""
    for model in (None, two, lambda outputs: two(outputs)):
        fitted = make_classifier(model, loss=loss).fit(X, NUMBERS == 2)
        assert fitted.model_.output_shape == (1,) and fitted.score(X, NUMBERS == 2) > 0.8
    assert make_classifier(loss=loss).fit(MANY_X, MANY_Y).model_.output_shape == (4,)
    with pytest.raises(ValueError, match="labels are for softmax_cross_entropy"):
        make_classifier(loss=loss).fit(X, NUMBERS)


@pytest.mark.parametrize("loss", ["mean_squared_error", "mean_absolute_error", "huber", "poisson", Pinball(0.5)])
def test_regression_losses_are_refused(loss):
    """Their scores would not mean what predict takes them for."""
    for model, y in (([Dense(1)], NUMBERS == 2), ([Dense(3)], NUMBERS)):
        with pytest.raises(ValueError, match="loss: expected one for one label per row, got"):
            make_classifier(model, loss=loss).fit(X, y)
    with pytest.raises(ValueError, match="loss: expected one for an indicator matrix"):
        make_classifier(loss=loss).fit(MANY_X, MANY_Y)


def test_one_score_learns_like_logistic_regression():
    """With Dense(1) the optimum of the loss is scikit-learn's without penalty."""
    from sklearn.linear_model import LogisticRegression

    y = NUMBERS[50:] == 2
    noisy = X[50:, :2]  # not linearly separable
    ours = make_classifier([Dense(1)], optimizer="sgd", lr=0.5, epochs=3000, batch_size=100).fit(noisy, y)
    theirs = LogisticRegression(C=1e12, tol=1e-10, max_iter=10_000).fit(noisy, y)
    np.testing.assert_allclose(ours.predict_proba(noisy), theirs.predict_proba(noisy), atol=1e-6)


# ---- probabilities
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities_are_the_softmax_of_the_scores(dtype):
    fitted = make_classifier(dtype=dtype).fit(X, NUMBERS)
    p = fitted.predict_proba(X)
    assert p.dtype == dtype and p.shape == (150, 3)
    np.testing.assert_allclose(p, softmax(fitted.model_.predict(X), axis=1), 1e-6 if dtype == "float32" else 1e-13)
    np.testing.assert_allclose(p.sum(axis=1), 1, 1e-6)


@pytest.mark.parametrize("outputs", [1, 2])
def test_log_probabilities_do_not_underflow(outputs):
    fitted = make_classifier(two(outputs)).fit(X, NUMBERS == 2)
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(fitted.predict_proba(X)), 1e-9, 1e-12)
    far = fitted.predict_log_proba(1e4 * X)
    assert np.isfinite(far).all() and far.min() < -1000


# ---- multilabel targets
@pytest.mark.parametrize(
    "kind",
    [np.asarray, np.ndarray.tolist, lambda y: y.astype(bool), lambda y: y.astype(float), scipy.sparse.csr_matrix,
     scipy.sparse.csc_array, scipy.sparse.coo_matrix],
    ids=["ints", "lists", "bools", "floats", "csr", "csc", "coo"],
)  # fmt: skip
def test_multilabel_targets(kind):
    fitted = make_classifier(epochs=150).fit(MANY_X, kind(MANY_Y))
    assert isinstance(fitted.trainer_.loss, BinaryCrossEntropy)
    assert fitted.classes_.tolist() == [0, 1, 2, 3]
    scores = fitted.model_.predict(MANY_X)
    np.testing.assert_allclose(fitted.predict_proba(MANY_X), expit(scores), 1e-12)
    np.testing.assert_allclose(fitted.predict_log_proba(MANY_X), np.log(expit(scores)), 1e-9, 1e-12)
    result = fitted.predict(MANY_X)
    np.testing.assert_array_equal(result, (expit(scores) > 0.5).astype(int))
    assert fitted.score(MANY_X, MANY_Y) == accuracy_score(MANY_Y, result) > 0.7

    plain = make_classifier(epochs=150).fit(MANY_X, MANY_Y)
    np.testing.assert_array_equal(scores, plain.model_.predict(MANY_X))
    zero_weights(plain)
    assert not plain.predict(MANY_X).any()


def test_a_label_that_no_row_has_and_one_that_all_have():
    y = MANY_Y.copy()
    y[:, 1], y[:, 2] = 0, 1
    result = make_classifier(epochs=60).fit(MANY_X, y).predict(MANY_X)
    assert not result[:, 1].any() and result[:, 2].all()


# ---- refused input
REFUSED = {
    "no y": (None, "requires y to be passed"),
    "fractions": (NUMBERS + 0.5, "continuous"),
    "one class": (np.full(150, 3), r"y: expected at least two classes, got one class, \[3\]"),
    "one row fewer": (NUMBERS[1:], r"inconsistent numbers of samples: \[150, 149\]"),
    "NaN": (np.where(NUMBERS == 1, np.nan, NUMBERS), "y contains NaN"),
    "infinity": (np.where(NUMBERS == 1, np.inf, NUMBERS), "y contains infinity"),
    "multi-output classes": (np.stack([NUMBERS, NUMBERS], axis=1), "indicator matrix of 0 and 1"),
    "complex": (NUMBERS * 1j, "[Cc]omplex"),
    "mixed objects": (np.array([1, "a", None], object)[NUMBERS], "[Uu]nknown label type"),
    "three axes": (np.zeros((150, 2, 2)), "dim 3"),
}


@pytest.mark.parametrize("y, message", REFUSED.values(), ids=REFUSED)
def test_invalid_targets_are_refused(y, message):
    fresh = make_classifier()
    with pytest.raises(ValueError, match=message):
        fresh.fit(X, y)
    assert vars(fresh) == vars(make_classifier())


def test_masked_arrays_are_refused_because_masks_would_be_ignored():
    mask = NUMBERS == 1
    for argument, arguments in {
        "X": (np.ma.masked_array(X, mask=np.repeat(mask[:, np.newaxis], 4, axis=1)), NUMBERS),
        "y": (X, np.ma.masked_array(NUMBERS, mask)),
        "sample_weight": (X, NUMBERS, np.ma.masked_array(np.ones(150), mask)),
    }.items():
        with pytest.raises(TypeError, match=f"^{argument}: expected an array without a mask"):
            make_classifier().fit(*arguments)


ATTRIBUTES = [
    *("classes_", "n_iter_", "loss_curve_", "validation_scores_", "best_validation_score_", "model_", "trainer_"),
]


@pytest.mark.parametrize("method", ["predict", "predict_proba", "predict_log_proba", "transform"])
def test_predict_before_fit_is_refused(method):
    with pytest.raises(NotFittedError):
        getattr(make_classifier(), method)(X)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_fitted_attributes_exist_only_after_fit(name, plain):
    assert not hasattr(make_classifier(), name) and hasattr(plain, name)
    if name != "trainer_":
        with pytest.raises(NotFittedError):
            getattr(make_classifier(), name)


REFUSED_ARGUMENTS = {
    "epochs": (0, 1.5, "many"),
    "batch_size": (0, "all", None, 1.5),
    "optimizer": ("adamm", None, object()),
    "lr": (-1, "fast", float("nan")),
    "loss": ("hinge", None, 3),
    "tol": (-1, "small"),
    "n_iter_no_change": (0, None),
    "shuffle": (1, None),
    "early_stopping": (1, None),
    "warm_start": (1, None),
    "class_weight": ("heavy", {0: -1.0}, {0: float("nan")}, 3),
    "callbacks": (None, object(), [object()]),
    "dtype": ("float16", np.float32),
    "num_threads": (0, 1.5),
    "verbose": (5, "yes"),
    "random_state": ("seed",),
    "input_shape": (4, "abc", (0, 4), ()),
    "model": ("mlp", Dense(3), [], [Dense(4)], 5),
}


@pytest.mark.parametrize(
    "name, value", [(name, value) for name, values in REFUSED_ARGUMENTS.items() for value in values]
)
def test_invalid_arguments_are_refused_by_name_in_fit_only(name, value):
    """As in scikit-learn: the constructor accepts anything."""
    fresh = SequentialClassifier(**{name: value})
    with pytest.raises((TypeError, ValueError), match="seed" if name == "random_state" else name):
        fresh.fit(X, NUMBERS)
    assert not hasattr(fresh, "trainer_") and not hasattr(fresh, "n_features_in_")


def test_a_model_with_the_wrong_outputs_is_refused_with_the_expected_ones():
    for y, outputs, message in (
        (NUMBERS, 1, r"model: expected outputs of shape \(3,\), one for each class of y, got \(1,\)"),
        (NUMBERS, 4, r"\(3,\), one for each class of y, got \(4,\)"),
        (MANY_Y, 3, r"\(4,\), one for each label of y, got \(3,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            make_classifier([Dense(outputs)]).fit(X if y is NUMBERS else MANY_X, y)


@pytest.mark.parametrize("weights", [[1, 2, 3], np.ones(3), 3, "heavy"], ids=str)
def test_invalid_class_weights_are_refused_by_name(weights):
    with pytest.raises(
        (TypeError, ValueError), match=r"class_weight: expected a dict of weights by label, 'balanced' or None"
    ):
        make_classifier(class_weight=weights).fit(X, NUMBERS)


@pytest.mark.parametrize("weights", [None, {"a": 2.0}, "balanced"])
def test_labels_of_mixed_types_are_refused(weights):
    mixed = np.array(["a", 1.0, "b", 2] * 10, object)
    with pytest.raises(ValueError, match=r"y: unknown label type: expected labels of one type, .* got float, int, str"):
        make_classifier(class_weight=weights).fit(X[:40], mixed)
