"""Probabilities of a Trainer and of estimators are those of its loss; a model's own assume one. Exports: theirs."""

import numpy as np
import pytest
from scipy.special import expit, softmax

from minidl import Sequential, Trainer
from minidl.estimators import SequentialClassifier, SequentialRegressor
from minidl.layers import Conv2D, Dense, LogSoftmax, Residual, Sigmoid, Softmax, Softmin
from minidl.losses import BinaryCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy
from minidl.optimizers import SGD
from minidl.plots import predictions

X = np.random.default_rng(0).normal(0, 3, (50, 4))


def model_of(outputs, *last):
    return Sequential([Dense(outputs), *last], input_shape=(4,), dtype="float64")


def trainer_of(outputs, loss):
    return Trainer(model_of(outputs), loss, SGD(0.1))


def own(scores, y):
    """A function that does not say what its scores are."""
    return (scores**2).mean(axis=1), 2 * scores / scores.shape[1]


class Focal:
    """An object that says it."""

    def __init__(self, applies):
        self.applies = applies

    def __call__(self, scores, y):
        return own(scores, y)


def two_columns(scores):
    return np.hstack([1 - expit(scores), expit(scores)])


LINKS = {
    "softmax": ("softmax_cross_entropy", 3, lambda s: softmax(s, axis=1)),
    "softmax, smoothed": (SoftmaxCrossEntropy(0.1), 2, lambda s: softmax(s, axis=1)),
    "labels": ("binary_cross_entropy", 3, expit),
    "weighted labels": (BinaryCrossEntropy(pos_weight=5), 2, expit),
    "one label": ("binary_cross_entropy", 1, two_columns),
    "own softmax": (Focal("Softmax"), 3, lambda s: softmax(s, axis=1)),
    "own sigmoid": (Focal("Sigmoid"), 3, expit),
    "own label": (Focal("Sigmoid"), 1, two_columns),
}


@pytest.mark.parametrize("loss, outputs, expected", LINKS.values(), ids=LINKS)
def test_a_trainers_are_those_of_its_loss(loss, outputs, expected):
    trainer = trainer_of(outputs, loss)
    np.testing.assert_allclose(trainer.predict_proba(X), expected(trainer.predict(X)), 1e-12)


@pytest.mark.parametrize(
    "loss", ["mean_squared_error", "mean_absolute_error", "huber", "poisson", own, Focal(""), Focal("softmax")]
)
def test_a_loss_without_probabilities_is_refused(loss):
    for outputs in (1, 3):
        with pytest.raises(
            ValueError, match=r'^predict_proba: expected a loss such as .* or with an attribute applies = "Softmax"'
        ):
            trainer_of(outputs, loss).predict_proba(X)


def test_a_function_may_say_it():
    def named(scores, y):
        return own(scores, y)

    trainer = trainer_of(2, named)
    named.applies = "Softmax"
    np.testing.assert_allclose(trainer.predict_proba(X), softmax(trainer.predict(X), axis=1), 1e-12)


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", "binary_cross_entropy"])
def test_probabilities_of_positions_are_refused_with_the_layer_of_the_loss(loss):
    images = Sequential([Conv2D(3, 1)], (1, 4, 4))
    layer = {"softmax_cross_entropy": "Softmax", "binary_cross_entropy": "Sigmoid"}[loss]
    with pytest.raises(ValueError, match=rf"^predict_proba: .* got \(3, 4, 4\); .*: Sequential\(\[{layer}\(\)\]"):
        Trainer(images, loss, SGD(0.1)).predict_proba(np.zeros((2, 1, 4, 4)))


# ---- a model's own
def test_a_softmax_at_the_end_is_not_applied_twice():
    model = model_of(3, Softmax())
    np.testing.assert_array_equal(model.predict_proba(X), model.predict(X))
    nested = model_of(3, Sequential([Softmax()]))
    np.testing.assert_array_equal(nested.predict_proba(X), nested.predict(X))
    branch = model_of(3, Residual(Softmax()))
    np.testing.assert_allclose(branch.predict_proba(X), softmax(branch.predict(X), axis=1), 1e-12)
    shown = predictions.predictions_of(model, X, np.arange(50) % 3, None, None)
    np.testing.assert_array_equal(shown.probabilities, model.predict(X))


@pytest.mark.parametrize("last", [LogSoftmax, Softmin, Sigmoid])
def test_outputs_that_are_not_scores_are_refused(last):
    with pytest.raises(ValueError, match=f"^predict_proba: expected a model without a {last.__name__} at its end"):
        model_of(3, last()).predict_proba(X)


def test_a_softmax_of_one_score_is_refused():
    for model in (model_of(1, Softmax()), trainer_of(1, Focal("Softmax"))):
        with pytest.raises(ValueError, match=r"^predict_proba: expected at least two scores for a softmax.*\(1,\)"):
            model.predict_proba(X)


Y = {"(n,)": np.zeros(50, int), "(n, 1)": np.zeros((50, 1)), "bytes": np.zeros((50, 1), np.uint8)}
MAPS = {"(n, h, w)": np.zeros((50, 2, 2), np.uint8), "(n, 1, h, w)": np.ones((50, 1, 2, 2))}


@pytest.mark.parametrize("y", [*Y.values(), *MAPS.values()], ids=[*Y, *MAPS])
def test_nothing_is_trained_with_a_softmax_of_one_score(y):
    model = model_of(1) if y.size == 50 else Sequential([Conv2D(1, 1)], (1, 2, 2))
    trainer = Trainer(model, SoftmaxCrossEntropy(), SGD(0.1))
    before, inputs = model.state_dict(), np.ones((50, *model.input_shape))
    for call in (trainer.train_batch, trainer.evaluate, lambda X, y: trainer.fit(X, y, verbose=0)):
        with pytest.raises(ValueError, match=r"^loss: expected at least two classes .*binary_cross_entropy"):
            call(inputs, y)
    with pytest.raises(ValueError, match=r"^loss: expected at least two classes"):
        trainer.loss(model.predict(inputs), y)
    assert trainer.step == 0 and all(np.array_equal(before[name], model.state_dict()[name]) for name in before)


# ---- estimators
INDICATOR = (X[:, :3] > 0).astype(int)


def test_an_estimators_are_those_of_its_loss():
    three = SequentialClassifier([Dense(3)], loss=Focal("Sigmoid"), epochs=2, random_state=0)
    y = np.eye(3)[np.arange(50) % 3]
    for targets in (INDICATOR, y.argmax(axis=1)):
        fitted = three.fit(X, targets)
        scores = fitted.model_.predict(X)
        np.testing.assert_allclose(fitted.predict_proba(X), expit(scores), 1e-12)
        np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(expit(scores)), 1e-9)
    silent = SequentialClassifier([Dense(3)], loss=own, epochs=2).fit(X, y.argmax(axis=1))
    assert silent.predict(X).shape == (50,)
    for method in ("predict_proba", "predict_log_proba"):
        with pytest.raises(ValueError, match=f"^{method}: expected a loss such as"):
            getattr(silent, method)(X)


@pytest.mark.parametrize("loss", ["softmax_cross_entropy", SoftmaxCrossEntropy(0.1), Focal("Softmax")])
def test_an_indicator_matrix_has_no_softmax(loss):
    classifier = SequentialClassifier([Dense(3)], loss=loss)
    with pytest.raises(ValueError, match=r"^loss: expected one for an indicator matrix .* y.argmax\(axis=1\)"):
        classifier.fit(X, INDICATOR)
    assert not hasattr(classifier, "trainer_")
    with pytest.raises(ValueError, match=r"^loss: expected one for numbers"):
        SequentialRegressor([Dense(3)], loss=loss).fit(X, X[:, :3])
    assert isinstance(SequentialRegressor([Dense(3)], epochs=1).fit(X, X[:, :3]).trainer_.loss, MeanSquaredError)
